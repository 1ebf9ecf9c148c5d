"""What waits in the outbox of a client: for how long, and of which channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from accord.core.broker.delivery import ClientDelivery
from accord.core.broker.delivery_accounting import received_ms
from accord.core.broker.runs import MessageRun
from accord.core.monitoring.delivery_lines import WaitingEvents
from accord.core.monitoring.ledger import stored_name

if TYPE_CHECKING:
    from accord.core.scheduling.outbox import Outbox

_FIRST: Final = 32  # entries of each lane; the first may have been replaced by newer ones
_MOST: Final = 20_000


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
