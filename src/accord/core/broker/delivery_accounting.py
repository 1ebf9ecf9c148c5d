"""What becomes of messages for one receiver.

Outcomes are counted per channel and recorded in the ledger; of what still waits in the outbox it is
told for how long, and of which channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from accord.core.broker.broker_context import BrokerContext, ConnectionPort
from accord.core.broker.delivery import ClientDelivery
from accord.core.broker.runs import MessageRun
from accord.core.monitoring.delivery_lines import WaitingEvents
from accord.core.monitoring.ledger import (
    DELIVERED,
    EXPIRED,
    LATE,
    SHAPED,
    deadline_detail,
    shape_detail,
    stored_name,
)
from accord.core.scheduling.queue_entries import QueueEntry

if TYPE_CHECKING:
    from accord.core.scheduling.outbox import Outbox

_FIRST: Final = 32  # entries of each lane; the first may have been replaced by newer ones
_MOST: Final = 20_000


def received_ms(entry: QueueEntry) -> int:
    """When the events of an entry arrived."""
    return entry.message.received_ms if isinstance(entry, ClientDelivery) else entry.queued_ms


def count_sent(
    context: BrokerContext,
    connection: ConnectionPort | None,
    receiver: str,
    entry: QueueEntry,
    size: int,
    wait_ms: int,
) -> None:
    """Count and record an entry being sent as `size` bytes."""
    detail = ""
    is_late = 0 < entry.expires_ms <= context.now_ms
    outcome = LATE if is_late else DELIVERED
    if entry.expires_ms > 0 and context.ledger.is_on:
        detail = deadline_detail(entry.expires_ms - received_ms(entry))
    if isinstance(entry, MessageRun):
        if entry.parts is None and entry.expires_ms <= 0:
            entry.counts.count_delivered(entry.count, entry.size, wait_ms)
        else:
            entry.count_delivered(wait_ms)
    else:
        assert isinstance(entry, ClientDelivery)
        message = entry.message
        counts = message.counts
        if message.shaped_from:
            outcome = SHAPED
            detail = shape_detail(message.shaped_from, detail if is_late else "")
        if counts is not None:
            counts.count_delivered(1, size, wait_ms)
            counts.late += is_late
            counts.with_deadline += entry.expires_ms > 0
            counts.shaped += message.shaped_from > 0
    if context.ledger.is_on:
        record_outcome(context, connection, receiver, entry, outcome, size, detail)


def count_dropped(entry: QueueEntry, is_expired: bool) -> None:
    """Count an entry that does not reach its receiver."""
    if isinstance(entry, MessageRun):
        entry.count_dropped(is_expired)
    elif isinstance(entry, ClientDelivery):
        counts = entry.message.counts
        if counts is not None:
            counts.count_dropped(1, is_expired)


def record_outcome(
    context: BrokerContext,
    connection: ConnectionPort | None,
    receiver: str,
    entry: QueueEntry,
    outcome: int,
    size: int,
    detail: str,
) -> None:
    """Add the outcome of an entry to the ledger."""
    events: Iterable[tuple[str, int, int]]
    came_ms = entry.queued_ms
    if isinstance(entry, MessageRun):
        publisher = entry.publisher
        grant = entry.grant
        if entry.parts is None:
            events = ((entry.channel, entry.number, entry.count),)
        else:
            events = entry.numbered()
    else:
        assert isinstance(entry, ClientDelivery)
        publisher = entry.message.publisher
        grant = entry.grant
        came_ms = entry.message.received_ms
        events = ((entry.message.channel, entry.number, 1),)
    policy = grant.policy
    if outcome == SHAPED:
        policy = grant.shaping_policy
    elif outcome in (EXPIRED, LATE):
        policy = grant.deadline_policy
    rate_bps = 0
    if connection is not None and (connection.link.rate_bps or connection.link.limit_bps):
        rate_bps = connection.link.capacity_bps()
    for channel, number, count in events:
        part_size = size * count // entry.count
        context.ledger.add(
            number,
            count,
            channel,
            publisher,
            receiver,
            outcome,
            came_ms,
            entry.queued_ms,
            context.now_ms,
            part_size,
            entry.importance,
            policy,
            detail,
            part_size * 8_000_000 // rate_bps if rate_bps else 0,
        )


def record_unrouted(
    context: BrokerContext,
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
    context.ledger.add(
        number,
        count,
        channel,
        publisher,
        "",
        outcome,
        received_ms,
        received_ms,
        context.now_ms,
        size,
        0,
        "",
        detail,
        0,
    )


def waiting_ms(outbox: Outbox, now_ms: int) -> int:
    """How long ago the oldest of the first entries came, 0 if none waits."""
    if outbox.is_empty():
        return 0
    came_ms = min(map(received_ms, outbox.first_waiting(_FIRST)), default=now_ms)
    return max(now_ms - came_ms, 0)


def backlog_by_channel(outbox: Outbox, now_ms: int) -> dict[str, WaitingEvents]:
    """What waits on each channel, named as in the ledger; of a very long queue, its first part."""
    found: dict[str, WaitingEvents] = {}
    if outbox.is_empty():
        return found
    for entry in outbox.first_waiting(_MOST):
        age_ms = max(now_ms - received_ms(entry), 0)
        if isinstance(entry, ClientDelivery):
            found.setdefault(stored_name(entry.message.channel), WaitingEvents()).add(
                1, entry.size, age_ms
            )
        elif isinstance(entry, MessageRun):
            for channel, _, count in entry.numbered():
                size = entry.size * count // entry.count
                found.setdefault(stored_name(channel), WaitingEvents()).add(count, size, age_ms)
    return found
