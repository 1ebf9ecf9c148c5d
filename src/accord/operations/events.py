"""Why an event arrived as it did: its outcomes at all nodes, its path, and what shared its fate.

The ledger of this node is asked first, then those of the nodes that the event passed, and, if this
node has no outcome of the event any more, the archive of its data pipeline.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.core.monitoring.delivery_lines import NODE
from accord.core.monitoring.event_path import EventPath, path_to, unneeded_copies
from accord.core.monitoring.event_sentences import EventVerdict, verdict_of
from accord.core.monitoring.event_verdict import (
    Behind,
    EventFacts,
    Judgement,
    behind_of,
    deliveries,
    is_bad,
    judge,
    longest_wait,
)
from accord.core.monitoring.ledger import OUTCOMES, event_id, event_number
from accord.core.monitoring.outcomes import DeliveryOutcome
from accord.core.monitoring.top import Waiting
from accord.journal.ledger_records import LedgerQuery
from accord.operations.event_sources import EventSources
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.ports import NodePorts

MAX_SAME: Final = 20  # events that shared the fate
_MAX_LEFT: Final = 2_000  # entries searched for what an event waited behind
_AROUND_MS: Final = 2_000
Text = Annotated[str, Meta(max_length=65_535)]


class UnneededCopy(Struct, frozen=True, kw_only=True):
    """A copy that another path brought to a node after, or instead of which, one was accepted.

    It was removed there as a duplicate, unless the link lost it.
    """

    node: str
    to: str


class SimilarOutcomes(Struct, frozen=True, kw_only=True):
    """Other events with the same outcome in the same seconds, and the worst of them."""

    since_ms: int
    until_ms: int
    events: int
    has_more: bool = False
    outcomes: tuple[DeliveryOutcome, ...] = ()


class EventOutcomes(Struct, frozen=True, kw_only=True):
    """What became of one event for each of its destinations, where it still waits, and why.

    `outcomes` are those of all nodes that answered, the worst first, hops included. `path` leads to
    the destination that was asked for, or that fared worst; `behind` are the events that left the
    outbox of its longest wait meanwhile.
    """

    event: str
    channel: str
    publisher: str
    received_ms: int
    verdict: EventVerdict
    outcomes: tuple[DeliveryOutcome, ...]
    waiting: tuple[Waiting, ...] = ()
    path: EventPath | None = None
    behind: tuple[Behind, ...] = ()
    same: SimilarOutcomes | None = None
    copies: tuple[UnneededCopy, ...] = ()
    due_ms: float | None = None
    nodes: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    is_archived: bool = False
    is_complete: bool


class GetEvent(Request[EventOutcomes], frozen=True, kw_only=True, tag="get"):
    event: Annotated[str, Meta(max_length=100, description="The ID of an event.")]
    destination: Annotated[
        Text | None, Meta(description="Whose path to show; default: the one that fared worst.")
    ] = None


@operation("events", "GET /events/{event}", Right.STATISTICS)
async def get_event(node: NodePorts, ask: GetEvent, asker: Asker) -> EventOutcomes:
    """What became of an event for each destination, where it still waits, and why."""
    number = event_number(ask.event)
    sources = EventSources(node, asker)
    found = await sources.event(number)
    outcomes = tuple(sorted_outcomes(found.outcomes))
    due_ms = sources.due_ms(found.channel)
    facts = EventFacts(known=outcomes, waiting=found.waiting, due_ms=due_ms)
    judged = judge(facts)
    behind = await _behind(sources, judged, outcomes)
    facts = replace(facts, behind=behind)
    chosen = _chosen(ask.destination, outcomes, judged)
    return EventOutcomes(
        event=event_id(number),
        channel=found.channel,
        publisher=found.publisher,
        received_ms=found.received_ms,
        verdict=verdict_of(facts),
        outcomes=outcomes,
        waiting=found.waiting,
        path=None if chosen is None else path_to(chosen, outcomes, due_ms),
        behind=behind,
        same=await _similar_outcomes(sources, judged, event_id(number)),
        copies=tuple(UnneededCopy(node=a, to=b) for a, b in unneeded_copies(outcomes)),
        due_ms=due_ms,
        nodes=found.nodes,
        unanswered=found.unanswered,
        is_archived=found.is_archived,
        is_complete=found.is_complete,
    )


def sorted_outcomes(found: tuple[DeliveryOutcome, ...]) -> list[DeliveryOutcome]:
    """The destinations, the worst first, then the hops."""
    hops = [each for each in found if each.hop is not None]
    return [*deliveries(found), *sorted(hops, key=lambda each: each.took_ms)]


def _chosen(
    destination: str | None, outcomes: tuple[DeliveryOutcome, ...], judged: Judgement
) -> DeliveryOutcome | None:
    if destination is None:
        return judged.worst
    for each in outcomes:
        if each.destination == destination and each.hop is None:
            return each
    raise RequestError(404, f"the event has no outcome for {destination[:200]!r}", "destination")


async def _behind(
    sources: EventSources, judged: Judgement, known: tuple[DeliveryOutcome, ...]
) -> tuple[Behind, ...]:
    """What left the outbox in which the event waited longest; its channels as far as visible."""
    waited = longest_wait(judged, known)
    if waited is None or waited.queueing_ms <= 0:
        return ()
    wanted = LedgerQuery(
        client=waited.destination, since_ms=waited.queued_ms, until_ms=waited.done_ms
    )
    left = await sources.entries(waited.node, wanted, _MAX_LEFT)
    may_see = sources.asker.may_see
    return behind_of(
        waited,
        (each if may_see(each.channel) else replace(each, channel="", policy="") for each in left),
    )


async def _similar_outcomes(
    sources: EventSources, judged: Judgement, event: str
) -> SimilarOutcomes | None:
    """Other events with the same outcome, at the same destination if the cause lies there."""
    worst = judged.worst
    if worst is None or not is_bad(worst) or worst.outcome not in OUTCOMES:
        return None
    is_at_client = judged.culprit is None or judged.culprit.is_last
    client = worst.destination if is_at_client and not worst.destination.startswith(NODE) else None
    since_ms, until_ms = worst.done_ms - _AROUND_MS, worst.done_ms + _AROUND_MS
    wanted = LedgerQuery(
        client=client or None,
        outcome=OUTCOMES.index(worst.outcome),
        since_ms=since_ms,
        until_ms=until_ms,
    )
    entries = await sources.entries(worst.node, wanted, MAX_SAME * 10)
    others = [each for each in entries if each.event != event]
    shown = [each for each in others if sources.asker.may_see(each.channel)]
    shown.sort(key=lambda each: (-each.late_ms, abs(each.done_ms - worst.done_ms)))
    return SimilarOutcomes(
        since_ms=since_ms,
        until_ms=until_ms,
        events=sum(each.count for each in shown),
        has_more=len(entries) >= MAX_SAME * 10,
        outcomes=tuple(shown[:MAX_SAME]),
    )
