"""Why an event arrived as it did: a pure function of what ledgers know of it.

The verdict is about the destination that fared worst. For an event that was late or expired, the
cause is the step of its path that took the most time beyond what it was allowed; for a wait in an
outbox, also the events that left the same outbox meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from accord.core.monitoring.delivery_lines import OTHER_NODES
from accord.core.monitoring.event_path import (
    AGAIN,
    BUSY,
    HANDLING,
    LINK,
    OUTBOX,
    TRANSIT,
    Culprit,
    EventPath,
    culprit_of,
    path_to,
)
from accord.core.monitoring.outcomes import DeliveryOutcome
from accord.core.monitoring.top import Waiting

# Causes.
IN_TIME: Final = "in time"
DELIVERED: Final = "delivered"  # without a deadline
QUEUED: Final = "queued"
CLIENT_LINK: Final = "slow link of the client"
SLOW_LINK: Final = "slow link between nodes"
SLOW_PATH: Final = "slow path"
SLOW_HOP: Final = "slow hop"  # a node whose ledger is not known, or its link
HANDLED_LATE: Final = "handled late"
SLOW_SHAPING: Final = "slow shaping"
SENT_AGAIN: Final = "sent again"
UNKNOWN: Final = "unknown"
SHAPED: Final = "shaped"
REPLACED: Final = "replaced"
QUEUE_FULL: Final = "queue full"
AWAY: Final = "client away"
OVERLOAD: Final = "overload"
SHED: Final = "shed"
REFUSED: Final = "refused"
LINK_LOST: Final = "link lost"
NO_PATH: Final = "no path"
LOST: Final = "lost between nodes"
WAITING: Final = "waiting"
ON_ITS_WAY: Final = "on its way"
NOBODY: Final = "nobody subscribed"
CAUSES: Final = (
    IN_TIME, DELIVERED, QUEUED, CLIENT_LINK, SLOW_LINK, SLOW_PATH, SLOW_HOP, HANDLED_LATE,
    SLOW_SHAPING, SENT_AGAIN, UNKNOWN, SHAPED, REPLACED, QUEUE_FULL, AWAY, OVERLOAD, SHED,
    REFUSED, LINK_LOST, NO_PATH, LOST, WAITING, ON_ITS_WAY, NOBODY,
)  # fmt: skip

_BADNESS: Final = ("delivered", "shaped", "replaced", "late", "expired", "shed", "refused")
_MAX_GROUPS: Final = 10
_FULL_SHARE: Final = 0.5  # of a wait, for which the link was busy with others
_BY_REASON: Final = (  # beginnings of reasons
    ("queue full", QUEUE_FULL),
    ("offline", AWAY),
    ("session ended", AWAY),
    ("cpu overload", OVERLOAD),
    ("link down", LINK_LOST),
    ("no route", NO_PATH),
    ("unknown route", NO_PATH),
    ("not acknowledged", LINK_LOST),
)
_BY_STEP: Final = {OUTBOX: QUEUED, HANDLING: HANDLED_LATE, AGAIN: SENT_AGAIN, TRANSIT: SLOW_HOP}


class Behind(Struct, frozen=True, kw_only=True):
    """Events that left an outbox while another one waited there: of one policy and importance.

    `channel` is empty if they are of several.
    """

    policy: str
    importance: int
    channel: str
    events: int
    bytes: int


class EventFacts(Struct, frozen=True, kw_only=True):
    """What is known of an event.

    It is due `due_ms` after it was published where it has no deadline. `behind` are the events that
    left the outbox of the wait that `longest_wait` names.
    """

    known: Sequence[DeliveryOutcome] = ()
    waiting: Sequence[Waiting] = ()
    behind: Sequence[Behind] = ()
    due_ms: float | None = None


class Judgement(Struct, frozen=True, kw_only=True):
    """What decided about an event: the worst outcome, and the step to blame for its lateness."""

    cause: str
    worst: DeliveryOutcome | None = None
    path: EventPath | None = None
    culprit: Culprit | None = None
    over_ms: float = 0  # beyond the time in which it was due
    bad: int = 0  # destinations with such or a different bad outcome
    destinations: int = 0


def judge(facts: EventFacts) -> Judgement:
    """The cause of what became of an event."""
    found = deliveries(facts.known)
    if not found:
        if facts.waiting:
            return Judgement(cause=WAITING)
        return Judgement(cause=ON_ITS_WAY if facts.known else NOBODY)
    worst = found[0]
    if facts.waiting and _badness(worst, facts)[0] < _BADNESS.index("late"):
        return Judgement(cause=WAITING)
    at_clients = [each for each in found if each.destination != OTHER_NODES] or found
    bad = sum(is_bad(each, facts.due_ms) for each in at_clients)
    path = path_to(worst, facts.known, facts.due_ms)
    over_ms = overdue_ms(worst, facts.due_ms)
    is_lateness = worst.outcome in {"expired", "late"} or over_ms > 0
    is_lateness = is_lateness and worst.destination != OTHER_NODES
    culprit = culprit_of(path) if is_lateness else None
    return Judgement(
        cause=_cause_of_lateness(culprit, worst, facts.behind)
        if is_lateness
        else _cause(worst, path),
        worst=worst,
        path=path,
        culprit=culprit,
        over_ms=over_ms,
        bad=bad,
        destinations=len(at_clients),
    )


def deliveries(known: Iterable[DeliveryOutcome]) -> list[DeliveryOutcome]:
    """The outcomes without those of hops, the worst first.

    A copy that was lost between nodes says little where another copy arrived.
    """
    outcomes = list(known)
    facts = EventFacts(known=outcomes)
    found = [each for each in outcomes if each.hop is None]
    return sorted(found, key=lambda each: _badness(each, facts), reverse=True)


def is_bad(outcome: DeliveryOutcome, due_ms: float | None = None) -> bool:
    """Whether the event did not reach the destination in time."""
    is_lost = outcome.outcome not in {"delivered", "shaped", "replaced"}
    return is_lost or overdue_ms(outcome, due_ms) > 0


def overdue_ms(outcome: DeliveryOutcome, due_ms: float | None = None) -> float:
    """How much too late it arrived; 0 if in time, or if it did not arrive."""
    if outcome.deadline_ms is None and due_ms is not None:
        has_arrived = outcome.outcome in {"delivered", "shaped"}
        return max(outcome.took_ms - due_ms, 0) if has_arrived else 0
    return max(outcome.late_ms, 0)


def longest_wait(judgement: Judgement, known: Sequence[DeliveryOutcome]) -> DeliveryOutcome | None:
    """The entry of the wait in an outbox that is to blame: a delivery, or a hop."""
    culprit, worst = judgement.culprit, judgement.worst
    if culprit is None or culprit.step.kind != OUTBOX:
        return None
    if culprit.is_last:
        return worst
    hop = culprit.hop
    for each in known:
        if each.hop is not None and (each.node, each.hop.to) == (hop.node, hop.to):
            return each
    return None


def behind_of(waited: DeliveryOutcome, left: Iterable[DeliveryOutcome]) -> tuple[Behind, ...]:
    """What left the outbox while an event waited there, the most events first."""
    groups: dict[tuple[str, int], tuple[set[str], int, int]] = {}
    for each in left:
        is_same = each.destination == waited.destination and each.event != waited.event
        is_meanwhile = waited.queued_ms <= each.done_ms <= waited.done_ms
        if is_same and is_meanwhile and each.outcome in {"delivered", "late", "shaped"}:
            key = (each.policy, each.importance)
            channels, events, size = groups.get(key, (set(), 0, 0))
            channels.add(each.channel)
            groups[key] = (channels, events + each.count, size + each.size * each.count)
    found = [
        Behind(
            policy=policy,
            importance=importance,
            channel=next(iter(channels)) if len(channels) == 1 else "",
            events=events,
            bytes=size,
        )
        for (policy, importance), (channels, events, size) in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.events)[:_MAX_GROUPS])


def _badness(outcome: DeliveryOutcome, facts: EventFacts) -> tuple[float, float, float]:
    """Sorts outcomes: the worst has the greatest."""
    name = outcome.outcome
    rank: float = _BADNESS.index(name) if name in _BADNESS else len(_BADNESS)
    if overdue_ms(outcome, facts.due_ms) > 0:
        rank = _BADNESS.index("late")
    if outcome.destination == OTHER_NODES and _has_arrived(facts.known):
        rank = -1
    return rank, overdue_ms(outcome, facts.due_ms), outcome.took_ms


def _has_arrived(known: Iterable[DeliveryOutcome]) -> bool:
    return any(each.hop is not None and each.hop.to == each.node for each in known)


def _cause(worst: DeliveryOutcome, path: EventPath) -> str:
    """The cause of an outcome that is no lateness."""
    match worst.outcome:
        case "delivered":
            return DELIVERED if path.due_ms is None else IN_TIME
        case "shaped":
            return SHAPED
        case "replaced":
            return REPLACED
    for beginning, cause in _BY_REASON:
        if worst.reason.startswith(beginning):
            return cause
    if worst.destination == OTHER_NODES:
        return LOST
    return REFUSED if worst.outcome == "refused" else SHED


def _cause_of_lateness(
    culprit: Culprit | None, worst: DeliveryOutcome, behind: Sequence[Behind]
) -> str:
    if culprit is None:
        return UNKNOWN
    if culprit.is_last and culprit.step.kind == OUTBOX and _is_link_full(worst, behind):
        return CLIENT_LINK
    if culprit.step.kind == BUSY:
        return CLIENT_LINK
    if culprit.is_last and culprit.step.kind == HANDLING and worst.outcome == "shaped":
        return SLOW_SHAPING
    if culprit.step.kind != LINK:
        return _BY_STEP.get(culprit.step.kind, UNKNOWN)
    if culprit.is_last:
        return CLIENT_LINK
    is_planned = culprit.hop.budget_ms is not None  # then all links together are too slow
    return SLOW_PATH if is_planned else SLOW_LINK


def _is_link_full(worst: DeliveryOutcome, behind: Sequence[Behind]) -> bool:
    """Whether an event waited for the rate of its link rather than for more important events."""
    if not worst.sending_ms:
        return False
    if any(each.importance > worst.importance for each in behind):
        return False
    ahead_ms = sum(each.bytes for each in behind) * worst.sending_ms / max(worst.size, 1)
    return not behind or ahead_ms >= worst.queueing_ms * _FULL_SHARE
