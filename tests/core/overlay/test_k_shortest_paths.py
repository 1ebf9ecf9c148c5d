from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.overlay_maps import Reports, reports, tied

from accord.core.overlay.k_shortest_paths import OverlayPath, shortest_paths
from accord.core.overlay.link_state import LinkStateMap

FIVE_CITIES_MS = {
    ("seattle", "denver"): 25,
    ("seattle", "los angeles"): 30,
    ("los angeles", "denver"): 20,
    ("denver", "washington"): 35,
    ("denver", "orlando"): 50,
    ("los angeles", "orlando"): 60,
    ("orlando", "washington"): 20,
}


def map_of(links_ms: dict[tuple[str, str], int]) -> LinkStateMap:
    built = LinkStateMap()
    for (one, other), latency_ms in links_ms.items():
        built.set_link(one, other, latency_ms * 1_000, 0.0, True, 0.0)
        built.set_link(other, one, latency_ms * 1_000, 0.0, True, 0.0)
    return built


def found(paths: list[OverlayPath]) -> list[tuple[str, int]]:
    return [(" ".join(node[0] for node in path.nodes), path.delay_us // 1_000) for path in paths]


def test_the_shortest_paths_in_their_order() -> None:
    paths = shortest_paths(map_of(FIVE_CITIES_MS), "seattle", "washington", 4)
    assert found(paths) == [("s d w", 60), ("s l d w", 85), ("s d o w", 95), ("s l o w", 110)]


def test_none_takes_longer_than_the_bound() -> None:
    cities = map_of(FIVE_CITIES_MS)
    assert found(shortest_paths(cities, "seattle", "washington", 16, 60_000)) == [("s d w", 60)]
    assert shortest_paths(cities, "seattle", "washington", 16, 59_999) == []
    assert len(shortest_paths(cities, "seattle", "washington", 16)) == 7


def test_a_failed_node_is_gone_round() -> None:
    cities = map_of(FIVE_CITIES_MS)
    cities.drop_node("denver")
    assert found(shortest_paths(cities, "seattle", "washington", 4)) == [("s l o w", 110)]


def test_what_takes_as_long_with_fewer_hops_comes_first() -> None:
    links_ms = {("a", "b"): 10, ("b", "z"): 10, ("a", "z"): 20, ("a", "c"): 10, ("c", "z"): 10}
    paths = shortest_paths(map_of(links_ms), "a", "z", 9)
    assert found(paths) == [("a z", 20), ("a b z", 20), ("a c z", 20)]


def test_nodes_cost_what_they_need_for_the_class_of_channels() -> None:
    links = map_of({("a", "b"): 10, ("b", "z"): 10, ("a", "c"): 12, ("c", "z"): 12})
    links.set_node("b", {"video": 9_000}, 0.0)
    links.set_node("z", {"video": 1_000, "": 3_000}, 0.0)
    assert found(shortest_paths(links, "a", "z", 1)) == [("a b z", 23)]
    assert found(shortest_paths(links, "a", "z", 1, channel_class="video")) == [("a c z", 25)]


@pytest.mark.parametrize(("source", "target"), [("a", "a"), ("a", "nobody"), ("nobody", "a")])
def test_there_may_be_none(source: str, target: str) -> None:
    assert shortest_paths(map_of({("a", "b"): 1}), source, target, 4) == []


def test_none_are_wanted() -> None:
    assert shortest_paths(map_of({("a", "b"): 1}), "a", "b", 0) == []


def brute_force(known: Reports, k: int, bound_us: int, channel_class: str) -> list[OverlayPath]:
    """By delay, then hops, then names from the end."""
    ordered: list[tuple[int, int, tuple[str, ...]]] = []
    for nodes in known.simple_paths("a", "d"):
        delay_us = known.delay_us(nodes, channel_class)
        assert delay_us is not None
        if not bound_us or delay_us <= bound_us:
            ordered.append((delay_us, len(nodes), nodes[::-1]))
    return [OverlayPath(back[::-1], delay_us) for delay_us, _, back in sorted(ordered)[:k]]


@given(
    reports(),
    st.integers(1, 20),
    st.sampled_from((0, 1, 3, 5, 1_002)),
    st.sampled_from(("", "video")),
)
def test_brute_force_finds_the_same(
    known: Reports, k: int, bound_us: int, channel_class: str
) -> None:
    links = known.map()
    paths = shortest_paths(links, "a", "d", k, bound_us, channel_class=channel_class)
    assert paths == brute_force(known, k, bound_us, channel_class)
    for path in paths:
        assert path.delay_us == links.delay_us(path.nodes, channel_class)


@given(reports(), st.randoms(use_true_random=False))
def test_the_order_in_which_links_became_known_does_not_show(
    known: Reports, random: Random
) -> None:
    links = list(known.links.items())
    random.shuffle(links)
    shuffled = Reports(dict(links), known.nodes)
    assert shortest_paths(shuffled.map(), "a", "d", 6) == shortest_paths(known.map(), "a", "d", 6)


def test_many_paths_through_a_large_map() -> None:
    """A grid where all links take the same time: every path that only goes down or right ties."""
    side = 30
    grid = LinkStateMap()
    for row in range(side):
        for column in range(side):
            for other in ((row + 1, column), (row, column + 1)):
                if max(other) < side:
                    one, end = f"{row:02}.{column:02}", f"{other[0]:02}.{other[1]:02}"
                    grid.set_link(one, end, 1_000, 0.0, True, 0.0)
                    grid.set_link(end, one, 1_000, 0.0, True, 0.0)
    paths = shortest_paths(grid, "00.00", f"{side - 1}.{side - 1}", 16)
    assert len({path.nodes for path in paths}) == 16
    for path in paths:
        assert path.delay_us == (len(path.nodes) - 1) * 1_000 == 2 * (side - 1) * 1_000
        assert len(set(path.nodes)) == len(path.nodes)
    backwards = [path.nodes[::-1] for path in paths]
    assert backwards == sorted(backwards)


@pytest.mark.parametrize("seed", range(30))
def test_brute_force_finds_the_same_where_many_tie(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    for _ in range(10):
        known = tied(random)
        assert shortest_paths(known.map(), "a", "d", 100) == brute_force(known, 100, 0, "")
