"""The verdict about an event in words: who, what, how much, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from accord.core.monitoring.delivery_lines import OTHER_NODES
from accord.core.monitoring.event_path import AGAIN, BUSY, HANDLING, LINK, OUTBOX
from accord.core.monitoring.event_verdict import (
    AWAY,
    CLIENT_LINK,
    LINK_LOST,
    NOBODY,
    ON_ITS_WAY,
    QUEUE_FULL,
    SLOW_PATH,
    SLOW_SHAPING,
    WAITING,
    Behind,
    EventFacts,
    Judgement,
    judge,
)
from accord.core.monitoring.outcomes import (
    DeliveryOutcome,
    rate_text,
    short_name,
    size_text,
    span_text,
    waits_for_text,
)
from accord.core.monitoring.top import Waiting

_MAX_LISTED: Final = 5


class EventVerdict(Struct, frozen=True, kw_only=True):
    """Why an event arrived as it did, in one sentence; about the destination that fared worst.

    `node` is where the cause lies, `policy` the one that decided there, `over_ms` how much too late
    it arrived.
    """

    sentence: str
    cause: str
    outcome: str = ""
    destination: str = ""
    node: str = ""
    policy: str = ""
    over_ms: float = 0


def verdict_of(facts: EventFacts) -> EventVerdict:
    judged = judge(facts)
    worst = judged.worst
    if worst is None:
        return EventVerdict(sentence=_without_outcome(facts, judged.cause), cause=judged.cause)
    node, policy = worst.node, worst.policy
    if judged.culprit is not None:
        node = judged.culprit.hop.node
        if judged.culprit.step.kind == OUTBOX and facts.behind:
            policy = facts.behind[0].policy or policy
    return EventVerdict(
        sentence=_sentence(facts, judged, worst),
        cause=judged.cause,
        outcome="late" if judged.over_ms > 0 else worst.outcome,
        destination=worst.destination,
        node=node,
        policy=policy,
        over_ms=judged.over_ms,
    )


def _without_outcome(facts: EventFacts, cause: str) -> str:
    if cause == WAITING:
        return _waiting(facts.waiting)
    if cause == NOBODY:
        return "Nobody had subscribed to it: it was kept, and went to no client."
    assert cause == ON_ITS_WAY
    hops = [(each.node, each.hop.to) for each in facts.known if each.hop is not None]
    came_to = list(dict.fromkeys(to for node, to in hops if node == to))
    if came_to:
        return f"It came to {_listed(came_to)}, where it has no outcome at a client yet."
    sent_to = list(dict.fromkeys(to for _, to in hops))
    return f"It was sent to {_listed(sent_to)}; what became of it there is not known here."


def _waiting(waiting: Sequence[Waiting]) -> str:
    longest = max(waiting, key=lambda each: each.taken_ms - each.queued_ms)
    to = short_name(longest.destination) or "all its receivers"
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    since = span_text(max(longest.taken_ms - longest.queued_ms, 0))
    ahead = sum(each.events for each in longest.ahead)
    behind = f", behind {_events(ahead)}" if ahead else ""
    return f"Still waiting for {to}{more} after {since}: {waits_for_text(longest)}{behind}."


def _sentence(facts: EventFacts, judged: Judgement, worst: DeliveryOutcome) -> str:
    to, others = _to(worst), _others(judged)
    if judged.over_ms > 0:
        smaller = f", though made smaller ({_sizes(worst)})" if worst.from_size else ""
        over = span_text(judged.over_ms)
        has_deadline = worst.deadline_ms is not None
        late = f"{over} late" if has_deadline else f"{over} later than its channel allows"
        return f"{late} at {to}{others}{smaller}: {_because(facts, judged)}."
    match worst.outcome:
        case "delivered":
            return _delivered(judged, worst)
        case "shaped":
            return _shaped(judged, worst)
        case "replaced":
            by = f" ({worst.replaced_by})" if worst.replaced_by else ""
            waited = span_text(worst.queueing_ms)
            newer = f"a newer event with the same key{by} took its place"
            return f"Replaced for {to}{others} after {waited} in its outbox: {newer}."
        case "late":
            return f"Late at {to}{others}: {_because(facts, judged)}."
    if worst.destination == OTHER_NODES:
        return f"{_lost(judged, worst)}."
    if worst.outcome == "expired":
        within = "" if worst.deadline_ms is None else f", due within {span_text(worst.deadline_ms)}"
        return f"Expired for {to}{others}{within}: {_because(facts, judged)}."
    return _given_up(judged, worst, others)


def _delivered(judged: Judgement, worst: DeliveryOutcome) -> str:
    took = span_text(worst.took_ms)
    due_ms = judged.path.due_ms if judged.path is not None else None
    how = "Delivered to" if due_ms is None else "In time at"
    bound = "" if due_ms is None else f", of the {span_text(due_ms)} it might take"
    if judged.destinations > 1:
        all_ = f"{how} all {judged.destinations} destinations"
        return f"{all_}, the slowest {_to(worst)} after {took}{bound}."
    return f"{how} {_to(worst)} after {took}{bound}."


def _shaped(judged: Judgement, worst: DeliveryOutcome) -> str:
    by = f" by policy {short_name(worst.policy)}" if worst.policy else ""
    took = span_text(worst.took_ms)
    due_ms = judged.path.due_ms if judged.path is not None else None
    how = "it arrived" if due_ms is None else "it arrived in time,"
    return f"Made smaller for {_to(worst)}{by}, {_sizes(worst)}: {how} after {took}."


def _lost(judged: Judgement, worst: DeliveryOutcome) -> str:
    at = short_name(worst.node) or "a node"
    if worst.outcome == "expired":
        return f"Expired at {at} on its way to other nodes, after {span_text(worst.took_ms)}"
    if judged.cause == QUEUE_FULL:
        return f"Lost at {at}: the outbox to the next node was full"
    if judged.cause == LINK_LOST and worst.reason.startswith("link"):
        return f"Lost at {at}: the link to the next node went down"
    if judged.cause == LINK_LOST:
        return f"Lost after {at}: no node acknowledged it, though it was sent again"
    return f"Lost at {at} on its way to other nodes: {worst.reason or 'no cause is recorded'}"


def _given_up(judged: Judgement, worst: DeliveryOutcome, others: str) -> str:
    """Shed or refused."""
    how = worst.outcome.capitalize()
    reason = worst.reason or "no cause is recorded"
    if not worst.destination:
        return f"{how} before any receiver was chosen: {reason}."
    if judged.cause == QUEUE_FULL:
        waited = f" after {span_text(worst.queueing_ms)}" if worst.queueing_ms else ""
        return f"{how} for {_to(worst)}{others}{waited}: its queue was full."
    if judged.cause == AWAY:
        return f"{how} for {_to(worst)}{others}: the client was away ({reason})."
    return f"{how} for {_to(worst)}{others}: {reason}."


def _because(facts: EventFacts, judged: Judgement) -> str:
    """Where the time went."""
    culprit, worst = judged.culprit, judged.worst
    assert worst is not None
    if culprit is None:
        return "it was due when it was published"
    took, node = span_text(culprit.step.took_ms), short_name(culprit.hop.node) or "the node"
    to = short_name(culprit.hop.to)
    if judged.cause == SLOW_PATH and judged.path is not None:
        links = [s for hop in judged.path.hops[:-1] for s in hop.steps if s.kind == LINK]
        total = span_text(sum(each.took_ms for each in links))
        return f"the links of its path take {total}, longer than there is time"
    match culprit.step.kind:
        case kind if kind == OUTBOX:
            return _waited(facts.behind, f"it waited {took} at {node}", _link(judged))
        case kind if kind == HANDLING:
            made = "made smaller and " if judged.cause == SLOW_SHAPING else ""
            return f"it took {took} at {node} until it was {made}queued"
        case kind if kind == AGAIN:
            return f"{node} sent it again after {took}, as nobody had acknowledged it"
        case kind if kind == BUSY:
            return f"its link of {_rate(worst)} is busy with earlier events for {took} or more"
        case kind if kind == LINK and culprit.is_last:
            return f"its {size_text(worst.size)} take {took} at {_rate(worst)}"
        case kind if kind == LINK:
            return f"the link from {node} to {to} takes {took}"
    return f"it took {took} at {node} and on the link to {to}"


def _link(judged: Judgement) -> str:
    """For which link it waited, if the link is a part of the answer."""
    culprit, worst = judged.culprit, judged.worst
    if culprit is not None and not culprit.is_last:
        return f" for the link to {short_name(culprit.hop.to)}"
    if judged.cause == CLIENT_LINK and worst is not None:
        return f" for its link of {_rate(worst)}"
    return ""


def _waited(behind: Sequence[Behind], text: str, link: str) -> str:
    """What it waited for in an outbox, and behind whom."""
    text += link
    if not behind:
        return text if link else f"{text} until its client or link took it"
    first = behind[0]
    rest = sum(each.events for each in behind[1:])
    if first.policy:
        more = f", and {rest:,} more" if rest else ""
        return f"{text} behind policy {short_name(first.policy)} ({_events(first.events)}{more})"
    of = f" of {short_name(first.channel)}" if first.channel else ""
    more = f" and {rest:,} more" if rest else ""
    return f"{text} behind {_events(first.events)}{of}, importance {first.importance}{more}"


def _rate(outcome: DeliveryOutcome) -> str:
    """Of the link to its client."""
    return rate_text(outcome.size * 8_000 / (outcome.sending_ms or 1))


def _to(outcome: DeliveryOutcome) -> str:
    return short_name(outcome.destination) or "its receivers"


def _others(judged: Judgement) -> str:
    """Of several destinations with a bad outcome, how many there are."""
    more = judged.bad - 1
    return f" and {more:,} more of {judged.destinations:,}" if more > 0 else ""


def _sizes(outcome: DeliveryOutcome) -> str:
    return f"{size_text(outcome.from_size or outcome.size)} to {size_text(outcome.size)}"


def _events(count: int) -> str:
    return f"{count:,} event" if count == 1 else f"{count:,} events"


def _listed(names: Sequence[str]) -> str:
    shown = [short_name(each) for each in names[:_MAX_LISTED]]
    if len(names) > _MAX_LISTED:
        return f"{', '.join(shown)} and {len(names) - _MAX_LISTED} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
