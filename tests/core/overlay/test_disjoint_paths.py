from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.overlay_maps import Reports, reports

from accord.core.overlay.disjoint_paths import are_disjoint, disjoint_paths, most_disjoint_path
from accord.core.overlay.k_shortest_paths import OverlayPath, shortest_paths
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.resiliency import choose


def map_of(links_ms: dict[str, int]) -> LinkStateMap:
    """Links by the letters of their ends."""
    built = LinkStateMap()
    for ends, latency_ms in links_ms.items():
        for source, target in ((ends[0], ends[1]), (ends[1], ends[0])):
            built.set_link(source, target, latency_ms * 1_000, 0.0, True, 0.01)
    return built


# Two clusters of nodes that are near each other, with a short link between them and a long one.
CLUSTERS = {f"{one}{other}": 1 for group in ("abcdef", "uvwxyz") for one in group for other in group
            if one < other} | {"fu": 20, "ez": 30}  # fmt: skip


def test_the_shortest_paths_may_all_go_over_one_link() -> None:
    clusters = map_of(CLUSTERS)
    shortest = shortest_paths(clusters, "a", "w", 16)
    assert all("fu" in "".join(path.nodes) for path in shortest)
    assert not are_disjoint(choose(shortest, 2, clusters)[0])
    other = most_disjoint_path(clusters, shortest[:1])
    assert other == OverlayPath(("a", "e", "z", "w"), 32_000)
    assert are_disjoint([shortest[0], other])


def test_a_detour_keeps_to_the_bound() -> None:
    clusters = map_of(CLUSTERS)
    first = shortest_paths(clusters, "a", "w", 1)[0]
    assert most_disjoint_path(clusters, [first], 32_000) is not None
    over_the_same = most_disjoint_path(clusters, [first], 31_999)
    assert over_the_same is not None
    assert over_the_same.delay_us == 24_000, "as much else as possible is different"
    assert most_disjoint_path(clusters, [first], 21_999) is None


def test_a_first_path_that_is_in_the_way_of_all_others_is_replaced() -> None:
    """The shortest path takes a link of each of the only two that are apart."""
    links = map_of({"ab": 1, "bc": 1, "cz": 1, "bz": 5, "ac": 5})
    first = shortest_paths(links, "a", "z", 1)[0]
    assert first.nodes == ("a", "b", "c", "z")
    found = [first, *disjoint_paths(links, first, 1)]
    assert [path.nodes for path in choose(found, 2, links)[0]] == [
        ("a", "b", "z"),
        ("a", "c", "z"),
    ]


def test_where_there_is_one_way_only_there_is_no_detour() -> None:
    line = map_of({"ab": 1, "bz": 1})
    first = shortest_paths(line, "a", "z", 1)[0]
    assert disjoint_paths(line, first, 2) == []
    line.drop_node("b")
    assert most_disjoint_path(line, [first]) is None


def shared(path: tuple[str, ...], avoided: tuple[str, ...]) -> int:
    links = {frozenset(ends) for ends in pairwise(avoided)}
    nodes = set(avoided[1:-1])
    return sum(frozenset(ends) in links for ends in pairwise(path)) + sum(
        node in nodes for node in path[1:-1]
    )


@given(reports(), st.sampled_from((0, 1, 3, 5, 1_002)))
def test_brute_force_finds_nothing_that_shares_less(known: Reports, bound_us: int) -> None:
    links = known.map()
    paths = [
        (shared_parts, delay_us)
        for first in shortest_paths(links, "a", "d", 1)
        for nodes in known.simple_paths("a", "d")
        for shared_parts in (shared(nodes, first.nodes),)
        for delay_us in (known.delay_us(nodes),)
        if delay_us is not None and (not bound_us or delay_us <= bound_us)
    ]
    for first in shortest_paths(links, "a", "d", 1):
        found = most_disjoint_path(links, [first], bound_us)
        if found is None:
            assert not paths
        else:
            assert (shared(found.nodes, first.nodes), found.delay_us) == min(paths)
            assert len(set(found.nodes)) == len(found.nodes)
            assert links.delay_us(found.nodes) == found.delay_us
