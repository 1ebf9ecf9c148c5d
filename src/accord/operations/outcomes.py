"""Outcomes of events as operations answer them: facts of the ledger, with the cause in words."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from accord.core.monitoring.ledger import (
    BY,
    DEADLINE,
    EXPIRED,
    FROM_BYTES,
    LATE,
    REPLACED,
    SHAPED,
    event_id,
    outcome_name,
    read_detail,
)
from accord.core.monitoring.top import Waiting
from accord.journal.ledger_records import LedgerEntry


class DeliveryOutcome(Struct, frozen=True, kw_only=True):
    """What became of an event for one destination.

    It waited `queueing_ms` of the time from `received_ms` to `done_ms`, when it was handed to the
    link or given up; `sending_ms` is what the link then takes for its `size`. `count` is more than
    one where several events published together, from `event` on, met the same fate.
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


class EventOutcomes(Struct, frozen=True, kw_only=True):
    """What became of one event for each of its destinations, and where it still waits."""

    event: str
    channel: str
    publisher: str
    received_ms: int
    outcomes: tuple[DeliveryOutcome, ...]
    waiting: tuple[Waiting, ...] = ()
    is_complete: bool


class DeliveryOutcomes(Struct, frozen=True, kw_only=True):
    """Outcomes, the latest first; older ones may exist unless `is_complete`."""

    outcomes: tuple[DeliveryOutcome, ...]
    is_complete: bool
    reaches_back_ms: int | None = None


def outcome_of(entry: LedgerEntry) -> DeliveryOutcome:
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
    return int(text) if text and len(text) < 19 and text.isascii() and text.isdigit() else None
