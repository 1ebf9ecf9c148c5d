"""Outcome of a message for one receiver: counted per channel, and recorded in the ledger."""

from __future__ import annotations

from collections.abc import Iterable

from accord.core.broker.broker_context import BrokerContext, ConnectionPort
from accord.core.broker.delivery import ClientDelivery
from accord.core.broker.runs import MessageRun
from accord.core.monitoring.ledger import DELIVERED, EXPIRED, LATE, SHAPED, shape_detail
from accord.core.scheduling.queue_entries import QueueEntry


def received_ms(parcel: QueueEntry) -> int:
    """When the events of an entry arrived."""
    return parcel.message.received_ms if isinstance(parcel, ClientDelivery) else parcel.queued_ms


def count_sent(
    hub: BrokerContext,
    line: ConnectionPort | None,
    receiver: str,
    parcel: QueueEntry,
    size: int,
    wait_ms: int,
) -> None:
    """Count and record an entry being sent as `size` bytes."""
    detail = ""
    is_late = 0 < parcel.expires_ms <= hub.now_ms
    outcome = LATE if is_late else DELIVERED
    if isinstance(parcel, MessageRun):
        if parcel.parts is None:
            parcel.counts.is_delivered(parcel.count, parcel.size, wait_ms)
        else:
            parcel.count_delivered(wait_ms)
    else:
        assert isinstance(parcel, ClientDelivery)
        message = parcel.message
        counts = message.counts
        if message.shaped_from:
            outcome = SHAPED
            detail = shape_detail(message.shaped_from, "")
        if counts is not None:
            counts.is_delivered(1, size, wait_ms)
            counts.late += is_late
            counts.shaped += message.shaped_from > 0
    if hub.ledger.is_on:
        record_outcome(hub, line, receiver, parcel, outcome, size, detail)


def count_lost(parcel: QueueEntry, is_expired: bool) -> None:
    """Count an entry that does not reach its receiver."""
    if isinstance(parcel, MessageRun):
        parcel.count_lost(is_expired)
    elif isinstance(parcel, ClientDelivery):
        counts = parcel.message.counts
        if counts is not None:
            counts.is_lost(1, is_expired)


def record_outcome(
    hub: BrokerContext,
    line: ConnectionPort | None,
    receiver: str,
    parcel: QueueEntry,
    outcome: int,
    size: int,
    detail: str,
) -> None:
    """Add the outcome of an entry to the ledger."""
    events: Iterable[tuple[str, int, int]]
    came_ms = parcel.queued_ms
    if isinstance(parcel, MessageRun):
        publisher = parcel.publisher
        grant = parcel.grant
        if parcel.parts is None:
            events = ((parcel.channel, parcel.number, parcel.count),)
        else:
            events = parcel.numbered()
    else:
        assert isinstance(parcel, ClientDelivery)
        publisher = parcel.message.publisher
        grant = parcel.grant
        came_ms = parcel.message.received_ms
        events = ((parcel.message.channel, parcel.number, 1),)
    policy = grant.policy
    if outcome == SHAPED:
        policy = grant.shaping_policy
    elif outcome in (EXPIRED, LATE):
        policy = grant.deadline_policy
    rate_bps = 0
    if line is not None and (line.link.rate_bps or line.link.limit_bps):
        rate_bps = line.link.carries_bps()
    for channel, number, count in events:
        part_size = size * count // parcel.count
        hub.ledger.add(
            number,
            count,
            channel,
            publisher,
            receiver,
            outcome,
            came_ms,
            parcel.queued_ms,
            hub.now_ms,
            part_size,
            parcel.importance,
            policy,
            detail,
            part_size * 8_000_000 // rate_bps if rate_bps else 0,
        )


def record_unrouted(
    hub: BrokerContext,
    number: int,
    channel: str,
    publisher: str,
    outcome: int,
    received_ms: int,
    size: int,
    detail: str,
    count: int = 1,
) -> None:
    """Add to the ledger what ended before receivers were selected."""
    hub.ledger.add(
        number,
        count,
        channel,
        publisher,
        "",
        outcome,
        received_ms,
        received_ms,
        hub.now_ms,
        size,
        0,
        "",
        detail,
        0,
    )
