from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accord.core.monitoring.delivery import Delivery
from accord.core.monitoring.statistics import JournalStatus, PipelineStatus
from accord.core.monitoring.top import ChannelActivity, ClientActivity, Management, NodeLoad
from accord.core.monitoring.verdict import (
    BAD,
    WARN,
    NetFaults,
    NodeFacts,
    NodeProblem,
    ProblemLog,
    find_problems,
    verdict,
)

IDLE = NodeLoad()
GOOD = Delivery(in_time=0.9996, delivered_hz=1_234.4, deadline_hz=3)
DISK = 100_000_000_000


def channel(**rates: float) -> NodeFacts:
    return NodeFacts(load=IDLE, channels=[ChannelActivity(channel="uav/1", **rates)])  # type: ignore[arg-type]


def client(**values: float) -> NodeFacts:
    activity = ClientActivity(client="patrol-1", **values)  # type: ignore[arg-type]
    return NodeFacts(load=IDLE, clients=[activity])


def journal(**values: object) -> NodeFacts:
    return NodeFacts(load=IDLE, journal=JournalStatus(**values))  # type: ignore[arg-type]


def pipeline(**values: object) -> NodeFacts:
    return NodeFacts(load=IDLE, pipeline=PipelineStatus(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "facts",
    [
        NodeFacts(load=IDLE),
        channel(delivered_hz=100, late_hz=4),
        channel(delivered_hz=0.2, late_hz=0.2),  # less than one
        channel(delivered_hz=10, replaced_hz=90, shaped_hz=10),  # as policies want it
        client(sent_kbps=299, link_kbps=300),  # nothing waits
        client(sent_kbps=199, link_kbps=300, limit_kbps=200, queued_messages=3, waiting_ms=2_000),
        client(replaced_hz=5, queued_messages=3, waiting_ms=300),  # newer values came
        client(shed_hz=5, waiting_ms=9_000, is_connected=False),  # its queue fills, as it must
        journal(disk_free_bytes=DISK // 2, disk_total_bytes=DISK),
        journal(disk_free_bytes=50 * DISK // 100, disk_total_bytes=10 * DISK),
        pipeline(state="off", problem="there is no Java"),
        pipeline(state="ready", lag_ms=5_000),
        NodeFacts(load=NodeLoad(cpu_percent=84.9)),
        NodeFacts(load=NodeLoad(sent_kbps=799), management=Management(bandwidth_bps=800_000)),
    ],
)
def test_what_is_well(facts: NodeFacts) -> None:
    assert find_problems(facts) == []


@pytest.mark.parametrize(
    ("facts", "severity", "sentence", "page"),
    [
        (channel(delivered_hz=100, late_hz=6), WARN, "uav/1: 6 % late", "/channels/uav/1"),
        (
            channel(delivered_hz=60, expired_hz=30, shed_hz=10),
            BAD,
            "uav/1: 30 % expired, 40 % not in time",
            "/channels/uav/1",
        ),
        (
            client(sent_kbps=290, link_kbps=300, queued_messages=7, waiting_ms=6_000),
            WARN,
            "patrol-1: its link is full at 300 kbit/s, 7 events waiting, 6 s behind",
            "/clients/patrol-1",
        ),
        (
            client(limit_kbps=100, queued_messages=1, waiting_ms=5_000, shed_hz=2),
            BAD,
            (
                "patrol-1: at its limit of 100 kbit/s, 2.0 events/s dropped, 1 event waiting, "
                "5 s behind"
            ),
            "/clients/patrol-1",
        ),
        (  # the limit is what holds it up, whatever it was sent just now
            client(sent_kbps=0.35, limit_kbps=100, queued_messages=12, waiting_ms=50_000),
            BAD,
            "patrol-1: at its limit of 100 kbit/s, 12 events waiting, 50 s behind",
            "/clients/patrol-1",
        ),
        (
            client(sent_kbps=3, queued_messages=2, waiting_ms=8_000),
            WARN,
            "patrol-1: 2 events waiting, 8 s behind",
            "/clients/patrol-1",
        ),
        (journal(failure="no space"), BAD, "the journal failed: no space", "/internals"),
        (
            journal(disk_free_bytes=5_000_000_000, disk_total_bytes=DISK),
            WARN,
            "the disk is nearly full: 5.0 of 100.0 GB free",
            "/internals",
        ),
        (
            journal(disk_free_bytes=1_000_000_000, disk_total_bytes=DISK),
            BAD,
            "the disk is nearly full: 1.0 of 100.0 GB free",
            "/internals",
        ),
        (pipeline(state="starting"), WARN, "the pipeline is starting", "/internals"),
        (
            pipeline(state="failed", problem="no memory"),
            BAD,
            "the pipeline is failed: no memory",
            "/internals",
        ),
        (
            pipeline(state="ready", lag_ms=90_000, lag_records=1_200),
            WARN,
            "the pipeline is 90 s behind, by 1,200 records",
            "/internals",
        ),
        (
            NodeFacts(load=IDLE, net=NetFaults(links_down=[("denver", "connection refused")])),
            BAD,
            "the link to denver is down: connection refused",
            "/network",
        ),
        (
            NodeFacts(load=IDLE, net=NetFaults(unreachable=["boston & co"])),
            BAD,
            "boston & co is not reachable",
            "/network?node=boston+%26+co",
        ),
        (
            NodeFacts(load=IDLE, net=NetFaults(failed_links=[("boston", "denver")])),
            WARN,
            "the link boston – denver failed",
            "/network?link=boston+denver",
        ),
        (
            NodeFacts(load=NodeLoad(cpu_percent=90)),
            WARN,
            "the node is overloaded: 90 % of a core",
            "/internals",
        ),
        (
            NodeFacts(
                load=NodeLoad(sent_kbps=790, queued_messages=4),
                management=Management(bandwidth_bps=800_000),
            ),
            WARN,
            "the node is at its limit of 800 kbit/s: 4 events waiting",
            "/policies",
        ),
    ],
)
def test_what_is_not_well(facts: NodeFacts, severity: str, sentence: str, page: str) -> None:
    (problem,) = find_problems(facts)
    assert (problem.severity, problem.sentence, problem.page) == (severity, sentence, page)


def test_the_worst_comes_first_and_not_too_many() -> None:
    facts = NodeFacts(
        load=NodeLoad(cpu_percent=90),
        channels=[
            ChannelActivity(channel=f"c/{number:02}", delivered_hz=100, late_hz=number)
            for number in range(100)
        ],
        journal=JournalStatus(failure="no space"),
        net=NetFaults(links_down=[(f"n{number}", "") for number in range(100)]),
    )
    found = find_problems(facts)
    assert [each.key for each in found[:2]] == ["journal", "link/n0"]
    assert found[-1].key == "cpu"
    assert next(each.key for each in found if each.channel) == "channel/c/99"
    assert len(found) <= 42


def test_the_sentence() -> None:
    one = NodeProblem(key="a", severity=BAD, subject="uav", sentence="uav: 6 % late", page="/")
    two = NodeProblem(key="b", severity=WARN, subject="b", sentence="the disk is full", page="/")
    assert verdict("alpha", [], GOOD, is_ready=True) == (
        "All is well at alpha: > 99.9 % of 1,234 events/s in time."
    )
    unbounded = verdict("alpha", [], replace(GOOD, in_time=1, deadline_hz=0), is_ready=True)
    assert (
        unbounded == "All is well at alpha: 100 % of 1,234 events/s delivered; none has a deadline."
    )
    quiet = "All is well at alpha: nothing to deliver now."
    assert verdict("alpha", [], Delivery(), is_ready=True) == quiet
    assert verdict("alpha", [one], GOOD, is_ready=True) == "uav: 6 % late."
    assert verdict("alpha", [two, one], GOOD, is_ready=True) == (
        "The disk is full, and 1 more problem."
    )
    assert verdict("alpha", [one, two, two], GOOD, is_ready=True).endswith("2 more problems.")
    assert "starting or stopping" in verdict("alpha", [one], GOOD, is_ready=False)


def test_a_problem_that_flickers_keeps_its_beginning() -> None:
    problem = NodeProblem(key="a", severity=BAD, subject="a", sentence="a", page="/")
    log = ProblemLog()
    for now_ms, is_there in ((1_000, True), (2_000, False), (9_000, True), (30_000, True)):
        log.update([problem] if is_there else [], now_ms=now_ms)
        since = [each.since_ms for each in log.problems]
        assert since == ([] if not is_there else [1_000] if now_ms < 30_000 else [30_000])


def test_a_problem_that_gets_worse_begins_anew() -> None:
    log = ProblemLog()
    since = []
    for now_ms, severity in ((1_000, WARN), (2_000, BAD), (3_000, WARN), (4_000, BAD)):
        problem = NodeProblem(key="a", severity=severity, subject="a", sentence="a", page="/")
        log.update([problem], now_ms=now_ms)
        since += [each.since_ms for each in log.problems]
    assert since == [1_000, 2_000, 2_000, 2_000]


def test_a_known_problem_stays_until_it_is_well_below_its_threshold() -> None:
    behind = client(limit_kbps=100, queued_messages=1, waiting_ms=3_000)
    late = channel(delivered_hz=100, late_hz=3)
    full = NodeFacts(
        load=NodeLoad(sent_kbps=400, queued_messages=4),
        management=Management(bandwidth_bps=800_000),
    )
    cases = ((behind, "client/patrol-1"), (late, "channel/uav/1"), (full, "limit"))
    for facts, key in cases:
        assert find_problems(facts) == []
        assert [each.key for each in find_problems(facts, {key})] == [key]
    over = client(limit_kbps=100, queued_messages=1, waiting_ms=1_000)
    assert find_problems(over, {"client/patrol-1"}) == []


RATES = st.floats(0, 1e6)


@given(RATES, RATES, RATES, RATES, RATES)
def test_shares_are_shares(
    delivered: float, late: float, expired: float, shed: float, refused: float
) -> None:
    facts = channel(
        delivered_hz=delivered + late,
        late_hz=late,
        expired_hz=expired,
        shed_hz=shed,
        refused_hz=refused,
    )
    for problem in find_problems(facts):
        shares = [
            float(word)
            for word in problem.sentence.replace("%", " ").split()
            if word.replace(".", "").isdigit()
        ]
        assert all(0 <= share <= 100 for share in shares)
