"""Generated networks: as they are called, connected, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.sim.topology import (
    MIN_US,
    Span,
    Topology,
    barabasi_albert,
    complete,
    geometric,
    grid,
    line,
    names,
    ring,
    star,
    waxman,
)
from accord.sim.trace import SimulationError


def degrees(topology: Topology) -> list[int]:
    return sorted(len(each) for each in topology.neighbours().values())


def test_plain_shapes() -> None:
    assert degrees(line(5)) == [1, 1, 2, 2, 2]
    assert degrees(ring(5)) == [2] * 5
    assert degrees(star(5)) == [1, 1, 1, 1, 4]
    assert degrees(complete(5)) == [4] * 5
    assert degrees(grid(3, 2)) == [2, 2, 2, 2, 3, 3]
    assert len(ring(2).spans) == 1
    assert line(1).spans == ()


def test_names_sort_as_they_count() -> None:
    assert names(11)[0] == "n00"
    assert names(1_000) == sorted(names(1_000))


@pytest.mark.parametrize("make", [geometric, waxman, barabasi_albert])
@given(count=st.integers(1, 60), seed=st.integers(0, 1 << 40))
def test_chance_never_leaves_parts_apart(
    make: Callable[[int, int], Topology], count: int, seed: int
) -> None:
    topology = make(count, seed)
    assert len(topology.nodes) == count
    assert topology.is_connected
    assert all(span.delay_us is not None and span.delay_us >= MIN_US for span in topology.spans)
    assert make(count, seed).spans == topology.spans


@pytest.mark.parametrize("make", [geometric, waxman])
def test_the_degree_is_about_as_asked_for(make: Callable[[int, int, float], Topology]) -> None:
    topology = make(200, 1, 6.0)
    assert 4.5 < 2 * len(topology.spans) / 200 < 7.5


def test_waxman_prefers_short_links() -> None:
    near, far = waxman(200, 1, 4.0, 0.05), waxman(200, 1, 4.0, 5.0)
    mean_near, mean_far = (
        sum(span.delay_us or 0 for span in each.spans) / len(each.spans) for each in (near, far)
    )
    assert mean_near < mean_far / 2


def test_some_nodes_of_barabasi_albert_have_many_links() -> None:
    topology = barabasi_albert(300, 1, 2)
    assert degrees(topology)[-1] > 20
    assert degrees(topology)[0] >= 1
    assert len(topology.spans) == 2 * 300 - 3


def test_another_seed_is_another_network() -> None:
    assert waxman(30, 1).spans != waxman(30, 2).spans


def test_parts() -> None:
    topology = Topology(
        "t", ["a", "b", "c", "d", "e"], [Span("d", "e"), Span("a", "c"), Span("e", "b")]
    )
    assert [sorted(part) for part in topology.parts()] == [["b", "d", "e"], ["a", "c"]]
    assert not topology.is_connected
    largest = topology.largest_part()
    assert (largest.nodes, len(largest.spans)) == (("b", "d", "e"), 2)
    assert largest.is_connected


@pytest.mark.parametrize(
    ("nodes", "spans", "problem"),
    [
        ([], [], "1 to 10000 nodes"),
        (["a", "a"], [], "names of nodes that differ"),
        (["a"], [Span("a", "b")], "got 'b' in one"),
        (["a"], [Span("a", "a")], "got a twice"),
        (["a", "b"], [Span("a", "b"), Span("b", "a")], "only once"),
    ],
)
def test_what_is_no_topology_is_refused(nodes: list[str], spans: list[Span], problem: str) -> None:
    with pytest.raises(SimulationError, match=problem):
        Topology("t", nodes, spans)


def test_sizes_are_bounded() -> None:
    with pytest.raises(SimulationError, match="at most 3000 nodes"):
        waxman(3_001, 1)
    with pytest.raises(SimulationError, match="1 to 10000 nodes"):
        line(10_001)
    with pytest.raises(SimulationError, match="at most 200000 links"):
        complete(1_000)
