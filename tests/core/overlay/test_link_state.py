from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.overlay_maps import LATENCIES_US, Reports, failures

from accord.core.overlay.link_state import LinkStateMap

NODES = ("a", "b", "c")
PAIRS = [(one, other) for one in NODES for other in NODES if one != other]


def connect(
    map_: LinkStateMap, one: str, other: str, latency_us: int = 10, failure: float = 0.0
) -> None:
    map_.set_link(one, other, latency_us, 0.0, True, failure)
    map_.set_link(other, one, latency_us, 0.0, True, failure)


def test_a_link_counts_where_both_ends_say_it_is_up() -> None:
    map_ = LinkStateMap()
    map_.set_link("a", "b", 10, 0.0, True, 0.0)
    assert map_.latency_us("a", "b") is None
    map_.set_link("b", "a", 12, 0.5, True, 0.0)
    assert (map_.latency_us("a", "b"), map_.latency_us("b", "a")) == (10, 12)
    link = map_.link("b", "a")
    assert link is not None
    assert link.loss == 0.5
    map_.set_link("a", "b", 10, 0.0, False, 0.0)
    assert map_.latency_us("a", "b") is map_.latency_us("b", "a") is None


def test_a_path_takes_what_its_links_and_the_nodes_it_enters_take() -> None:
    map_ = LinkStateMap()
    connect(map_, "a", "b", 10)
    connect(map_, "b", "c", 20)
    for name in "abc":
        map_.set_node(name, {"": 3, "video": 100}, 0.0)
    assert map_.delay_us(("a", "b", "c")) == 36
    assert map_.delay_us(("a", "b", "c"), "video") == 230
    assert map_.delay_us(("a", "b"), "text") == 10
    assert map_.delay_us(("a", "c")) is None
    assert map_.delay_us(("a",)) == 0


def test_changes_are_told_from_any_version_on() -> None:
    map_ = LinkStateMap()
    assert map_.changed_since(0) == []
    connect(map_, "a", "b")
    first = map_.version
    assert sorted(map_.changed_since(0) or []) == [("a", "b"), ("b", "a")]
    connect(map_, "b", "c")
    second = map_.version
    map_.set_link("a", "b", 11, 0.0, True, 0.0)
    assert map_.changed_since(second) == [("a", "b")]
    assert sorted(map_.changed_since(first) or []) == [("a", "b"), ("b", "c"), ("c", "b")]
    assert map_.changed_since(map_.version) == []


def test_a_link_that_goes_or_comes_is_a_change_of_both_directions() -> None:
    map_ = LinkStateMap()
    connect(map_, "a", "b")
    for is_up in (False, True):
        version = map_.version
        map_.set_link("b", "a", 10, 0.0, is_up, 0.0)
        assert sorted(map_.changed_since(version) or []) == [("a", "b"), ("b", "a")]
    version = map_.version
    map_.drop_link("a", "b")
    assert sorted(map_.changed_since(version) or []) == [("a", "b"), ("b", "a")]


def test_what_is_said_again_is_no_change() -> None:
    map_ = LinkStateMap()
    connect(map_, "a", "b")
    map_.set_node("a", {"": 5}, 0.0)
    version = map_.version
    connect(map_, "a", "b")
    map_.set_node("a", {"": 5}, 0.0)
    map_.drop_link("a", "c")
    map_.drop_node("c")
    map_.set_node("c", {"": 5}, 0.25)
    map_.set_link("c", "a", 10, 0.0, True, 0.0)
    assert map_.version == version


def test_a_node_that_takes_longer_changes_the_links_that_enter_it() -> None:
    map_ = LinkStateMap()
    connect(map_, "a", "b")
    connect(map_, "b", "c")
    version = map_.version
    map_.set_node("b", {"": 5}, 0.0)
    assert sorted(map_.changed_since(version) or []) == [("a", "b"), ("c", "b")]
    map_.drop_node("c")
    version = map_.version
    map_.set_node("b", {"": 5}, 0.5)
    assert map_.changed_since(version) == [("a", "b")]


def test_who_has_slept_long_has_to_look_at_everything() -> None:
    map_ = LinkStateMap()
    connect(map_, "a", "b")
    version = map_.version
    for latency_us in range(1_000, 2_000):
        map_.set_link("a", "b", latency_us, 0.0, True, 0.0)
    assert map_.changed_since(version) is None
    assert map_.changed_since(map_.version - 500) == [("a", "b")]


def test_how_likely_a_link_fails_is_what_the_worse_end_says() -> None:
    map_ = LinkStateMap()
    connect(map_, "a", "b", failure=0.25)
    version = map_.version
    map_.set_link("b", "a", 10, 0.0, True, 0.5)
    assert map_.link_failure("a", "b") == map_.link_failure("b", "a") == 0.5
    assert sorted(map_.changed_since(version) or []) == [("a", "b"), ("b", "a")]
    assert map_.link_failure("a", "c") == 1.0
    assert map_.node_failure("a") == 0.0


def test_a_node_that_is_dropped_reports_no_links_any_more() -> None:
    map_ = LinkStateMap()
    connect(map_, "a", "b")
    connect(map_, "b", "c")
    assert map_.is_reachable("a", "c")
    map_.drop_node("b")
    assert map_.neighbours("a") == map_.neighbours("b") == []
    assert not map_.is_reachable("a", "c")
    assert map_.nodes() == ["a", "b", "c"]
    map_.set_link("b", "a", 10, 0.0, True, 0.0)
    assert map_.neighbours("a") == ["b"]
    assert [(source, target) for source, target, _ in map_.links()] == [
        ("a", "b"), ("b", "a"), ("c", "b"),
    ]  # fmt: skip


def test_distances_follow_the_map() -> None:
    map_ = LinkStateMap()
    connect(map_, "a", "b")
    before = map_.distances("a")
    assert map_.distances("a") is before
    connect(map_, "b", "c")
    after = map_.distances("a")
    assert sorted(after.costs) == ["a", "b", "c"]
    assert list(after.path_back("c")) == ["c", "b", "a"]
    for number in range(100):
        assert map_.distances(f"n{number}").source == f"n{number}"
    map_.check_invariants()


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        (("a", "a", 1, 0.0, 0.0), "link: expected two different nodes, got a twice"),
        (("a", "b", -1, 0.0, 0.0), "link a to b: latency_us: expected 0 to 68,719,476,736, got -1"),
        (("a", "b", 1 << 36, 0.0, 0.0), "latency_us: expected"),
        (("a", "b", 1, 1.5, 0.0), "link a to b: loss: expected 0 to 1, got 1.5"),
        (("a", "b", 1, 0.0, math.nan), "link a to b: failure: expected 0 to 1, got nan"),
    ],
)
def test_what_can_not_be_is_refused(link: tuple[str, str, int, float, float], problem: str) -> None:
    source, target, latency_us, loss, failure = link
    map_ = LinkStateMap()
    with pytest.raises(ValueError, match=problem):
        map_.set_link(source, target, latency_us, loss, True, failure)
    assert map_.nodes() == []


def test_nor_a_node() -> None:
    map_ = LinkStateMap()
    with pytest.raises(ValueError, match="node a: processing_us of 'video': expected 0 to"):
        map_.set_node("a", {"video": -5}, 0.0)
    with pytest.raises(ValueError, match="node a: failure: expected 0 to 1, got 2"):
        map_.set_node("a", {}, 2.0)
    assert map_.nodes() == []


class Changes(RuleBasedStateMachine):
    """Whoever keeps up by `changed_since` alone knows of all links what the map says of them."""

    def __init__(self) -> None:
        super().__init__()
        self.map = LinkStateMap()
        self.reports = Reports()
        self.version = 0
        self.known: dict[tuple[str, str], object] = dict.fromkeys(PAIRS)

    @rule(
        pair=st.sampled_from(PAIRS),
        latency_us=st.sampled_from(LATENCIES_US),
        is_up=st.booleans(),
        failure=failures(),
    )
    def set_link(self, pair: tuple[str, str], latency_us: int, is_up: bool, failure: float) -> None:
        self.map.set_link(*pair, latency_us, 0.0, is_up, failure)
        self.reports.links[pair] = (latency_us, is_up, failure)

    @rule(pair=st.sampled_from(PAIRS))
    def drop_link(self, pair: tuple[str, str]) -> None:
        self.map.drop_link(*pair)
        self.reports.links.pop(pair, None)

    @rule(
        name=st.sampled_from(NODES),
        processing_us=st.dictionaries(st.sampled_from(("", "video")), st.integers(0, 2)),
        failure=failures(),
    )
    def set_node(self, name: str, processing_us: dict[str, int], failure: float) -> None:
        self.map.set_node(name, processing_us, failure)
        self.reports.nodes[name] = (processing_us, failure)

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name: str) -> None:
        self.map.drop_node(name)
        self.reports.nodes.pop(name, None)
        for pair in PAIRS:
            if pair[0] == name:
                self.reports.links.pop(pair, None)

    @rule()
    def keep_up(self) -> None:
        changed = self.map.changed_since(self.version)
        self.version = self.map.version
        for pair in PAIRS if changed is None else changed:
            self.known[pair] = self._said(pair)
        for pair in PAIRS:
            assert self.known[pair] == self._said(pair)

    def _said(self, pair: tuple[str, str]) -> object:
        """All that a route over this link has to do with."""
        if not self.reports.counts(*pair):
            return None
        return (
            self.reports.delay_us(pair),
            self.reports.delay_us(pair, "video"),
            self.reports.link_failure(*pair),
            self.reports.node_failure(pair[1]),
        )

    @invariant()
    def says_what_was_reported(self) -> None:
        self.map.check_invariants()
        for pair in PAIRS:
            assert self.map.delay_us(pair, "video") == self.reports.delay_us(pair, "video")
            assert self.map.link_failure(*pair) == self.reports.link_failure(*pair)


TestChanges = Changes.TestCase


@given(st.lists(st.tuples(st.sampled_from(PAIRS), st.sampled_from(LATENCIES_US)), max_size=30))
def test_equal_reports_make_equal_maps(said: list[tuple[tuple[str, str], int]]) -> None:
    last = dict(said)
    one, other = LinkStateMap(), LinkStateMap()
    for pair, latency_us in said:
        one.set_link(*pair, latency_us, 0.0, True, 0.0)
    for pair, latency_us in sorted(last.items()):
        other.set_link(*pair, latency_us, 0.0, True, 0.0)
    for name in NODES:
        assert one.distances(name).costs == other.distances(name).costs
        assert one.distances(name).previous == other.distances(name).previous
