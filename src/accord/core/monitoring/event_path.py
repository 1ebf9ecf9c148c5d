"""Where the time of an event went: its path over nodes to one destination, step by step.

All times are ages of the event in ms, so that nodes with different clocks agree: an event carries
its age, and each node's ledger has the ages at which it came, was queued and was sent on. A link
between nodes counts with its usual latency, as nothing else is known of it without equal clocks.

The budget of a hop is what the event may wait there and the usual latency of its link. The last
node has what is left of the time until the event is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from accord.core.monitoring.delivery_lines import OTHER_NODES
from accord.core.monitoring.outcomes import ARRIVED, DeliveryOutcome, NodePassed

HANDLING: Final = "handling"  # taken in, matched, ordered, written: until it was queued
AGAIN: Final = "sent again"  # a copy before this one was not acknowledged
OUTBOX: Final = "outbox"
BUSY: Final = "link busy"  # with what was sent before; an event that is given up needs not wait
LINK: Final = "link"
TRANSIT: Final = "transit"  # outbox and link together: that node's ledger is not known

_NEAR_MS: Final = 0.2  # ages are written with one decimal


class PathStep(Struct, frozen=True, kw_only=True):
    """A part of an event's time, at one age after the other.

    It might take `allowed_ms` if a budget says so; what is `estimated` was not measured.
    """

    kind: str
    from_ms: float
    until_ms: float
    allowed_ms: float | None = None
    estimated: bool = False

    @property
    def took_ms(self) -> float:
        return max(self.until_ms - self.from_ms, 0)


class PathHop(Struct, frozen=True, kw_only=True):
    """One node on the path, and where it sent the event.

    Its budget begins at `budget_from_ms`; `over_ms` is how much more it took, less than 0 if it had
    time to spare.
    """

    node: str
    to: str
    steps: tuple[PathStep, ...]
    budget_from_ms: float | None = None
    budget_ms: float | None = None
    over_ms: float | None = None


class EventPath(Struct, frozen=True, kw_only=True):
    """The hops of an event to a destination, where it is due `due_ms` after it was published.

    It was sent to the destination after `took_ms`, or, unless it `has_arrived`, given up.
    """

    destination: str
    took_ms: float
    has_arrived: bool = True
    due_ms: float | None = None
    hops: tuple[PathHop, ...]


class Culprit(Struct, frozen=True, kw_only=True):
    """The step that took the most time beyond what it was allowed."""

    hop: PathHop
    step: PathStep
    is_last: bool


def path_to(
    outcome: DeliveryOutcome, known: Sequence[DeliveryOutcome], due_ms: float | None = None
) -> EventPath:
    """The path of an event to the destination of `outcome`, from all that ledgers know of it."""
    trail, came_ms = trail_to(outcome.node, known)
    nodes = [*trail, NodePassed(node=outcome.node, age_ms=came_ms)]
    hops = [_passed(passed, following, known) for passed, following in pairwise(nodes)]
    hops.append(_last(outcome, came_ms))
    due = outcome.deadline_ms if outcome.deadline_ms is not None else due_ms
    return EventPath(
        destination=outcome.destination,
        took_ms=outcome.took_ms,
        has_arrived=outcome.outcome in ARRIVED,
        due_ms=due,
        hops=_with_budgets(hops, due),
    )


def trail_to(node: str, known: Sequence[DeliveryOutcome]) -> tuple[list[NodePassed], float]:
    """The nodes an event passed before `node`, and its age when it came there."""
    to_it = [each for each in known if each.hop is not None and each.hop.to == node]
    for each in to_it:
        if each.node == node and each.hop is not None:
            last = each.hop.passed[-1].age_ms if each.hop.passed else 0
            return list(each.hop.passed), max(each.queued_ms - each.received_ms, last)
    for each in to_it:  # it did not arrive, or that node's ledger is not known
        if each.hop is not None:
            return list(each.hop.passed), each.took_ms
    return [], 0.0


def unneeded_copies(known: Sequence[DeliveryOutcome]) -> list[tuple[str, str]]:
    """Neighbours that sent a copy to a node where another was accepted: from, to."""
    accepted = {
        each.node: each.hop.passed[-1].node
        for each in known
        if each.hop is not None and each.hop.to == each.node and each.hop.passed
    }
    found = {
        (each.node, each.hop.to): None
        for each in known
        if each.hop is not None and accepted.get(each.hop.to, each.node) != each.node
    }
    return [(node, to) for node, to in found if node != to]


def culprit_of(path: EventPath) -> Culprit | None:
    """The step to blame for the lateness of an event; None if no step took any time.

    It is the longest one of the hop that took the most time beyond its budget. A link between nodes
    is blamed if its hop has no budget, which would include the link's usual latency, or if the
    links alone take longer than there is time.
    """
    links_ms = sum(
        step.took_ms for hop in path.hops[:-1] for step in hop.steps if step.kind == LINK
    )
    are_links_slow = path.due_ms is not None and links_ms >= path.due_ms
    found: list[tuple[float, Culprit]] = []
    for place, hop in enumerate(path.hops):
        is_last = place == len(path.hops) - 1
        steps = [
            step
            for step in hop.steps
            if step.took_ms > 0 and _may_be_to_blame(step, hop, path, is_last, are_links_slow)
        ]
        if steps:
            longest = max(steps, key=lambda each: each.took_ms)
            over_ms = longest.took_ms if hop.over_ms is None else hop.over_ms
            found.append((over_ms, Culprit(hop=hop, step=longest, is_last=is_last)))
    return max(found, key=lambda each: each[0], default=(0, None))[1]


def _may_be_to_blame(
    step: PathStep, hop: PathHop, path: EventPath, is_last: bool, are_links_slow: bool
) -> bool:
    if step.kind in {BUSY, LINK} and is_last:
        return not path.has_arrived  # after its arrival, it is too late to matter
    if step.kind == LINK:
        return hop.budget_ms is None or are_links_slow
    return not are_links_slow


def _passed(passed: NodePassed, following: NodePassed, known: Sequence[DeliveryOutcome]) -> PathHop:
    """A node before the last one."""
    steps: list[PathStep] = []
    sent = _hop_from(passed, following.node, known)
    first_ms = _first_age_ms(passed.node, known)
    if first_ms is None:  # at any other node, it is queued for the next at once
        first_ms = passed.age_ms
    elif passed.age_ms > first_ms:
        steps.append(PathStep(kind=HANDLING, from_ms=0, until_ms=first_ms))
        steps.append(PathStep(kind=AGAIN, from_ms=first_ms, until_ms=passed.age_ms))
    elif first_ms:
        steps.append(PathStep(kind=HANDLING, from_ms=0, until_ms=first_ms))
    until_ms = max(following.age_ms, passed.age_ms)
    if sent is None:
        steps.append(PathStep(kind=TRANSIT, from_ms=passed.age_ms, until_ms=until_ms))
        return PathHop(node=passed.node, to=following.node, steps=tuple(steps))
    left_ms = min(passed.age_ms + sent.queueing_ms, until_ms)
    budget_ms = None if sent.hop is None else sent.hop.budget_ms
    steps.append(
        PathStep(kind=OUTBOX, from_ms=passed.age_ms, until_ms=left_ms, allowed_ms=budget_ms)
    )
    steps.append(PathStep(kind=LINK, from_ms=left_ms, until_ms=until_ms, estimated=True))
    if budget_ms is not None:
        budget_ms = max(budget_ms, 0) + until_ms - left_ms
    return PathHop(node=passed.node, to=following.node, steps=tuple(steps), budget_ms=budget_ms)


def _hop_from(
    passed: NodePassed, to: str, known: Sequence[DeliveryOutcome]
) -> DeliveryOutcome | None:
    """What the node's ledger says about this copy."""
    for each in known:
        hop = each.hop
        if hop is None or (each.node, hop.to) != (passed.node, to) or not hop.passed:
            continue
        if abs(hop.passed[-1].age_ms - passed.age_ms) < _NEAR_MS:
            return each
    return None


def _first_age_ms(node: str, known: Sequence[DeliveryOutcome]) -> float | None:
    """The age at which the source first sent an event; None if `node` is not its source."""
    ages = [
        hop.passed[0].age_ms
        for hop in (each.hop for each in known)
        if hop is not None and hop.passed and hop.passed[0].node == node
    ]
    return min(ages, default=None)


def _last(outcome: DeliveryOutcome, came_ms: float) -> PathHop:
    """The node of the destination."""
    queued_ms = max(outcome.queued_ms - outcome.received_ms, came_ms)
    done_ms = max(outcome.took_ms, queued_ms)
    steps = [
        PathStep(kind=HANDLING, from_ms=came_ms, until_ms=queued_ms),
        PathStep(kind=OUTBOX, from_ms=queued_ms, until_ms=done_ms),
    ]
    if outcome.sending_ms:
        free_ms = done_ms + _busy_ms(outcome, done_ms)
        until_ms = free_ms + outcome.sending_ms
        if free_ms > done_ms:
            steps.append(PathStep(kind=BUSY, from_ms=done_ms, until_ms=free_ms, estimated=True))
        steps.append(PathStep(kind=LINK, from_ms=free_ms, until_ms=until_ms, estimated=True))
    to = "" if outcome.destination == OTHER_NODES else outcome.destination
    return PathHop(node=outcome.node, to=to, steps=tuple(steps))


def _busy_ms(outcome: DeliveryOutcome, done_ms: float) -> float:
    """For how long, at least, the link would not yet have been free for an event that expired.

    An outbox gives an event up if it would be too late with the wait for the link and the time to
    send it; only the latter is recorded.
    """
    if outcome.outcome != "expired" or outcome.deadline_ms is None:
        return 0.0
    return max(outcome.deadline_ms - done_ms - (outcome.sending_ms or 0), 0.0)


def _with_budgets(hops: list[PathHop], due_ms: float | None) -> tuple[PathHop, ...]:
    """Where each hop's budget begins, and what the last one has."""
    found: list[PathHop] = []
    from_ms = 0.0
    for hop in hops[:-1]:
        if hop.budget_ms is None:
            return tuple(hops)
        found.append(_within(hop, from_ms, hop.budget_ms))
        from_ms += hop.budget_ms
    last = hops[-1]
    if due_ms is None:
        return (*found, last)
    budget_ms = max(due_ms - from_ms, 0)
    others_ms = sum(step.took_ms for step in last.steps if step.kind != OUTBOX)
    allowed_ms = max(budget_ms - others_ms, 0)
    steps = tuple(
        replace(step, allowed_ms=allowed_ms) if step.kind == OUTBOX else step for step in last.steps
    )
    return (*found, _within(replace(last, steps=steps), from_ms, budget_ms))


def _within(hop: PathHop, from_ms: float, budget_ms: float) -> PathHop:
    took_ms = hop.steps[-1].until_ms - hop.steps[0].from_ms
    return replace(
        hop, budget_from_ms=from_ms, budget_ms=budget_ms, over_ms=round(took_ms - budget_ms, 1)
    )
