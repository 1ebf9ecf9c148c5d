"""Outcomes of events on a screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.quantities import count_text
from accord.cli.screen import safe
from accord.cli.table import Table, fields, figures, whole
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
from accord.http.ledger_schemas import (
    DeliveryOutcome,
    DeliveryOutcomes,
    EventOutcomes,
    rate_text,
    size_text,
    time_text,
)

MAX_DESTINATIONS: Final = 50

_STYLES: Final = {
    "delivered": "green",
    "shaped": "green",
    "late": "yellow",
    "replaced": "cyan",
}
_WAITS_FOR: Final = {
    CPU: "the CPU: it is not matched with subscriptions yet",
    JOURNAL: "the journal: it is not on disk yet",
    SHAPING: "its payload to be made smaller",
    CONNECTION: "the client to connect again",
    TURN: "its turn",
}
_SEVERAL: Final = "(several)"


def draw_event(found: EventOutcomes) -> Group:
    """A paragraph per destination."""
    channel = safe(found.channel) or _SEVERAL
    publisher = f" from {safe(found.publisher)}" if found.publisher else ""
    parts: list[RenderableType] = [
        Text.assemble((found.event, "bold"), f"  {channel}{publisher}"),
        Text(f"received {_moment(found.received_ms)}", "dim"),
    ]
    for waiting in found.waiting[:MAX_DESTINATIONS]:
        parts += [Text(), _place(waiting), fields(("", line) for line in _waiting_lines(waiting))]
    if unseen := len(found.waiting[MAX_DESTINATIONS:]):
        parts += [Text(), Text(f"and {unseen:,} more where it waits (--json has all)", "dim")]
    for outcome in found.outcomes[:MAX_DESTINATIONS]:
        parts += [Text(), _verdict(outcome), fields(("", line) for line in _lines(outcome))]
    if rest := found.outcomes[MAX_DESTINATIONS:]:
        kinds = Counter(each.outcome for each in rest)
        counts = ", ".join(f"{count:,} {safe(name)}" for name, count in kinds.most_common())
        parts += [Text(), Text(f"and {len(rest):,} more: {counts} (--json has all)", "dim")]
    if not found.is_complete:
        parts += [Text(), Text("older parts of the ledger were not searched", "dim")]
    return Group(*parts)


def draw_outcomes(found: DeliveryOutcomes) -> RenderableType:
    if not found.outcomes:
        if found.reaches_back_ms is None:
            return Text("the ledger is empty")
        return Text(f"nothing found; searched back to {_moment(found.reaches_back_ms)}")
    table = Table(whole("event"), "at", "channel", "to", "outcome", *figures("took"), "why")
    for each in found.outcomes:
        table.add_row(
            each.event + (f" +{each.count - 1}" if each.count > 1 else ""),
            f"{datetime.fromtimestamp(each.done_ms / 1_000).astimezone():%H:%M:%S}",
            each.channel or _SEVERAL,
            each.destination,
            Text(safe(each.outcome), _STYLES.get(each.outcome, "red")),
            time_text(_total_ms(each)),
            each.reason,
        )
    return table


def _verdict(outcome: DeliveryOutcome) -> Text:
    after = f"{time_text(_total_ms(outcome))} after it came"
    name = safe(outcome.destination) or "nobody"
    return Text.assemble(
        (name, "bold"),
        "  ",
        (safe(outcome.outcome), _STYLES.get(outcome.outcome, "bold red")),
        (f"  {after}, at {_moment(outcome.done_ms)}", "dim"),
    )


def _lines(outcome: DeliveryOutcome) -> Iterator[str]:
    if outcome.reason:
        yield outcome.reason
    sending = ""
    if outcome.sending_ms is not None:
        sending = f", sending {time_text(outcome.sending_ms)}"
    size = size_text(outcome.size)
    if outcome.from_size is not None:
        size = f"{size_text(outcome.from_size)} → {size}"
    before_ms = outcome.queued_ms - outcome.received_ms
    before = f"handling {time_text(before_ms)}, " if before_ms > 0 else ""
    yield f"{before}queued {time_text(outcome.queueing_ms)}{sending}; {size}"
    policy = f"policy {outcome.policy}" if outcome.policy else "no policy"
    several = ""
    if outcome.count > 1:
        several = f"; together with {count_text(outcome.count - 1, 'other event')}"
    yield f"importance {outcome.importance}, {policy}{several}"


def _place(waiting: Waiting) -> Text:
    since = time_text(max(waiting.taken_ms - waiting.queued_ms, 0))
    return Text.assemble(
        (safe(waiting.destination) or "the task queue", "bold"),
        "  ",
        ("waiting", "yellow"),
        (f"  for {since}, since {_moment(waiting.queued_ms)}", "dim"),
    )


def _waiting_lines(waiting: Waiting) -> Iterator[str]:
    yield f"waits for {_waits_for(waiting)}"
    before = [
        f"{count_text(each.events, 'event')} ({size_text(each.bytes)}) of importance "
        f"{each.importance}"
        for each in reversed(waiting.ahead)
    ]
    yield f"behind {', '.join(before)}" if before else "behind nothing: it is the next"
    policy = f"policy {waiting.policy}" if waiting.policy else "no policy"
    yield f"importance {waiting.importance}, {policy}; {size_text(waiting.size)}"


def _waits_for(waiting: Waiting) -> str:
    if waiting.limit_bps is not None:
        whose = "node" if waiting.waits_for == NODE_LIMIT else "client"
        wait = time_text(waiting.wait_ms or 0)
        return f"the {whose}'s limit of {rate_text(waiting.limit_bps)}, {wait} more at least"
    if waiting.waits_for == ACKNOWLEDGEMENT:
        events = count_text(waiting.unacknowledged or 0, "event")
        return f"the client, which has {events} to acknowledge first"
    if waiting.waits_for == LINK:
        size = size_text(waiting.under_way_bytes or 0)
        return f"the link or the client to read: {size} are not acknowledged yet"
    return _WAITS_FOR.get(waiting.waits_for, waiting.waits_for)


def _total_ms(outcome: DeliveryOutcome) -> int:
    return max(outcome.done_ms - outcome.received_ms, 0)


def _moment(time_ms: int) -> str:
    local = datetime.fromtimestamp(time_ms / 1_000).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}.{time_ms % 1_000:03d}"
