from __future__ import annotations

import pytest

from accord.core.quality.mechanisms import (
    DECLARED,
    SHIPPED,
    Direction,
    Effect,
    Mechanism,
    MechanismRepository,
    better_direction,
    worse_direction,
)
from accord.core.quality.messages import MechanismStep
from accord.core.quality.properties import PropertyRegistry, QualityError

REGISTRY = PropertyRegistry()
UP, DOWN = Direction.UP, Direction.DOWN


def names(repository: MechanismRepository, name: str, direction: Direction) -> list[str]:
    return [each.name for each in repository.of(REGISTRY.get(name), direction)]


def test_the_cheapest_comes_first() -> None:
    repository = MechanismRepository(REGISTRY)
    assert len(repository) == len(SHIPPED)
    assert names(repository, "rate", DOWN) == ["advise-down", "filter"]
    assert names(repository, "confidence", UP) == ["advise-up"]
    assert names(repository, "latency", DOWN) == ["hurry", "shape", "hurry-over-two-paths"]
    assert names(repository, "reliability", UP) == ["second-path"]
    cheap = Mechanism(
        name="filter", property="rate", direction=DOWN, steps=(MechanismStep.FILTER_RATE,), cost=0.5
    )
    repository.define(cheap)
    assert names(repository, "rate", DOWN) == ["filter", "advise-down"]
    repository.remove("advise-down")
    assert names(repository, "rate", DOWN) == ["filter"]


def test_the_way_to_the_better() -> None:
    assert (better_direction(REGISTRY.get("rate")), worse_direction(REGISTRY.get("rate"))) == (
        UP,
        DOWN,
    )
    latency = REGISTRY.get("latency")
    assert (better_direction(latency), worse_direction(latency)) == (DOWN, UP)


def test_nobody_is_advised_of_what_nodes_measure() -> None:
    repository = MechanismRepository(REGISTRY)
    advise = Mechanism(
        name="ask", property="latency", direction=DOWN, steps=(MechanismStep.ADVISE,)
    )
    repository.define(advise)
    assert "ask" not in names(repository, "latency", DOWN)


def test_sequences_are_mechanisms() -> None:
    repository = MechanismRepository(REGISTRY)
    found = repository.define_sequence("both", ("hurry", "shape"))
    assert found.steps == (MechanismStep.RAISE_IMPORTANCE, MechanismStep.SHAPE)
    assert found.cost == 3.0
    assert names(repository, "latency", DOWN)[-2:] == ["both", "hurry-over-two-paths"]
    with pytest.raises(QualityError, match="'odd': expected to move latency down only"):
        repository.define_sequence("odd", ("hurry", "filter"))
    with pytest.raises(QualityError, match="'none': expected some"):
        repository.define_sequence("none", ())
    with pytest.raises(QualityError, match="mechanism 'x': not defined"):
        repository.define_sequence("more", ("x",))


@pytest.mark.parametrize(
    ("mechanism", "problem"),
    [
        (
            Mechanism(name="a b", property="rate", direction=UP, steps=(MechanismStep.SHAPE,)),
            "a letter",
        ),
        (
            Mechanism(name="a", property="x", direction=UP, steps=(MechanismStep.SHAPE,)),
            "no such property",
        ),
        (Mechanism(name="a", property="rate", direction=UP, steps=()), "expected 1 to 16 steps"),
        (
            Mechanism(
                name="a",
                property=DECLARED,
                direction=UP,
                steps=(MechanismStep.SHAPE,),
                cost=float("nan"),
            ),
            "cost: expected a number, got nan",
        ),
        (
            Mechanism(
                name="a",
                property=DECLARED,
                direction=UP,
                steps=(MechanismStep.SHAPE,),
                effects=(Effect("rate", float("inf")),),
            ),
            "rate: expected a finite number per unit",
        ),
    ],
)
def test_what_is_not_accepted(mechanism: Mechanism, problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        MechanismRepository(REGISTRY).define(mechanism)
