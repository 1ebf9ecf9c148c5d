"""Who loses more than links and who takes detours are found, and neither hides the other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from accord.core.channels.trees.tree import Tree
from accord.sim.best_effort import LossChecker, LossStatistics, PathChecker
from accord.sim.links import LinkModel
from accord.sim.machine import Machine, Publication
from accord.sim.run import Simulation
from accord.sim.topology import Topology, line, ring
from tests.sim.machines import Silent

LINE = Tree(("n0", "n1", "n2", "n3"), (0, 1, 2))
MEMBERS = ("n1", "n2", "n3")
SINCE_US = dict.fromkeys(MEMBERS, 0)


def a_world(topology: Topology) -> tuple[Simulation, Machine]:
    world = Simulation(topology, Silent, seed=1, model=LinkModel())
    world.advance(1)
    return world, world.machine("n0")


def publication(number: int = 1, node: str = "n0", published_us: int = 0) -> Publication:
    return Publication(number, "p", node, "c", number, published_us, b"")


def a_share_checker(tree: Tree | None, loss: float = 0.3, count: int = 500) -> LossChecker:
    checker = LossChecker(loss, lambda *_: tree, SINCE_US)
    world, machine = a_world(line(4))
    checker.sampled(world, 0)
    for number in range(1, count + 1):
        checker.published(publication(number), machine, 0)
    return checker


def judge(checker: LossChecker, has: Callable[[int], list[bool]], count: int = 500) -> list[str]:
    """Subscribers are named like their nodes."""
    for number in range(1, count + 1):
        for member, has_it in zip(MEMBERS, has(number), strict=True):
            if has_it:
                checker.delivered(publication(number), member, member, 0, is_first=True)
            else:
                checker.missed(publication(number), member, member, 0)
    checker.ended(a_world(line(4))[0], 0)
    return [finding.problem for finding in checker.findings]


def along(random: Random, *chances: float) -> list[bool]:
    """Who gets it along a line, where each link lets through one with its chance."""
    has = [True]
    for chance in chances:
        has.append(has[-1] and random.random() < chance)
    return has[1:]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("loss", "count"), [(0.1, 500), (0.3, 2_000), (0.5, 4_000)])
def test_who_loses_a_tenth_more_than_links_is_found(loss: float, count: int, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    for chance, is_found in ((1 - loss, False), ((1 - loss) * 0.9, True)):
        checker = a_share_checker(LINE, loss, count)
        found = judge(checker, lambda _, at=chance: along(random, at, at, at), count)  # type: ignore[misc]
        assert any("delivered, expected" in each for each in found) is is_found


def test_who_tells_a_shorter_way_than_it_takes_is_found() -> None:
    random = Random(1)  # noqa: S311
    star = Tree(("n0", *MEMBERS), (0, 0, 0))
    assert judge(a_share_checker(star), lambda _: along(random, 0.7, 0.7, 0.7)) != []


def test_what_one_gets_more_makes_up_for_nothing_that_another_loses() -> None:
    checker = a_share_checker(LINE)
    assert judge(checker, lambda number: [number % 10 > 4, True, True]) != []
    assert [finding.node for finding in checker.findings] == ["n1"]


def test_without_loss_each_that_is_missed_is_found() -> None:
    checker = a_share_checker(LINE, 0.0)
    found = judge(checker, lambda number: [True, True, number > 1])
    assert found[0] == "n3 did not get p 1 of 0.0 s"


def test_members_to_whom_no_way_leads_are_found() -> None:
    short = Tree(("n0", "n1", "n2"), (0, 1))
    found = judge(a_share_checker(short), lambda _: [True, True, False])
    assert found[0] == "n3 did not get p 1 of 0.0 s, no way led to n3"


def test_only_who_is_told_of_when_missing_something_counts() -> None:
    checker = a_share_checker(LINE)
    checker.delivered(publication(1), "restless", "n1", 0, is_first=True)
    checker.delivered(publication(1), "n1", "n1", 0, is_first=False)
    checker.delivered(publication(1, node="n1"), "n1", "n1", 0, is_first=True)
    checker.ended(a_world(line(4))[0], 0)
    assert checker.statistics == LossStatistics()


def test_without_a_tree_ways_may_have_half_as_many_links_again() -> None:
    random = Random(1)  # noqa: S311
    good, longer = 0.7, 0.7**1.5
    for chance, is_found in ((good, False), (longer, False), (longer * 0.7, True)):
        found = judge(a_share_checker(None), lambda _, at=chance: along(random, at, at, at))  # type: ignore[misc]
        assert bool(found) is is_found


def test_runs_add_up() -> None:
    """What chance may do in one run it does not do in many."""
    assert not LossStatistics(delivered=180, expected=200, variance=40).problem
    assert LossStatistics(delivered=18_000, expected=20_000, variance=4_000).problem


def ways(tree: Tree, root: str = "n0", factor: float = 1.5) -> list[str]:
    """What is wrong with a tree on a ring of six nodes, 10 ms from each to the next."""
    world, machine = a_world(ring(6))
    checker = PathChecker(lambda *_: tree, lambda _: root, factor)
    checker.sampled(world, 0)
    for number in (1, 2):
        checker.published(publication(number), machine, 0)
    return [finding.problem for finding in checker.findings]


def test_a_tree_may_be_as_winding_as_is_promised() -> None:
    round_ = Tree(("n0", "n1", "n2", "n3", "n4"), (0, 1, 2, 3))
    assert ways(round_, factor=2.0) == []
    assert ways(round_) == ["c: 80000 µs from n0 to n4 and back, of 40000"]
    assert ways(Tree(("n0", "n1", "n5", "n4"), (0, 0, 2))) == []


def test_a_tree_begins_where_it_is_to_begin_and_goes_over_links() -> None:
    assert ways(LINE, root="n3") == ["c: the tree begins at n0, expected n3"]
    assert ways(Tree(("n0", "n2"), (0,))) == ["c: no link leads from n0 to n2"]
