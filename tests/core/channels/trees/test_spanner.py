from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.channels.trees.tree import DOWN, Graph, build_tree, distances, graph_of, spanner
from accord.core.overlay.link_state import LinkStateMap

NODES = "abcdefgh"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    graph: Graph = {}
    for place, one in enumerate(NODES):
        for other in NODES[place + 1 :]:
            if draw(st.booleans()):
                length = draw(st.integers(1, 50))
                graph.setdefault(one, {})[other] = length
                graph.setdefault(other, {})[one] = length
    return graph


def cost(graph: Graph) -> int:
    return sum(length for ends in graph.values() for length in ends.values()) // 2


def count(graph: Graph) -> int:
    return sum(len(ends) for ends in graph.values()) // 2


@given(graphs(), st.sampled_from((1.0, 1.5, 3.0)))
def test_no_two_nodes_are_farther_apart_than_the_factor_allows(graph: Graph, factor: float) -> None:
    chosen = spanner(graph, factor)
    for root in graph:
        far, _ = distances(graph, root)
        near, _ = distances(chosen, root)
        assert far.keys() == near.keys()
        assert all(near[node] <= factor * far[node] for node in far)


@given(graphs())
def test_with_a_large_factor_it_is_the_minimum_spanning_tree(graph: Graph) -> None:
    chosen = spanner(graph, 10_000.0)
    parts = {min(distances(graph, node)[0]) for node in graph}
    assert count(chosen) == len(graph) - len(parts)
    assert cost(chosen) == _kruskal(graph)


def _kruskal(graph: Graph) -> int:
    part = {node: node for node in graph}
    total = 0
    for length, one, other in sorted(
        (length, one, other) for one, ends in graph.items() for other, length in ends.items()
    ):
        if part[one] != part[other]:
            total += length
            old = part[other]
            part = {node: part[one] if each == old else each for node, each in part.items()}
    return total


@given(graphs(), st.sets(st.sampled_from(NODES)))
def test_trees_lead_to_all_members_by_the_shortest_ways(graph: Graph, members: set[str]) -> None:
    root = "a"
    far, _ = distances(graph, root)
    tree = build_tree(graph, root, members)
    assert [each for each in sorted(members) if each in far and each not in tree.nodes] == []
    depths = {root: 0}
    for parent, child in tree.links():
        depths[child] = depths[parent] + graph[parent][child]
    assert depths == {node: far[node] for node in tree.nodes}
    inner = {parent for parent, _ in tree.links()}
    assert all(node in members or node in inner for node in tree.nodes[1:])


def test_links_that_do_not_count_are_only_a_last_resort() -> None:
    net = LinkStateMap()
    for source, target, latency_us, is_up in (
        ("a", "b", 10, True),
        ("b", "a", 30, True),
        ("b", "c", 50, True),
        ("c", "b", 50, True),
        ("c", "a", 10, False),
        ("a", "c", 10, True),
        ("c", "d", 10, True),
    ):
        net.set_link(source, target, latency_us, 0.0, is_up, 0.0)
    graph = graph_of(net)
    assert graph["a"]["b"] == graph["b"]["a"] == 40
    assert graph["a"]["c"] == graph["c"]["a"] > DOWN
    assert spanner(graph).keys() == graph.keys()
    assert build_tree(spanner(graph), "a", ["c", "d"]).links() == [
        ("a", "b"),
        ("b", "c"),
        ("c", "d"),
    ]


def test_a_factor_below_one_is_none() -> None:
    with pytest.raises(ValueError, match="expected at least 1"):
        spanner({}, 0.5)
