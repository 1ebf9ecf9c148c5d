"""The acts are ones that a node takes, and what is told of them comes from what was measured."""

from __future__ import annotations

import json
from collections import Counter

from accord.apps.targeting.cast import CAS_IMAGE, IMAGERY, REPORT
from accord.apps.targeting.meters import Line, Phase
from accord.apps.targeting.story import LIMIT_KBPS, acts, narrate, opening_policies
from accord.core.qos.book import Book, policy_from, read_book, with_policy, with_settings
from accord.core.qos.entity import Entity
from accord.core.qos.grants import Grant
from accord.core.qos.policies import Policies


def books() -> list[Book]:
    """What counts in each act."""
    book, found = Book(), []
    for act in acts():
        for change in act.changes:
            if isinstance(change.body, str):
                book = read_book(change.body)
            elif change.method == "PATCH":
                book = with_settings(book, change.body)
            else:
                name = change.path.removeprefix("/")
                body = json.loads(json.dumps(change.body))
                book = with_policy(book, policy_from(body, name=name))
        found.append(book)
    return found


def granted(book: Book, channel: str, publisher: str) -> Grant:
    view = Policies(book).view(channel)
    display = Entity("DISPLAY", "", (), "node")
    return view.grant(view.publisher(Entity(publisher, "", (), "node")), view.receiver(display))


def test_the_policies_are_those_of_the_paper() -> None:
    names = {policy.name for policy in read_book(opening_policies()).policies}
    assert names >= {"AllUAS", "BFTrack", "Report", "UASImgSub", "Patrol-1-Report"}


def test_five_importances_to_begin_with() -> None:
    book = books()[0]
    pairs = [(IMAGERY, "UAV-2"), (CAS_IMAGE, "CAS-1"), (REPORT, "PATROL-1"), (REPORT, "PATROL-2"),
             ("uav/tasking", "C2"), ("blue-force/tracking", "PATROL-1")]  # fmt: skip
    assert [granted(book, *pair).importance for pair in pairs] == [2, 3, 4, 4, 5, 6]


def test_each_act_changes_what_it_says() -> None:
    first, second, third, fourth = books()
    assert first.bandwidth_bps is None
    assert second.bandwidth_bps == LIMIT_KBPS * 1_000
    assert granted(second, IMAGERY, "UAV-1").shaping in {"", "none"}
    assert granted(third, IMAGERY, "UAV-1").shaping == "scaling"
    assert granted(third, IMAGERY, "UAV-1").deadline_ms == 5_000
    assert granted(fourth, IMAGERY, "UAV-1").importance == 6
    assert granted(fourth, IMAGERY, "UAV-1").shaping == "scaling"
    assert granted(fourth, CAS_IMAGE, "CAS-1").importance == 1
    assert [granted(fourth, REPORT, who).importance for who in ("PATROL-1", "PATROL-2")] == [7, 4]


def phase(name: str, *lines: Line, seconds: float = 10.0) -> Phase:
    by_key = {(line.channel, line.source): line for line in lines}
    return Phase(name, 0, 0.0, by_key, seconds, sum(line.received_bytes for line in lines))


def line(source: str, *, lost: int, latency_s: float, importance: int = 2) -> Line:
    return Line(
        IMAGERY, source, offered=10, offered_bytes=500_000, received=10 - lost,
        received_bytes=(10 - lost) * 50_000, latencies_s=[latency_s] * (10 - lost),
        dropped=Counter({"expired": lost} if lost else {}), importance=importance, policy="AllUAS",
    )  # fmt: skip


def test_nothing_lost_is_said_in_one_line() -> None:
    words = narrate(phase("1", line("UAV-1", lost=0, latency_s=0.004)), None)
    rates = "400 kbit/s offered, 400 received, nothing dropped"
    assert words == [f"{rates}; p95 from 4 ms (uav/imagery) to 4 ms (uav/imagery)."]


def test_losses_have_a_cause_and_a_policy_and_are_compared() -> None:
    before = phase("1", line("UAV-1", lost=0, latency_s=0.004))
    other = Line(REPORT, "PATROL-1", offered=2, received=2, latencies_s=[0.1, 0.1], importance=4)
    words = narrate(phase("2", line("UAV-1", lost=4, latency_s=4.5), other), before)
    assert "uav/imagery loses 4 of 10: 4 expired (importance 2, policy AllUAS)." in words
    assert "The other 1 channels, importance 4 and above, lose nothing." in words
    assert "uav/imagery gets 60% through, after 100%." in words
    assert "p95: uav/imagery 4.5 s after 4 ms." in words


def test_shapes_and_rivals_are_told() -> None:
    shaped = line("UAV-1", lost=0, latency_s=1.0)
    shaped.shaped, shaped.shaped_from, shaped.shaped_to = 5, 250_000, 100_000
    rival = line("UAV-2", lost=0, latency_s=0.3, importance=7)
    words = narrate(phase("3", shaped, rival), None)
    made = "5 of 20 images that arrived were made smaller, on average from 50 KB to 20 KB"
    assert f"uav/imagery: {made}." in words
    assert (
        "On uav/imagery: UAV-2 (importance 7) p95 300 ms, UAV-1 (importance 2) p95 1.0 s." in words
    )
