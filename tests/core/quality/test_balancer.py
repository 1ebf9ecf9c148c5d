from __future__ import annotations

import pytest

from accord.core.quality.balancer import Balancer, Candidate, UnmetDemand, target_of
from accord.core.quality.costs import ConstantCost, LinearCost, TableCost
from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.mechanisms import Direction, Effect, Mechanism, MechanismRepository
from accord.core.quality.messages import AdaptationDecision, MechanismStep
from accord.core.quality.profiles import Capability, Coupling, ScoredCapability, score_capabilities
from accord.core.quality.properties import PropertyRegistry, QualityError
from accord.core.quality.strategies import (
    STRATEGIES,
    AdaptationCase,
    AdaptationChoice,
    Cheapest,
    Option,
    Pareto,
    ParetoReleasing,
    strategy_named,
)
from accord.core.quality.upstream_requests import ProfileDependencies

REGISTRY = PropertyRegistry()
P: ProfileCopy = ("n#1", ())
Q: ProfileCopy = ("n#2", ())


class World:
    """Who relies on what, and (for the others) whether somebody else would do."""

    def __init__(self) -> None:
        self.repository = MechanismRepository(REGISTRY)
        self.reliance = ProfileDependencies()
        self.utilities: dict[str, float] = {}
        self.balancer = Balancer(
            self.repository,
            self.reliance,
            lambda who, _: not who.startswith("spare"),
            self.utilities.__getitem__,
        )

    def rely(self, who: str, copy: ProfileCopy, needs: dict[str, float], utility: float) -> None:
        self.reliance.replace(who, (copy,), needs, utility)
        self.utilities[who] = utility

    def decide(
        self, needs: dict[str, float], *candidates: Candidate, utility: float = 1.0
    ) -> AdaptationChoice:
        return self.balancer.decide(UnmetDemand("X", needs, {}, utility), candidates, Pareto())


def sensor(copy: ProfileCopy = P, *, per_unit: float = -1.0) -> Candidate:
    capabilities = (
        Capability("rate", 0.0, 60.0, 10.0, LinearCost(0.0, 1.0)),
        Capability("confidence", 0.0, 100.0, 80.0),
        Capability("latency", 5.0, 90.0, 50.0),
    )
    couplings = (Coupling("rate", "confidence", per_unit),)
    return Candidate(copy, score_capabilities(capabilities, REGISTRY), couplings)


def test_what_it_would_take_and_cost() -> None:
    verdict = World().decide({"rate": 20.0, "confidence": 50.0}, sensor())
    (option,) = verdict.options
    assert [(move.property, move.level) for move in option.moves] == [("rate", 20.0)]
    assert option.cost == 20.0
    assert option.more == 10.0 + 1.0, "and what advising costs"
    assert option.broken == ()


@pytest.mark.parametrize(
    ("who", "needed", "utility", "is_declined"),
    [
        ("other", 75.0, 1.0, True),
        ("other", 75.0, 0.9, False),
        ("other", 70.0, 9.0, False),  # enough is left
        ("spare", 75.0, 9.0, False),  # somebody else will do
    ],
)
def test_what_it_would_break_is_weighed(
    who: str, needed: float, utility: float, is_declined: bool
) -> None:
    world = World()
    world.rely(who, P, {"confidence": needed}, utility)
    verdict = world.decide({"rate": 20.0}, sensor())
    assert (verdict.decision is AdaptationDecision.CONFLICT) == is_declined
    if utility < 1.0:
        assert verdict.options[0].broken == (who,)
        assert verdict.options[0].loss == utility


def test_little_breaks_of_many_add_up() -> None:
    world = World()
    for number in range(5):
        world.rely(f"other{number}", P, {"confidence": 75.0}, 0.25)
    assert world.decide({"rate": 20.0}, sensor()).decision is AdaptationDecision.CONFLICT
    world.reliance.release("other0")
    assert world.decide({"rate": 20.0}, sensor(), utility=1.01).options[0].loss == 1.0


def test_another_candidate_that_breaks_nothing_is_taken() -> None:
    world = World()
    world.rely("other", P, {"confidence": 75.0}, 5.0)
    verdict = world.decide({"rate": 20.0}, sensor(P), sensor(Q))
    assert [option.copy for option in verdict.options] == [Q]


def test_another_mechanism_that_breaks_nothing_comes_first() -> None:
    world = World()
    world.rely("other", P, {"confidence": 75.0}, 0.5)
    for name, effects in (("dear", ()), ("rough", (Effect("confidence", 1.0),))):
        cost = 0.5 if name == "rough" else 9.0
        world.repository.define(
            Mechanism(
                name=name,
                property="latency",
                direction=Direction.DOWN,
                steps=(MechanismStep.SHAPE,),
                cost=cost,
                effects=effects,
            )
        )
    for name in ("hurry", "shape", "hurry-over-two-paths"):
        world.repository.remove(name)
    (option,) = world.decide({"latency": -20.0}, sensor()).options
    (move,) = option.moves
    assert [each.name for each in move.mechanisms] == ["dear", "rough"]
    assert option.broken == ()


def test_effects_of_several_moves_add_up() -> None:
    world = World()
    world.repository.define(
        Mechanism(
            name="hurry",
            property="latency",
            direction=Direction.DOWN,
            steps=(MechanismStep.SHAPE,),
            effects=(Effect("confidence", 0.2),),
        )
    )
    world.rely("other", P, {"confidence": 72.0}, 5.0)
    # 5 less by the rate and 6 less by the latency: each alone leaves enough.
    assert world.decide({"rate": 15.0}, sensor()).options
    assert world.decide({"latency": -20.0}, sensor()).options
    both = world.decide({"rate": 15.0, "latency": -20.0}, sensor())
    assert both.decision is AdaptationDecision.CONFLICT


def test_what_is_elsewhere_is_asked_for_and_weighed_there() -> None:
    remote = sensor(("m#1", ("m",)))
    (option,) = World().decide({"rate": 20.0}, remote).options
    assert option.moves[0].mechanisms == ()


def test_one_source_is_one_option() -> None:
    twice = sensor(("m#1", ("m",))), sensor(("m#1", ("k", "m")))
    world = World()
    question = UnmetDemand("X", {"rate": 20.0}, {}, 1.0, missing=2)
    assert world.balancer.decide(question, twice, Pareto()).decision is AdaptationDecision.FAILED
    verdict = world.balancer.decide(question, (*twice, sensor(Q)), Pareto())
    assert {option.copy[0] for option in verdict.options} == {"n#2", "m#1"}


def test_the_target_is_the_cheapest_that_is_good_enough() -> None:
    table = TableCost(((1.0, 9.0), (8.0, 2.0), (20.0, 9.0)))
    offer = ScoredCapability(REGISTRY.get("rate"), Capability("rate", 1.0, 20.0, 2.0, table))
    assert target_of(offer, 5.0, 99.0)[0] == 8.0
    assert target_of(offer, 5.0, 6.0)[0] == 6.0, "no more than is of use"
    assert target_of(offer, 10.0, 99.0)[0] == 10.0
    cheap = ScoredCapability(
        REGISTRY.get("rate"), Capability("rate", 1.0, 20.0, 2.0, ConstantCost(1.0))
    )
    assert target_of(cheap, 5.0, 99.0)[0] == 5.0
    late = ScoredCapability(REGISTRY.get("latency"), Capability("latency", 1.0, 90.0, 50.0))
    assert target_of(late, -20.0, 0.0)[0] == -20.0


def case(
    *costs: tuple[float, float], other_cost: float | None = None, missing: int = 1
) -> AdaptationCase:
    options = tuple(
        Option((f"n#{number}", ()), (), cost, more) for number, (cost, more) in enumerate(costs)
    )
    return AdaptationCase("X", 5.0, missing, options, other_cost)


def test_the_pareto_rule() -> None:
    """Declined only if another is satisfied and this one would cost more."""
    assert Pareto().decide(case((9.0, 9.0))).options
    assert Pareto().decide(case((9.0, 9.0), other_cost=9.0)).options
    declined = Pareto().decide(case((9.0, 9.0), other_cost=8.0))
    assert declined == AdaptationChoice((), AdaptationDecision.TOO_COSTLY)
    assert Pareto().decide(case((9.0, 1.0), (3.0, 9.0))).options[0].copy[0] == "n#1"
    both = Pareto().decide(case((9.0, 9.0), (3.0, 9.0), (4.0, 9.0), missing=2))
    assert [option.copy[0] for option in both.options] == ["n#1", "n#2"]


def test_the_cost_minimising_strategy() -> None:
    assert Cheapest().decide(case((9.0, 1.0), (3.0, 4.0))).options[0].copy[0] == "n#0"
    assert Cheapest().decide(case((1.0, 6.0))) == AdaptationChoice(
        (), AdaptationDecision.TOO_COSTLY
    )
    assert Cheapest().decide(case((1.0, 3.0), (1.0, 3.0), missing=2)).options == ()


def test_strategies_that_free_do_nothing_for_what_is_outranked() -> None:
    outranked = AdaptationCase("X", 5.0, 1, case((1.0, 1.0)).options, 9.0, is_outranked=True)
    assert Pareto().decide(outranked).options
    for strategy in (ParetoReleasing(), Cheapest()):
        assert strategy.decide(outranked) == AdaptationChoice((), AdaptationDecision.OUTRANKED)
    assert ParetoReleasing().decide(case((1.0, 1.0))).options


def test_strategies_by_name() -> None:
    assert STRATEGIES.keys() == {"pareto", "cheapest", "freeing"}
    assert isinstance(strategy_named("cheapest"), Cheapest)
    with pytest.raises(QualityError, match="expected one of pareto, cheapest, freeing, got 'x'"):
        strategy_named("x")
    assert not Pareto.frees
    assert ParetoReleasing.frees
