"""Random nodes negotiate the truth, whatever fails; a failure says the seed that replays it.

What is checked is written in `negotiation_runs`; `scripts/negotiation_runs.py` makes as many runs
as one likes.
"""

from __future__ import annotations

import pytest

from accord.core.quality.costs import FREE
from accord.core.quality.expectations import Expectation, PropertyRequirement
from accord.core.quality.matching import MatchState
from accord.core.quality.profiles import Capability
from accord.core.quality.properties import PropertyRegistry
from tests.sim.negotiation_runs import QualityRun, run
from tests.sim.negotiation_truth import problems, skyline_among, state_among


@pytest.mark.parametrize("seed", range(36))
def test_all_nodes_come_to_what_a_global_computation_gives(seed: int) -> None:
    run(seed).check()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(193, id="what is being given back is relied on again"),
        pytest.param(857, id="a neighbour hears everything before its session is known"),
    ],
)
def test_things_that_cross_each_other(seed: int) -> None:
    run(seed, is_checking=True).check()


@pytest.mark.parametrize("seed", range(1_000, 1_003))
def test_there_is_never_a_contradiction(seed: int) -> None:
    """All invariants of all nodes, after each step."""
    run(seed, is_checking=True).check()


def test_the_runs_are_worth_something() -> None:
    totals: dict[str, int] = {}
    for seed in range(100, 106):
        quality = QualityRun(seed)
        totals["crashes"] = totals.get("crashes", 0) + quality.run().crashes
        for name, count in quality.counts().items():
            totals[name] = totals.get(name, 0) + count
    assert min(totals.values()) > 5


def test_the_truth_would_be_missed() -> None:
    """A node that is made to think something else is found."""
    quality = QualityRun(3)
    quality.run().check()
    assert list(problems(quality.nodes())) == []
    node = next(node for node in quality.nodes().values() if node.home.publishers)
    publisher, channel = next(iter(node.home.publishers))
    wish = Expectation(
        id="X", subscription="s", channel=channel, requirements=(PropertyRequirement("rate", 0.0),)
    )
    node.tell(node.quality.register(wish, now_us=node.now_us))
    assert {name for name, _ in problems(quality.nodes())} <= {node.name}
    source = node.quality.profiles.find(publisher, channel).subject.source
    node.quality.supersets.remove_local(channel, source)
    node.tell(node.quality.advance(now_us=node.now_us))
    assert any("skyline" in problem for _, problem in problems(quality.nodes()))


def rate(now: float, most: float) -> tuple[Capability, ...]:
    return (Capability("rate", 0.0, most, now, FREE),)


def test_the_truth_itself() -> None:
    found = [("a#1", "c", rate(2, 9)), ("a#1", "c", rate(2, 8)), ("b#1", "c", rate(5, 6))]
    registry = PropertyRegistry()

    def state(least: float, publishers: int) -> MatchState:
        wish = Expectation(
            id="X",
            subscription="s",
            channel="+",
            requirements=(PropertyRequirement("rate", least),),
            publishers=publishers,
        )
        return state_among(wish, found, registry)

    assert state(5, 1) is MatchState.SATISFIED
    assert state(5, 2) is MatchState.SATISFIABLE
    assert state(7, 2) is MatchState.UNSATISFIED
    scope = "c", ("rate",)
    assert skyline_among(scope, found, registry, 1) == {(2.0, 9.0), (5.0, 6.0)}
    assert skyline_among(("d", ("rate",)), found, registry, 1) == set()
