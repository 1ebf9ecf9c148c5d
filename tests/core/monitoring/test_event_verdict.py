"""The verdict about an event: fifty constructed cases, each with the cause it has to find.

A case is what the ledgers of the nodes have of one event. Times are ages of the event in ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from accord.core.monitoring import event_verdict as causes
from accord.core.monitoring.event_path import path_to, unneeded_copies
from accord.core.monitoring.event_sentences import verdict_of
from accord.core.monitoring.event_verdict import (
    Behind,
    EventFacts,
    behind_of,
    deliveries,
    judge,
    longest_wait,
)
from accord.core.monitoring.ledger import (
    DELIVERED,
    EXPIRED,
    LATE,
    REFUSED,
    REPLACED,
    SHAPED,
    SHED,
    LedgerEntry,
    deadline_detail,
    hop_detail,
    replacement_detail,
    shape_detail,
)
from accord.core.monitoring.outcomes import DeliveryOutcome, outcome_of
from accord.core.monitoring.top import (
    ACKNOWLEDGEMENT,
    CLIENT_LIMIT,
    CONNECTION,
    CPU,
    TURN,
    Ahead,
    Waiting,
)

NUMBER = 1_763_000_000_000_000_001
CLOCKS = {
    "seattle": 1_763_000_000_000,
    "denver": 1_763_000_003_000,
    "washington": 1_762_999_000_000,
}


def at(
    node: str,
    to: str,
    outcome: int = DELIVERED,
    *,
    queued: int = 0,
    done: int = 0,
    detail: str = "",
    policy: str = "",
    importance: int = 3,
    size: int = 1_000,
    sending_us: int = 0,
    channel: str = "uav/imagery",
    number: int = NUMBER,
    count: int = 1,
) -> DeliveryOutcome:
    """An outcome at a client of a node, as its ledger has it; nodes have different clocks."""
    came = CLOCKS.get(node, 0)
    entry = LedgerEntry(
        number=number,
        count=count,
        channel=channel,
        publisher="raven-7",
        destination=to,
        outcome=outcome,
        received_ms=came,
        queued_ms=came + queued,
        done_ms=came + max(done, queued),
        size=size * count,
        importance=importance,
        policy=policy,
        detail=detail,
        sending_us=sending_us,
    )
    return outcome_of(entry, node)


def late(node: str, to: str, deadline: int = 200, **facts: Any) -> DeliveryOutcome:
    return at(node, to, LATE, detail=deadline_detail(deadline), **facts)


def expired(node: str, to: str, deadline: int = 200, **facts: Any) -> DeliveryOutcome:
    return at(node, to, EXPIRED, detail=deadline_detail(deadline), **facts)


def hop(
    node: str, to: str, *passed: tuple[str, float], left: int, budget: float | None = None
) -> DeliveryOutcome:
    """An event was sent on: `passed` are the nodes so far, this one the last."""
    trail = [(name, int(age * 1_000)) for name, age in passed]
    budget_us = None if budget is None else int(budget * 1_000)
    detail = hop_detail(trail, 0, budget_us)
    return at(node, f"node {to}", queued=int(passed[-1][1]), done=left, detail=detail)


def arrived(node: str, *passed: tuple[str, float], age: int) -> DeliveryOutcome:
    trail = [(name, int(each * 1_000)) for name, each in passed]
    return at(node, f"node {node}", queued=age, done=age, detail=hop_detail(trail, 0))


def waiting(to: str, waits_for: str, **facts: Any) -> Waiting:
    start = CLOCKS["seattle"]
    return Waiting(
        **{
            "destination": to,
            "channel": "uav/imagery",
            "publisher": "raven-7",
            "received_ms": start,
            "queued_ms": start + 2,
            "taken_ms": start + 5_002,
            "size": 100,
            "importance": 3,
            "waits_for": waits_for,
            **facts,
        }
    )


ALARMS = Behind(policy="Alarms", importance=7, channel="", events=29, bytes=9_000)
REPORTS = Behind(policy="", importance=6, channel="patrol/report", events=6, bytes=900)
ACROSS = (("seattle", 0.0), ("denver", 86.0))
FIRST_HOP = hop("seattle", "denver", ("seattle", 0.0), left=15, budget=66)
# The story of the console's Why page: 104 ms in the outbox of denver, which might take 66.
STORY = (
    late("washington", "ops-dc", queued=235, done=242),
    arrived("washington", *ACROSS, age=233),
    FIRST_HOP,
    arrived("denver", ("seattle", 0.0), age=86),
    hop("denver", "washington", *ACROSS, left=192, budget=66),
)


class Case(NamedTuple):
    name: str
    cause: str
    sentence: str
    known: Sequence[DeliveryOutcome] = ()
    waiting: Sequence[Waiting] = ()
    behind: Sequence[Behind] = ()
    due_ms: float | None = None


CASES = [
    # Delivered.
    Case("without a deadline", causes.DELIVERED,
         "Delivered to desk after 3 ms.",
         [at("seattle", "desk", done=3)]),
    Case("within its deadline", causes.IN_TIME,
         "In time at desk after 3 ms, of the 200 ms it might take.",
         [at("seattle", "desk", done=3, detail=deadline_detail(200))]),
    Case("within what its channel allows", causes.IN_TIME,
         "In time at desk after 30 ms, of the 200 ms it might take.",
         [at("seattle", "desk", done=30)], due_ms=200),
    Case("to several", causes.DELIVERED,
         "Delivered to all 3 destinations, the slowest b after 8 ms.",
         [at("seattle", "a", done=3), at("seattle", "b", done=8), at("seattle", "c", done=1)]),
    Case("at a distant node", causes.DELIVERED,
         "Delivered to ops-dc after 240 ms.",
         [at("washington", "ops-dc", queued=235, done=240), *STORY[1:]]),
    Case("in a run of several events", causes.DELIVERED,
         "Delivered to desk after 0 ms.",
         [at("seattle", "desk", count=5)]),
    # Late in an outbox.
    Case("behind a policy", causes.QUEUED,
         "43 ms late at desk: it waited 240 ms at seattle behind policy Alarms (29 events).",
         [late("seattle", "desk", queued=3, done=243)], behind=[ALARMS]),
    Case("behind a policy and others", causes.QUEUED,
         "43 ms late at desk: it waited 240 ms at seattle behind policy Alarms (29 events, and 6 "
         "more).",
         [late("seattle", "desk", queued=3, done=243)], behind=[ALARMS, REPORTS]),
    Case("behind a channel", causes.QUEUED,
         "43 ms late at desk: it waited 240 ms at seattle behind 6 events of patrol/report, "
         "importance 6.",
         [late("seattle", "desk", queued=3, done=243)], behind=[REPORTS]),
    Case("behind nothing", causes.QUEUED,
         "43 ms late at desk: it waited 240 ms at seattle until its client or link took it.",
         [late("seattle", "desk", queued=3, done=243)]),
    Case("and for others", causes.QUEUED,
         "43 ms late at desk and 1 more of 3: it waited 240 ms at seattle until its client or link "
         "took it.",
         [late("seattle", "desk", queued=3, done=243), late("seattle", "b", queued=3, done=220),
          at("seattle", "c", done=1)]),
    Case("for seconds", causes.QUEUED,
         "11.8 s late at desk: it waited 12 s at seattle until its client or link took it.",
         [late("seattle", "desk", queued=0, done=12_000)]),
    Case("later than its channel allows", causes.QUEUED,
         "50 ms later than its channel allows at desk: it waited 250 ms at seattle until its "
         "client or link took it.",
         [at("seattle", "desk", done=250)], due_ms=200),
    # Late for another reason.
    Case("until it was queued", causes.HANDLED_LATE,
         "320 ms late at desk: it took 500 ms at seattle until it was queued.",
         [late("seattle", "desk", queued=500, done=520)]),
    Case("a slow link", causes.CLIENT_LINK,
         "10 ms late at desk: it waited 208 ms at seattle for its link of 533 kbit/s.",
         [late("seattle", "desk", queued=2, done=210, size=12_000, sending_us=180_000)]),
    Case("a slow link, behind its own kind", causes.CLIENT_LINK,
         "10 ms late at desk: it waited 208 ms at seattle for its link of 533 kbit/s behind "
         "1 event of uav/imagery, importance 3.",
         [late("seattle", "desk", queued=2, done=210, size=12_000, sending_us=180_000)],
         behind=[Behind(policy="", importance=3, channel="uav/imagery", events=1, bytes=12_000)]),
    Case("a slow link, behind more important events", causes.QUEUED,
         "10 ms late at desk: it waited 208 ms at seattle behind policy Alarms (29 events).",
         [late("seattle", "desk", queued=2, done=210, size=12_000, sending_us=180_000)],
         behind=[ALARMS]),
    Case("due at once", causes.UNKNOWN,
         "Late at desk: it was due when it was published.",
         [late("seattle", "desk", 0)]),
    # Late between nodes.
    Case("behind a policy at a node between", causes.QUEUED,
         "42 ms late at ops-dc: it waited 106 ms at denver for the link to washington behind "
         "policy Alarms (29 events).",
         STORY, behind=[ALARMS]),
    Case("at a node between, behind unknown events", causes.QUEUED,
         "42 ms late at ops-dc: it waited 106 ms at denver for the link to washington.",
         STORY),
    Case("at a node between, behind a channel", causes.QUEUED,
         "42 ms late at ops-dc: it waited 106 ms at denver for the link to washington behind "
         "6 events of patrol/report, importance 6.",
         STORY, behind=[REPORTS]),
    Case("at the first node", causes.QUEUED,
         "40 ms late at ops-dc: it waited 150 ms at seattle for the link to denver.",
         [late("washington", "ops-dc", queued=238, done=240),
          arrived("washington", ("seattle", 0.0), ("denver", 190.0), age=236),
          hop("seattle", "denver", ("seattle", 0.0), left=150, budget=66),
          hop("denver", "washington", ("seattle", 0.0), ("denver", 190.0), left=196, budget=66)]),
    Case("at the last node", causes.QUEUED,
         "60 ms late at ops-dc: it waited 120 ms at washington behind policy Alarms (29 events).",
         [late("washington", "ops-dc", queued=140, done=260),
          arrived("washington", *ACROSS, age=140), FIRST_HOP,
          hop("denver", "washington", *ACROSS, left=100, budget=66)], behind=[ALARMS]),
    Case("a node that did not answer", causes.SLOW_HOP,
         "42 ms late at ops-dc: it took 147 ms at denver and on the link to washington.",
         [STORY[0], STORY[1], FIRST_HOP]),
    Case("no other node answered", causes.SLOW_HOP,
         "42 ms late at ops-dc: it took 147 ms at denver and on the link to washington.",
         STORY[:2]),
    Case("a slow link between nodes, without budgets", causes.SLOW_LINK,
         "40 ms late at ops-dc: the link from denver to washington takes 200 ms.",
         [late("washington", "ops-dc", queued=236, done=240),
          arrived("washington", ("seattle", 0.0), ("denver", 30.0), age=235),
          hop("seattle", "denver", ("seattle", 0.0), left=5),
          hop("denver", "washington", ("seattle", 0.0), ("denver", 30.0), left=35)]),
    Case("a path that is too slow for its channel", causes.SLOW_PATH,
         "66 ms late at ops-dc: the links of its path take 260 ms, longer than there is time.",
         [late("washington", "ops-dc", queued=265, done=266),
          arrived("washington", ("seattle", 0.0), ("denver", 111.0), age=264),
          hop("seattle", "denver", ("seattle", 0.0), left=1, budget=-30),
          hop("denver", "washington", ("seattle", 0.0), ("denver", 111.0), left=114, budget=-30)]),
    Case("sent again after a loss", causes.SENT_AGAIN,
         "380 ms late at ops-dc: seattle sent it again after 500 ms, as nobody had acknowledged "
         "it.",
         [late("washington", "ops-dc", queued=578, done=580),
          arrived("washington", ("seattle", 500.0), age=577),
          hop("seattle", "washington", ("seattle", 0.0), left=2),
          hop("seattle", "washington", ("seattle", 500.0), left=501)]),
    Case("no path at first", causes.HANDLED_LATE,
         "180 ms late at ops-dc: it took 300 ms at seattle until it was queued.",
         [late("washington", "ops-dc", queued=378, done=380),
          arrived("washington", ("seattle", 300.0), age=377),
          hop("seattle", "washington", ("seattle", 300.0), left=301)]),
    # Expired.
    Case("expired in an outbox", causes.QUEUED,
         "Expired for desk, due within 200 ms: it waited 199 ms at seattle behind policy Alarms "
         "(29 events).",
         [expired("seattle", "desk", queued=1, done=200)], behind=[ALARMS]),
    Case("expired, as its link is too slow", causes.CLIENT_LINK,
         "Expired for desk, due within 200 ms: its 12 KB take 320 ms at 300 kbit/s.",
         [expired("seattle", "desk", queued=1, done=40, size=12_000, sending_us=320_000)]),
    Case("expired, as its link is busy", causes.CLIENT_LINK,
         "Expired for desk, due within 200 ms: its link of 300 kbit/s is busy with earlier events "
         "for 140 ms or more.",
         [expired("seattle", "desk", queued=1, done=20, size=1_500, sending_us=40_000)]),
    Case("expired at a distant node's client", causes.QUEUED,
         "Expired for ops-dc, due within 200 ms: it waited 106 ms at denver for the link to "
         "washington.",
         [expired("washington", "ops-dc", queued=235, done=236), *STORY[1:]]),
    Case("expired on its way", causes.LOST,
         "Expired at denver on its way to other nodes, after 210 ms.",
         [at("denver", "other nodes", EXPIRED, done=210, queued=210, detail="deadline passed"),
          FIRST_HOP]),
    # Shaped and replaced.
    Case("made smaller", causes.SHAPED,
         "Made smaller for patrol-1 by policy Thin-Link, 60.6 KB to 19.6 KB: it arrived after "
         "168 ms.",
         [at("seattle", "patrol-1", SHAPED, done=168, size=19_600, policy="Thin-Link",
             detail=shape_detail(60_600, "scaled to 640x480"))]),
    Case("made smaller, and still late", causes.QUEUED,
         "30 ms late at patrol-1, though made smaller (60.6 KB to 19.6 KB): it waited 229 ms at "
         "seattle until its client or link took it.",
         [at("seattle", "patrol-1", SHAPED, queued=1, done=230, size=19_600,
             detail=shape_detail(60_600, deadline_detail(200)))]),
    Case("made smaller in time", causes.SHAPED,
         "Made smaller for patrol-1, 60.6 KB to 19.6 KB: it arrived in time, after 68 ms.",
         [at("seattle", "patrol-1", SHAPED, done=68, size=19_600,
             detail=shape_detail(60_600, ""))], due_ms=200),
    Case("shaping that took long", causes.SLOW_SHAPING,
         "330 ms late at patrol-1, though made smaller (60.6 KB to 19.6 KB): it took 500 ms at "
         "seattle until it was made smaller and queued.",
         [at("seattle", "patrol-1", SHAPED, queued=500, done=530, size=19_600,
             detail=shape_detail(60_600, deadline_detail(200)))]),
    Case("replaced", causes.REPLACED,
         "Replaced for desk-3 after 94 ms in its outbox: a newer event with the same key "
         "(1GXVF531G7022) took its place.",
         [at("seattle", "desk-3", REPLACED, queued=1, done=95,
             detail=replacement_detail(1_763_000_000_000_000_066))]),
    Case("replaced by an unknown event", causes.REPLACED,
         "Replaced for desk-3 after 94 ms in its outbox: a newer event with the same key took its "
         "place.",
         [at("seattle", "desk-3", REPLACED, queued=1, done=95)]),
    # Shed and refused.
    Case("its queue was full", causes.QUEUE_FULL,
         "Shed for desk after 900 ms: its queue was full.",
         [at("seattle", "desk", SHED, queued=1, done=901, detail="queue full")]),
    Case("the client was away", causes.AWAY,
         "Shed for desk: the client was away (offline).",
         [at("seattle", "desk", SHED, done=1, detail="offline")]),
    Case("its session ended", causes.AWAY,
         "Shed for desk: the client was away (session ended).",
         [at("seattle", "desk", SHED, done=1, detail="session ended")]),
    Case("refused by size", causes.REFUSED,
         "Refused for desk: packet too large.",
         [at("seattle", "desk", REFUSED, detail="packet too large")]),
    Case("too much to match", causes.OVERLOAD,
         "Refused before any receiver was chosen: cpu overload.",
         [at("seattle", "", REFUSED, detail="cpu overload")]),
    Case("filtered at the source", causes.SHED,
         "Shed before any receiver was chosen: filtered.",
         [at("seattle", "", SHED, detail="filtered")]),
    # Lost between nodes.
    Case("the link went down", causes.LINK_LOST,
         "Lost at denver: the link to the next node went down.",
         [at("denver", "other nodes", SHED, queued=90, done=90, detail="link down"), FIRST_HOP]),
    Case("nobody acknowledged it", causes.LINK_LOST,
         "Lost after seattle: no node acknowledged it, though it was sent again.",
         [at("seattle", "other nodes", SHED, queued=9_000, done=9_000, detail="not acknowledged")]),
    Case("the outbox to a node was full", causes.QUEUE_FULL,
         "Lost at denver: the outbox to the next node was full.",
         [at("denver", "other nodes", SHED, queued=90, done=90, detail="queue full")]),
    Case("no path", causes.NO_PATH,
         "Lost at seattle on its way to other nodes: no route.",
         [at("seattle", "other nodes", SHED, detail="no route")]),
    Case("one of two copies was lost", causes.DELIVERED,
         "Delivered to ops-dc after 240 ms.",
         [at("seattle", "other nodes", SHED, detail="link down"),
          at("washington", "ops-dc", queued=235, done=240),
          arrived("washington", *ACROSS, age=233)]),
    Case("a second copy was not needed", causes.DELIVERED,
         "Delivered to ops-dc after 240 ms.",
         [at("washington", "ops-dc", queued=235, done=240),
          arrived("washington", *ACROSS, age=233),
          hop("orlando", "washington", ("seattle", 0.0), ("orlando", 90.0), left=100)]),
    # Not decided yet, or nobody's.
    Case("it waits for a limit", causes.WAITING,
         "Still waiting for patrol-1 after 5,000 ms: the client's limit of 16 kbit/s, 1.5 s more "
         "at least, behind 2 events.",
         waiting=[waiting("patrol-1", CLIENT_LIMIT, limit_bps=16_000, wait_ms=1_500,
                          ahead=(Ahead(importance=3, events=2, bytes=2_000),))]),
    Case("it waits for a client", causes.WAITING,
         "Still waiting for patrol-1 and 1 more after 5,000 ms: the client, which has 1 event to "
         "acknowledge first.",
         waiting=[waiting("patrol-1", ACKNOWLEDGEMENT, unacknowledged=1),
                  waiting("b", CONNECTION, queued_ms=CLOCKS["seattle"] + 4_000)]),
    Case("it waits at one of several", causes.WAITING,
         "Still waiting for b after 5,000 ms: its turn.",
         [at("seattle", "desk", done=3)], waiting=[waiting("b", TURN)]),
    Case("it waits for the CPU", causes.WAITING,
         "Still waiting for all its receivers after 5,000 ms: the CPU: it is not matched with "
         "subscriptions yet.",
         waiting=[waiting("", CPU)]),
    Case("another destination has lost it", causes.QUEUE_FULL,
         "Shed for desk after 3 ms: its queue was full.",
         [at("seattle", "desk", SHED, done=3, detail="queue full")],
         waiting=[waiting("b", TURN)]),
    Case("it is on its way", causes.ON_ITS_WAY,
         "It was sent to denver; what became of it there is not known here.",
         [FIRST_HOP]),
    Case("it came to a node without receivers", causes.ON_ITS_WAY,
         "It came to denver, where it has no outcome at a client yet.",
         [FIRST_HOP, arrived("denver", ("seattle", 0.0), age=86)]),
    Case("nobody subscribed", causes.NOBODY,
         "Nobody had subscribed to it: it was kept, and went to no client."),
]  # fmt: skip


def facts(case: Case) -> EventFacts:
    return EventFacts(
        known=case.known, waiting=case.waiting, behind=case.behind, due_ms=case.due_ms
    )


def test_there_are_fifty() -> None:
    assert len({each.name for each in CASES}) == len(CASES) >= 50
    assert {each.cause for each in CASES} == set(causes.CAUSES)


@pytest.mark.parametrize("case", CASES, ids=[each.name for each in CASES])
def test_the_cause(case: Case) -> None:
    found = verdict_of(facts(case))
    assert found.cause == case.cause
    assert found.sentence == case.sentence


def test_the_story_of_the_console() -> None:
    """The waterfall against the budgets of its hops, which add up to the deadline."""
    path = path_to(STORY[0], STORY)
    assert (path.took_ms, path.due_ms) == (242, 200)
    told = [(hop.node, hop.to, hop.budget_from_ms, hop.budget_ms, hop.over_ms) for hop in path.hops]
    assert told == [
        ("seattle", "denver", 0, 137, -51),
        ("denver", "washington", 137, 107, 40),
        ("washington", "ops-dc", 244, 0, 9),
    ]
    steps = [(each.kind, each.from_ms, each.until_ms) for hop in path.hops for each in hop.steps]
    assert steps == [
        ("outbox", 0, 15), ("link", 15, 86),
        ("outbox", 86, 192), ("link", 192, 233),
        ("handling", 233, 235), ("outbox", 235, 242),
    ]  # fmt: skip
    verdict = verdict_of(EventFacts(known=STORY, behind=[ALARMS]))
    assert (verdict.node, verdict.policy, verdict.over_ms) == ("denver", "Alarms", 42)


def test_the_wait_to_blame_names_the_ledger_to_search() -> None:
    found = longest_wait(judge(EventFacts(known=STORY)), STORY)
    assert found is not None
    assert (found.node, found.destination, found.queueing_ms) == ("denver", "node washington", 106)
    local = [late("seattle", "desk", queued=3, done=243)]
    assert longest_wait(judge(EventFacts(known=local)), local) is local[0]
    handled = [late("seattle", "desk", queued=500, done=520)]
    assert longest_wait(judge(EventFacts(known=handled)), handled) is None


def test_behind_are_those_that_left_meanwhile() -> None:
    waited = late("seattle", "desk", queued=10, done=100)
    left = [
        at("seattle", "desk", done=9, policy="before", number=1),
        *(at("seattle", "desk", done=50, policy="Alarms", importance=7, number=n) for n in (2, 3)),
        at("seattle", "desk", done=99, policy="Alarms", importance=7, number=9, count=4),
        at("seattle", "desk", done=60, channel="b", number=4),
        at("seattle", "other", done=60, policy="elsewhere", number=5),
        at("seattle", "desk", SHED, done=60, policy="dropped", number=6),
        at("seattle", "desk", done=101, policy="after", number=7),
        waited,
    ]
    assert behind_of(waited, left) == (
        Behind(policy="Alarms", importance=7, channel="uav/imagery", events=6, bytes=6_000),
        Behind(policy="", importance=3, channel="b", events=1, bytes=1_000),
    )


def test_copies_that_were_not_needed() -> None:
    second = hop("orlando", "washington", ("seattle", 0.0), ("orlando", 90.0), left=100)
    assert unneeded_copies([*STORY, second]) == [("orlando", "washington")]
    assert unneeded_copies(STORY) == []


def test_the_worst_destination_first() -> None:
    outcomes = [
        at("seattle", "fine", done=1),
        at("seattle", "smaller", SHAPED, done=1),
        late("seattle", "late", done=300),
        late("seattle", "later", done=400),
        expired("seattle", "gone", done=200),
        at("seattle", "no", REFUSED),
        FIRST_HOP,
    ]
    names = [each.destination for each in deliveries(outcomes)]
    assert names == ["no", "gone", "later", "late", "smaller", "fine"]


@pytest.mark.parametrize("name", ["x" * 5_000, "", "node", "by a 1.0 ms"])
def test_names_are_external_input(name: str) -> None:
    found = verdict_of(EventFacts(known=[late("seattle", name, queued=1, done=500)]))
    assert len(found.sentence) < 300
    assert found.cause == causes.QUEUED
