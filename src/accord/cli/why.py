"""`accord why`: the outcome of an event, and its cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.arguments import read_event_id
from accord.cli.http_client import NodeHttpClient
from accord.cli.options import Output, command, complete_channels
from accord.cli.parameters import argument, option
from accord.core.model.errors import InputError
from accord.core.monitoring.event_path import PathHop
from accord.core.monitoring.outcomes import (
    DeliveryOutcome,
    DeliveryOutcomes,
    size_text,
    span_text,
    time_text,
    waits_for_text,
)
from accord.core.monitoring.top import Waiting
from accord.operations.events import EventOutcomes, GetEvent
from accord.operations.status import ListOutcomes
from accord.terminal.amounts import clock_text, count_text, moment_text
from accord.terminal.rows import Column, fields, table
from accord.terminal.screen import safe

TIMEOUT_S: Final = 30.0  # a search of the whole journal takes a while
MAX_DESTINATIONS: Final = 50

_STYLES: Final = {
    "delivered": "green",
    "shaped": "green",
    "late": "yellow",
    "replaced": "cyan",
}
_SEVERAL: Final = "(several)"


@command
def why(
    event: str | None = argument(
        "EVENT_ID", "ID of an event; default: the latest outcomes.", default=None
    ),
    *,
    channel: str | None = option(
        "FILTER", "Only these channels.", autocompletion=complete_channels
    ),
    client: str | None = option("NAME", "Only to or from this client."),
    outcome: str | None = option(
        "OUTCOME", "Only delivered, late, shaped, replaced, expired, shed or refused."
    ),
    last: int = option("N", "Number of outcomes.", "--last", "-n", min=1, max=1_000, default=20),
    output: Output,
    node: NodeHttpClient,
) -> None:
    """Say why an event arrived as it did, and show its outcome for each destination.

    Of an event that crossed nodes, also where its time went. One that still waits is shown with
    what it waits for.
    Without an ID, list the latest outcomes with the IDs of their events.
    """
    if event is None:
        output.show(
            lambda: node.call(
                ListOutcomes(limit=last, channel=channel or "#", client=client, outcome=outcome),
                TIMEOUT_S,
            ),
            draw_outcomes,
            lambda found: found.outcomes,
        )
        return
    for name, value in (("--channel", channel), ("--client", client), ("--outcome", outcome)):
        if value is not None:
            raise InputError(name, "expected without an event id")
    wanted = GetEvent(event=read_event_id(event, "EVENT_ID"))
    output.show(lambda: node.call(wanted, TIMEOUT_S), draw_event)


def draw_event(found: EventOutcomes) -> Group:
    """A paragraph per destination."""
    channel = safe(found.channel) or _SEVERAL
    publisher = f" from {safe(found.publisher)}" if found.publisher else ""
    parts: list[RenderableType] = [
        Text.assemble((found.event, "bold"), f"  {channel}{publisher}"),
        Text(f"received {_moment(found.received_ms)}", "dim"),
        Text(safe(found.verdict.sentence), "bold"),
    ]
    if found.path is not None and len(found.path.hops) > 1:
        parts += [Text(), fields((safe(hop.node), _hop_text(hop)) for hop in found.path.hops)]
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
    if found.unanswered:
        names = ", ".join(safe(each) for each in found.unanswered)
        parts += [Text(), Text(f"no answer from {names}: what they know is missing", "dim")]
    if not found.is_complete:
        parts += [Text(), Text("older parts of the ledger were not searched", "dim")]
    return Group(*parts)


def draw_outcomes(found: DeliveryOutcomes) -> RenderableType:
    if not found.outcomes:
        if found.reaches_back_ms is None:
            return Text("the ledger is empty")
        return Text(f"nothing found; searched back to {_moment(found.reaches_back_ms)}")
    return table(OutcomeRow, found.outcomes)


def _hop_text(hop: PathHop) -> str:
    """What took the time at a node on the path."""
    took_ms = hop.steps[-1].until_ms - hop.steps[0].from_ms
    parts = [
        f"{each.kind} {span_text(each.took_ms)}"
        + (f" of {span_text(each.allowed_ms)}" if each.allowed_ms is not None else "")
        for each in hop.steps
        if each.took_ms > 0
    ]
    text = f"{span_text(took_ms)} until {safe(hop.to)}" if hop.to else span_text(took_ms)
    return f"{text}: {', '.join(parts)}" if parts else text


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
    yield f"waits for {waits_for_text(waiting)}"
    before = [
        f"{count_text(each.events, 'event')} ({size_text(each.bytes)}) of importance "
        f"{each.importance}"
        for each in reversed(waiting.ahead)
    ]
    yield f"behind {', '.join(before)}" if before else "behind nothing: it is the next"
    policy = f"policy {waiting.policy}" if waiting.policy else "no policy"
    yield f"importance {waiting.importance}, {policy}; {size_text(waiting.size)}"


def _event_text(outcome: DeliveryOutcome) -> str:
    return outcome.event + (f" +{outcome.count - 1}" if outcome.count > 1 else "")


def _total_ms(outcome: DeliveryOutcome) -> int:
    return max(outcome.done_ms - outcome.received_ms, 0)


def _moment(time_ms: int) -> str:
    return f"{moment_text(time_ms)}.{time_ms % 1_000:03d}"


class OutcomeRow(msgspec.Struct, frozen=True):
    event: Annotated[str, Column(of=_event_text, is_whole=True)]
    done_ms: Annotated[int, Column("at", clock_text, is_number=False)]
    channel: Annotated[str, Column(unit=lambda channel: channel or _SEVERAL)]
    destination: Annotated[str, Column("to")]
    outcome: Annotated[str, Column(unit=lambda name: Text(safe(name), _STYLES.get(name, "red")))]
    took: Annotated[int, Column(unit=time_text, of=_total_ms)]
    reason: Annotated[str, Column("why")]
