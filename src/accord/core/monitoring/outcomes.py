"""Outcomes of events: facts of the ledger, with the cause in words; and amounts in words.

A hop is an outcome too: that an event was sent to a neighbour, or came from one.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from accord.core.monitoring.delivery_lines import NODE
from accord.core.monitoring.ledger import (
    BUDGET,
    BY,
    DEADLINE,
    EXPIRED,
    FROM_BYTES,
    LATE,
    REPLACED,
    SHAPED,
    LedgerEntry,
    event_id,
    outcome_name,
    read_detail,
    read_trail,
)
from accord.core.monitoring.top import (
    ACKNOWLEDGEMENT,
    CONNECTION,
    CPU,
    JOURNAL,
    LINK,
    NODE_LIMIT,
    SHAPING,
    TURN,
    Waiting,
)


class NodePassed(Struct, frozen=True, kw_only=True):
    """A node that an event has passed, and the event's age when it came there."""

    node: str
    age_ms: float


class HopOutcome(Struct, frozen=True, kw_only=True):
    """An event was sent to the neighbour `to`, or came to the node `to` itself.

    `passed` are the nodes before, from the first on. It may wait `budget_ms` to be sent, if its
    channel has a maximum delay.
    """

    to: str
    passed: tuple[NodePassed, ...] = ()
    budget_ms: float | None = None


class DeliveryOutcome(Struct, frozen=True, kw_only=True):
    """What became of an event for one destination.

    It waited `queueing_ms` of the time from `received_ms` to `done_ms`, when it was handed to the
    link or given up; `sending_ms` is what the link then takes for its `size`. `count` is more than
    one where several events published together, from `event` on, met the same fate. `node` is whose
    ledger has it.
    """

    event: str
    count: int = 1
    channel: str
    publisher: str
    destination: str
    outcome: str
    reason: str = ""
    received_ms: int
    queued_ms: int
    done_ms: int
    queueing_ms: int
    sending_ms: float | None = None
    size: int
    from_size: int | None = None
    deadline_ms: int | None = None
    replaced_by: str | None = None
    importance: int
    policy: str = ""
    node: str = ""
    hop: HopOutcome | None = None

    @property
    def took_ms(self) -> int:
        return max(self.done_ms - self.received_ms, 0)

    @property
    def late_ms(self) -> int:
        """How much later than its deadline it arrived; 0 or less if in time or without one."""
        if self.deadline_ms is None or self.outcome not in ARRIVED:
            return 0
        return self.took_ms - self.deadline_ms


_NAME_LENGTH: Final = 60
_WAITS_FOR: Final = {
    CPU: "the CPU: it is not matched with subscriptions yet",
    JOURNAL: "the journal: it is not on disk yet",
    SHAPING: "its payload to be made smaller",
    CONNECTION: "the client to connect again",
    TURN: "its turn",
}
ARRIVED: Final = frozenset(("delivered", "late", "shaped"))


class DeliveryOutcomes(Struct, frozen=True, kw_only=True):
    """Outcomes, the latest first; older ones may exist unless `is_complete`."""

    outcomes: tuple[DeliveryOutcome, ...]
    is_complete: bool
    reaches_back_ms: int | None = None


def outcome_of(entry: LedgerEntry, node: str = "") -> DeliveryOutcome:
    """Convert an entry; if it stands for several events, the size is their mean."""
    if entry.count > 1:
        size, sending_us = entry.size // entry.count, entry.sending_us // entry.count
        entry = replace(entry, size=size, sending_us=sending_us)
    facts, words = read_detail(entry.detail)
    from_size, deadline_ms = _number(facts.get(FROM_BYTES)), _number(facts.get(DEADLINE))
    return DeliveryOutcome(
        event=event_id(entry.number) if entry.number else "",
        count=entry.count,
        channel=entry.channel,
        publisher=entry.publisher,
        destination=entry.destination,
        outcome=outcome_name(entry.outcome),
        reason=_reason(entry, facts, words),
        received_ms=entry.received_ms,
        queued_ms=entry.queued_ms,
        done_ms=entry.done_ms,
        queueing_ms=max(entry.done_ms - entry.queued_ms, 0),
        sending_ms=entry.sending_us / 1_000 if entry.sending_us else None,
        size=entry.size,
        from_size=from_size,
        deadline_ms=deadline_ms,
        replaced_by=facts.get(BY),
        importance=entry.importance,
        policy=entry.policy,
        node=node,
        hop=_hop(entry.destination, facts, words),
    )


def _hop(destination: str, facts: dict[str, str], words: str) -> HopOutcome | None:
    trail = read_trail(words) if destination.startswith(NODE) else None
    if trail is None:
        return None
    budget_us = _number(facts.get(BUDGET))
    return HopOutcome(
        to=destination.removeprefix(NODE),
        passed=tuple(NodePassed(node=node, age_ms=age_ms) for node, age_ms in trail),
        budget_ms=None if budget_us is None else budget_us / 1_000,
    )


def _reason(entry: LedgerEntry, facts: dict[str, str], words: str) -> str:
    """The cause in words, from the known facts."""
    reason = ""
    deadline_ms = _number(facts.get(DEADLINE))
    if entry.outcome in (EXPIRED, LATE) and deadline_ms is not None:
        tried = "could not arrive before" if entry.outcome == EXPIRED else "arrived after"
        reason = f"{tried} its deadline of {time_text(deadline_ms)}: {_times(entry)}"
    elif entry.outcome == SHAPED:
        from_size = _number(facts.get(FROM_BYTES))
        if from_size is not None:
            reason = f"from {size_text(from_size)} to {size_text(entry.size)}"
            reason = f"{reason}: {words}" if words else reason
            if deadline_ms is None:
                return reason
            return f"{reason}; arrived after its deadline of {time_text(deadline_ms)}"
    elif entry.outcome == REPLACED:
        by = f" ({facts[BY]})" if BY in facts else ""
        reason = f"a newer event with the same key{by} took its place"
    return "; ".join(filter(None, (reason, words)))


def _times(entry: LedgerEntry) -> str:
    text = f"{time_text(entry.done_ms - entry.queued_ms)} queued"
    before_ms = entry.queued_ms - entry.received_ms
    if before_ms >= 100:
        text = f"{time_text(before_ms)} until it was queued, {text}"
    if not entry.sending_us:
        return text
    takes = "takes" if entry.outcome == EXPIRED else "took"
    rate = rate_text(entry.size * 8_000_000 / entry.sending_us)
    sending = time_text(entry.sending_us / 1_000)
    return f"{text}, sending {size_text(entry.size)} {takes} {sending} at {rate}"


def waits_for_text(waiting: Waiting) -> str:
    """What an event waits for now."""
    if waiting.limit_bps is not None:
        whose = "node" if waiting.waits_for == NODE_LIMIT else "client"
        wait = time_text(waiting.wait_ms or 0)
        return f"the {whose}'s limit of {rate_text(waiting.limit_bps)}, {wait} more at least"
    if waiting.waits_for == ACKNOWLEDGEMENT:
        count = waiting.unacknowledged or 0
        events = f"{count:,} event" if count == 1 else f"{count:,} events"
        return f"the client, which has {events} to acknowledge first"
    if waiting.waits_for == LINK:
        size = size_text(waiting.under_way_bytes or 0)
        return f"the link or the client to read: {size} are not acknowledged yet"
    return _WAITS_FOR.get(waiting.waits_for, waiting.waits_for)


def short_name(name: str) -> str:
    """A name in a sentence: names are external input."""
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"


def span_text(time_ms: float) -> str:
    """A time as people say it: to the millisecond up to ten seconds."""
    if time_ms >= 10_000:
        return time_text(time_ms)
    return f"{time_ms:,.0f} ms" if time_ms >= 10 else f"{max(time_ms, 0):.2g} ms"


def time_text(time_ms: float) -> str:
    if time_ms < 100:
        return f"{time_ms:.3g} ms" if time_ms >= 0 else "0 ms"
    return f"{time_ms / 1_000:,.1f} s".replace(".0 s", " s")


def size_text(size: float) -> str:
    for unit, factor in (("MB", 1e6), ("KB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}".replace(".0 ", " ")
    return f"{size:.0f} B"


def rate_text(rate_bps: float) -> str:
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if rate_bps >= factor:
            return f"{rate_bps / factor:.3g} {unit}"
    return f"{rate_bps:.0f} bit/s"


def _number(text: str | None) -> int | None:
    """The value of a fact; None also if a damaged record has something else."""
    digits = text.removeprefix("-") if text else ""
    return int(text or "") if len(digits) < 19 and digits.isascii() and digits.isdigit() else None
