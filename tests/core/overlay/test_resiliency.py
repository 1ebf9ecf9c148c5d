from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.overlay_maps import Reports, reports, tied

from accord.core.overlay.k_shortest_paths import OverlayPath, shortest_paths
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.resiliency import MAX_PATHS, FailureProbabilities, choose, resiliency


class Known:
    """Failures of some nodes and links; nothing else fails."""

    def __init__(self, **failures: float) -> None:
        self.failures = failures

    def node_failure(self, name: str) -> float:
        return self.failures.get(name, 0.0)

    def link_failure(self, source: str, target: str) -> float:
        return self.failures.get(min(source, target) + max(source, target), 0.0)


def path(names: str, delay_us: int = 0) -> OverlayPath:
    return OverlayPath(tuple(names), delay_us)


def test_a_path_is_up_when_all_its_parts_are() -> None:
    known = Known(b=0.5, ab=0.25, bz=0.5)
    assert resiliency([path("abz")], known) == 0.5 * 0.75 * 0.5


def test_the_ends_do_not_count() -> None:
    assert resiliency([path("abz")], Known(a=0.5, z=0.9)) == 1.0
    assert resiliency([], Known()) == 0.0


def test_paths_that_share_nothing_fail_independently() -> None:
    known = Known(b=0.5, c=0.25)
    assert resiliency([path("abz"), path("acz")], known) == 1 - 0.5 * 0.25


def test_what_is_shared_counts_once() -> None:
    known = Known(b=0.5, c=0.25, ab=0.25, d=0.5)
    assert resiliency([path("abcz"), path("abdz")], known) == 0.75 * 0.5 * (1 - 0.25 * 0.5)


def test_a_link_is_the_same_in_both_directions() -> None:
    known = Known(bc=0.5)
    assert resiliency([path("abcz"), path("acbz")], known) == 0.5


def test_what_the_map_says_can_be_used() -> None:
    map_ = LinkStateMap()
    for one, other in pairwise("abz"):
        map_.set_link(one, other, 10, 0.0, True, 0.25)
        map_.set_link(other, one, 10, 0.0, True, 0.0)
    map_.set_node("b", {}, 0.5)
    assert choose(shortest_paths(map_, "a", "z", 4), 2, map_) == ([path("abz", 20)], 0.28125)


def test_resiliency_decides_and_not_what_is_apart() -> None:
    """Two paths that share a reliable node are better than one that avoids it at any price."""
    known = Known(b=0.25, c=0.25, d=0.9)
    paths = [path("asbz", 1), path("ascz", 2), path("adz", 3)]
    assert choose(paths, 2, known) == (paths[:2], 1 - 0.25 * 0.25)


def test_of_equals_the_one_with_the_lowest_delay() -> None:
    known = Known(b=0.5, c=0.5, d=0.5, e=0.5)
    paths = [path("abz", 4), path("acz", 1), path("adz", 3), path("aez", 2)]
    chosen, value = choose(paths, 2, known)
    assert chosen == [paths[1], paths[3]]
    assert value == 0.75
    assert choose(paths, 3, Known())[0] == paths[1:]


def test_of_equals_also_where_the_best_path_alone_is_in_neither() -> None:
    """The path over p and q is the best, with d it is as good as the other two are together."""
    down = (1 - 0.875 * 0.75) ** 2
    known = Known(p=0.125, q=0.125, b=0.25, c=0.25, d=down * 64 / 15)
    paths = [path("apqz", 9), path("adz", 9), path("apbz", 1), path("aqcz", 2)]
    assert resiliency(paths[:2], known) == pytest.approx(resiliency(paths[2:], known), abs=1e-14)
    assert choose(paths, 2, known)[0] == paths[2:]


def test_all_where_there_are_no_more() -> None:
    paths = [path("abz", 4), path("acz", 1)]
    assert choose(paths, 3, Known(b=0.5, c=0.5)) == (paths, 0.75)
    assert choose(paths, 0, Known()) == ([], 0.0)
    assert choose([], 2, Known()) == ([], 0.0)


def test_too_many_at_a_time() -> None:
    paths = [path(f"a{name}z") for name in "bcdefghijk"]
    with pytest.raises(ValueError, match=f"expected at most {MAX_PATHS} at a time, got 9"):
        choose(paths, 9, Known())
    with pytest.raises(ValueError, match="got 10"):
        resiliency(paths, Known())


def exact(paths: list[OverlayPath], failures: FailureProbabilities) -> Fraction:
    """By looking at each state that all parts can be in."""
    parts: dict[str, Fraction] = {}
    needs: list[list[str]] = []
    for each in paths:
        needs.append([])
        for node in each.nodes[1:-1]:
            parts[node] = Fraction(failures.node_failure(node))
            needs[-1].append(node)
        for one, other in pairwise(each.nodes):
            name = f"{min(one, other)}-{max(one, other)}"
            parts[name] = Fraction(failures.link_failure(one, other))
            needs[-1].append(name)
    return _weigh(list(parts.items()), needs)


def _weigh(parts: list[tuple[str, Fraction]], needs: list[list[str]]) -> Fraction:
    """`needs` are of the paths that are not down yet."""
    if not needs:
        return Fraction(0)
    if not parts:
        return Fraction(1)
    (name, down), rest = parts[0], parts[1:]
    total = Fraction(0)
    if down < 1:
        total += (1 - down) * _weigh(rest, needs)
    if down > 0:
        total += down * _weigh(rest, [need for need in needs if name not in need])
    return total


def brute_force(
    paths: list[OverlayPath], n: int, failures: FailureProbabilities
) -> tuple[Fraction, int]:
    """The highest resiliency, and the lowest delay in all with it."""
    best = max(
        (exact(list(some), failures), -sum(each.delay_us for each in some))
        for some in combinations(paths, n)
    )
    return best[0], -best[1]


@given(reports(5), st.integers(1, 3))
def test_brute_force_finds_none_better(known: Reports, n: int) -> None:
    paths = shortest_paths(known.map(), "a", "d", 7)
    chosen, value = choose(paths, n, known)
    assert len(chosen) == min(n, len(paths))
    if chosen:
        # The failures are such that nothing is rounded.
        assert value == resiliency(chosen, known)
        assert Fraction(value) == exact(chosen, known)
        assert (Fraction(value), sum(each.delay_us for each in chosen)) == brute_force(
            paths, len(chosen), known
        )


@pytest.mark.parametrize("seed", range(12))
def test_nor_with_failures_of_any_size(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    known = Reports()
    for one in "abcdef":
        for other in "abcdef":
            if one != other:
                known.links[one, other] = (random.randrange(1, 9), True, random.random() ** 3)
        known.nodes[one] = ({}, random.random() ** 3)
    paths = shortest_paths(known.map(), "a", "d", 16)
    for n in (2, 3):
        chosen, value = choose(paths, n, known)
        best = max(resiliency(some, known) for some in combinations(paths, n))
        assert value == pytest.approx(best, abs=1e-12)
        assert value == pytest.approx(float(exact(chosen, known)), abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_nor_where_many_tie(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    for _ in range(10):
        known = tied(random)
        paths = shortest_paths(known.map(), "a", "d", 9)
        for n in range(1, min(3, len(paths)) + 1):
            chosen, value = choose(paths, n, known)
            best = max(
                (resiliency(some, known), -sum(each.delay_us for each in some))
                for some in combinations(paths, n)
            )
            assert (value, -sum(each.delay_us for each in chosen)) == best


@given(reports(5), st.data())
def test_one_path_more_never_lowers_it(known: Reports, data: st.DataObject) -> None:
    paths = shortest_paths(known.map(), "a", "d", 6)
    for count in range(1, len(paths)):
        some = data.draw(st.permutations(paths))[: count + 1]
        assert resiliency(some, known) >= resiliency(some[:-1], known) - 1e-12


def test_the_effort_is_bounded() -> None:
    """Sixty ways that are all alike but for their delays: far too many combinations for all."""
    names = [chr(ord("Α") + number) for number in range(60)]
    known = Known(**dict.fromkeys(names, 0.5), **{f"a{name}": 0.01 for name in names})
    paths = [OverlayPath(("a", name, "z"), number) for number, name in enumerate(names)]
    chosen, value = choose(paths, MAX_PATHS, known)
    assert chosen == paths[:MAX_PATHS]
    assert value == pytest.approx(1 - (1 - 0.5 * 0.99) ** MAX_PATHS)
