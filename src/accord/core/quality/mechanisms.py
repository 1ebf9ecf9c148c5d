"""Mechanisms that move a property, as data: their steps, cost and side effects.

A mechanism is a sequence of steps that moves a property up or down, at a cost. Of several that do
the same the cheapest is tried first. Its effects state how other properties move per unit of its
own (in values, not in scores): ordering by waiting adds to a latency.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from accord.core.quality.errors import QualityError
from accord.core.quality.notices import MechanismStep
from accord.core.quality.properties import (
    MAX_NUMBER,
    Better,
    Property,
    PropertyRegistry,
    problem_with_name,
    shown,
)

DECLARED: Final = "*"  # any property that publishers declare
MAX_MECHANISMS: Final = 1_000
MAX_STEPS: Final = 16


class Direction(enum.Enum):
    UP = "up"
    DOWN = "down"


class Effect(msgspec.Struct, frozen=True, array_like=True):
    on: str
    per_unit: float


class Mechanism(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    property: str
    direction: Direction
    steps: tuple[MechanismStep, ...]
    cost: float = 0.0
    effects: tuple[Effect, ...] = ()


class MechanismRepository:
    """All mechanisms; those that advise the publisher do not apply to measured properties."""

    def __init__(
        self, registry: PropertyRegistry, mechanisms: tuple[Mechanism, ...] | None = None
    ) -> None:
        self._registry = registry
        self._mechanisms: dict[str, Mechanism] = {}
        self._found: dict[tuple[str, Direction], tuple[Property, tuple[Mechanism, ...]]] = {}
        for each in SHIPPED if mechanisms is None else mechanisms:
            self.define(each)

    def define(self, mechanism: Mechanism) -> None:
        """Adds a mechanism, or replaces the one of that name."""
        place = f"mechanism {shown(mechanism.name)}"
        if problem := problem_with_name(mechanism.name):
            raise QualityError(place, problem)
        if mechanism.name not in self._mechanisms and len(self._mechanisms) >= MAX_MECHANISMS:
            raise QualityError(place, f"{MAX_MECHANISMS} mechanisms are defined already")
        if mechanism.property != DECLARED:
            self._registry.get(mechanism.property)
        if not 1 <= len(mechanism.steps) <= MAX_STEPS:
            raise QualityError(place, f"expected 1 to {MAX_STEPS} steps")
        if not abs(mechanism.cost) <= MAX_NUMBER:
            raise QualityError(place, f"cost: expected a number, got {shown(mechanism.cost)}")
        for effect in mechanism.effects:
            self._registry.get(effect.on)
            if not abs(effect.per_unit) <= MAX_NUMBER:
                raise QualityError(place, f"{effect.on}: expected a finite number per unit")
        self._mechanisms[mechanism.name] = mechanism
        self._found.clear()

    def define_sequence(self, name: str, of: tuple[str, ...]) -> Mechanism:
        """Combines mechanisms, applied in order, into one with their total cost and effects."""
        parts = [self.get(each) for each in of]
        if not parts:
            raise QualityError(f"mechanism {shown(name)}", "expected some to do after each other")
        for part in parts[1:]:
            if (part.property, part.direction) != (parts[0].property, parts[0].direction):
                problem = f"expected to move {parts[0].property} {parts[0].direction.value} only"
                raise QualityError(f"mechanism {shown(name)}", problem)
        sequence = Mechanism(
            name=name,
            property=parts[0].property,
            direction=parts[0].direction,
            steps=tuple(step for part in parts for step in part.steps),
            cost=sum(part.cost for part in parts),
            effects=tuple(effect for part in parts for effect in part.effects),
        )
        self.define(sequence)
        return sequence

    def forget(self, name: str) -> None:
        self.get(name)
        del self._mechanisms[name]
        self._found.clear()

    def get(self, name: str) -> Mechanism:
        found = self._mechanisms.get(name)
        if found is None:
            raise QualityError(f"mechanism {shown(name)}", "not defined")
        return found

    def of(self, property_: Property, direction: Direction) -> tuple[Mechanism, ...]:
        """Mechanisms that move the property in this direction, cheapest first."""
        known = self._found.get((property_.name, direction))
        if known is None or known[0] is not property_:
            known = property_, self._all_of(property_, direction)
            self._found[property_.name, direction] = known
        return known[1]

    def _all_of(self, property_: Property, direction: Direction) -> tuple[Mechanism, ...]:
        found = [
            each
            for each in self._mechanisms.values()
            if each.direction is direction
            and (
                each.property == property_.name
                or (each.property == DECLARED and not property_.is_measured)
            )
            and not (property_.is_measured and advises(each))
        ]
        return tuple(sorted(found, key=lambda each: (each.cost, each.name)))

    def __len__(self) -> int:
        return len(self._mechanisms)


def advises(mechanism: Mechanism) -> bool:
    return MechanismStep.ADVISE in mechanism.steps


def better_way(property_: Property) -> Direction:
    return Direction.UP if property_.better is Better.HIGHER else Direction.DOWN


def worse_way(property_: Property) -> Direction:
    return Direction.DOWN if property_.better is Better.HIGHER else Direction.UP


SHIPPED: Final = (
    Mechanism(
        name="advise-up",
        property=DECLARED,
        direction=Direction.UP,
        steps=(MechanismStep.ADVISE,),
        cost=1.0,
    ),
    Mechanism(
        name="advise-down",
        property=DECLARED,
        direction=Direction.DOWN,
        steps=(MechanismStep.ADVISE,),
        cost=1.0,
    ),
    Mechanism(
        name="filter",
        property="rate",
        direction=Direction.DOWN,
        steps=(MechanismStep.FILTER_RATE,),
        cost=2.0,
    ),
    Mechanism(
        name="hurry",
        property="latency",
        direction=Direction.DOWN,
        steps=(MechanismStep.RAISE_IMPORTANCE,),
        cost=1.0,
    ),
    Mechanism(
        name="shape",
        property="latency",
        direction=Direction.DOWN,
        steps=(MechanismStep.SHAPE,),
        cost=2.0,
    ),
    Mechanism(
        name="second-path",
        property="reliability",
        direction=Direction.UP,
        steps=(MechanismStep.ADD_PATH,),
        cost=2.0,
    ),
    Mechanism(
        name="hurry-over-two-paths",
        property="latency",
        direction=Direction.DOWN,
        steps=(MechanismStep.RAISE_IMPORTANCE, MechanismStep.ADD_PATH),
        cost=3.0,
    ),
)
