"""Finds where an event is queued, and what it waits for. Costs nothing until requested."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, cast

from accord.core.broker.connection import Connection
from accord.core.broker.delivery import WAITING, ClientDelivery
from accord.core.broker.delivery_accounting import received_ms
from accord.core.broker.message_shaping import ShapingOrder
from accord.core.broker.publish_handler import PublishTask
from accord.core.broker.runs import MessageRun
from accord.core.broker.session import HeldDelivery, MqttSession, is_tracked
from accord.core.monitoring.top import (
    ACKNOWLEDGEMENT,
    CLIENT_LIMIT,
    CONNECTION,
    CPU,
    JOURNAL,
    LINK,
    NODE_LIMIT,
    SHAPING,
    TURN,
    Ahead,
    Waiting,
)
from accord.core.scheduling.queue_entries import QueueEntry
from accord.core.scheduling.queues import Queues
from accord.runtime.connection_writer import clock_us
from accord.runtime.server import Server

_LONG_S: Final = 0.002


async def find_waiting(server: Server, number: int) -> list[Waiting]:
    """Where event `number` is queued; scans in steps, as the event loop is blocked meanwhile."""
    context = server.broker.context
    found: list[Waiting] = []
    task = context.tasks.find(number)
    if isinstance(task, PublishTask):
        message = task.message
        found.append(
            Waiting(
                destination="",
                channel=message.channel,
                publisher=message.publisher,
                received_ms=message.received_ms,
                queued_ms=task.queued_ms,
                taken_ms=server.clock.now_ms(),
                size=task.size,
                importance=task.importance,
                waits_for=CPU,
                ahead=_ahead(context.tasks, task),
            )
        )
    shaped = {
        held.session: held.delivery
        for order in context.shapings.values()
        if isinstance(order, ShapingOrder) and order.message.number == number
        for held in order.waiters
        if isinstance(held, HeldDelivery)
    }
    started_s = time.perf_counter()
    for session in list(server.broker.sessions.values()):
        if time.perf_counter() - started_s > _LONG_S:
            await asyncio.sleep(0)
            started_s = time.perf_counter()
        now_ms = server.clock.now_ms()
        entry = None if session.outbox.is_empty() else session.outbox.find(number)
        if entry is not None:
            facts = _wait_cause(server, session, entry)
            ahead = _ahead(session.outbox, entry)
            found.append(_waiting(session, entry, now_ms, ahead=ahead, **facts))
        elif (delivery := shaped.get(session)) is not None:
            found.append(_waiting(session, delivery, now_ms, waits_for=SHAPING))
        elif (held_back := _unrecorded(session, number)) is not None:
            found.append(_waiting(session, held_back, now_ms, waits_for=JOURNAL))
    return found


def _unrecorded(session: MqttSession, number: int) -> ClientDelivery | None:
    for delivery in session.unacknowledged.values():
        if delivery.stage == WAITING and delivery.number == number:
            return delivery
    return None


def _ahead(queues: Queues, entry: QueueEntry) -> tuple[Ahead, ...]:
    events, sizes = queues.ahead_of(entry)
    return tuple(
        Ahead(importance=importance, events=count, bytes=sizes[importance])
        for importance, count in enumerate(events)
        if count
    )


def _wait_cause(server: Server, session: MqttSession, entry: QueueEntry) -> dict[str, Any]:
    """The facts that show why an event waits in an outbox."""
    connection = session.connection
    if connection is None:
        return {"waits_for": CONNECTION}
    if is_tracked(entry) and session.is_window_full():
        return {"waits_for": ACKNOWLEDGEMENT, "unacknowledged": session.in_flight}
    link = connection.link
    protocol = server.connections.get(cast("Connection", connection))
    if link.is_held or (protocol is not None and protocol.is_paused):
        return {"waits_for": LINK, "under_way_bytes": link.outstanding_bytes}
    gate = link.gate
    longest_us, limiting = 0, None
    if gate is not None:
        gate.advance(clock_us())
        for pacer in gate.pacers:
            for each in (entry, session.peek(None)):
                if each is not None:
                    wait_us = pacer.wait_us(each.bin, each.part(pacer.portion, pacer.large), 0)
                    if wait_us > longest_us:
                        longest_us, limiting = wait_us, pacer
    if limiting is None:
        return {"waits_for": TURN}
    return {
        "waits_for": NODE_LIMIT if limiting is server.bandwidth.node else CLIENT_LIMIT,
        "limit_bps": limiting.limit_bps,
        "wait_ms": longest_us // 1_000,
    }


def _waiting(session: MqttSession, entry: QueueEntry, now_ms: int, **facts: Any) -> Waiting:
    of = entry if isinstance(entry, MessageRun) else cast("ClientDelivery", entry).message
    return Waiting(
        destination=session.name,
        channel=of.channel,
        publisher=of.publisher,
        received_ms=received_ms(entry),
        queued_ms=entry.queued_ms,
        taken_ms=now_ms,
        size=entry.size // entry.count,
        importance=entry.importance,
        policy=cast("MessageRun | ClientDelivery", entry).grant.policy,
        **facts,
    )
