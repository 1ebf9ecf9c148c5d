"""Mechanisms that move a property: their description as data, and those that are applied.

A mechanism is a sequence of steps that moves a property up or down, at a cost. Of several that do
the same the cheapest is tried first. Its effects state how other properties move per unit of its
own (in values, not in scores): ordering by waiting adds to a latency.

`ActiveMechanisms` are those that this node applies, by negotiation, to a publisher's events on a
channel. A rate filter affects only subscribers with expectations of that rate: they gain nothing
from more events than they need. Subscribers without expectations receive everything.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from accord.core.model.units import IMPORTANCES
from accord.core.policy.grants import Grant
from accord.core.quality.messages import ApplyMechanism, MechanismStep
from accord.core.quality.properties import (
    MAX_NUMBER,
    Better,
    Property,
    PropertyRegistry,
    QualityError,
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
        self._by_property: dict[tuple[str, Direction], tuple[Property, tuple[Mechanism, ...]]] = {}
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
        self._by_property.clear()

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

    def remove(self, name: str) -> None:
        self.get(name)
        del self._mechanisms[name]
        self._by_property.clear()

    def get(self, name: str) -> Mechanism:
        found = self._mechanisms.get(name)
        if found is None:
            raise QualityError(f"mechanism {shown(name)}", "not defined")
        return found

    def of(self, property_: Property, direction: Direction) -> tuple[Mechanism, ...]:
        """Mechanisms that move the property in this direction, cheapest first."""
        known = self._by_property.get((property_.name, direction))
        if known is None or known[0] is not property_:
            known = property_, self._all_of(property_, direction)
            self._by_property[property_.name, direction] = known
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


def better_direction(property_: Property) -> Direction:
    return Direction.UP if property_.better is Better.HIGHER else Direction.DOWN


def worse_direction(property_: Property) -> Direction:
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


FILTERED: Final = "rate filtered"
HIGHER: Final = 2  # levels of importance
PublisherChannel = tuple[str, str]  # channel and publisher


class RateFilter:
    """Passes at most a given number of events per second, evenly spaced."""

    def __init__(self, rate_hz: float) -> None:
        self.rate_hz = rate_hz
        self._next_us = 0

    def passes(self, now_us: int) -> bool:
        if now_us < self._next_us:
            return False
        every_us = int(1e6 / self.rate_hz) if self.rate_hz > 0 else 1_000_000
        # An event that is slightly late must not lower the rate.
        is_steady = now_us - self._next_us < every_us
        self._next_us = (self._next_us if is_steady else now_us) + every_us
        return True


class GrantAdjustment:
    """Changes to the grants of some events: reactions that raise their importance or shape them."""

    def __init__(self) -> None:
        self.raised: dict[int, bool] = {}
        self.leaves_ms: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.raised or self.leaves_ms)

    def grant(self, grant: Grant) -> Grant:
        """Returns the grant at a higher importance, and shaped by its policies to leave in time."""
        importance = grant.importance
        if self.raised:
            importance = min(importance + HIGHER, IMPORTANCES - 1)
        return Grant(
            importance,
            grant.deadline_ms,
            grant.shaping,
            grant.max_bytes,
            grant.max_pixels,
            grant.is_replacing,
            grant.policy,
            grant.deadline_policy,
            grant.shaping_policy,
            min(self.leaves_ms.values(), default=0),
        )


class ActiveMechanisms:
    """The mechanisms in effect, by reaction."""

    def __init__(self) -> None:
        self.filters: dict[PublisherChannel, RateFilter] = {}
        self.adjustments: dict[PublisherChannel, GrantAdjustment] = {}
        self._steps: dict[
            int, dict[tuple[MechanismStep, PublisherChannel], bool]
        ] = {}  # by the reaction's number

    def __len__(self) -> int:
        return sum(map(len, self._steps.values()))

    def apply(self, act: ApplyMechanism) -> bool:
        """Applies one step; False if it cannot be applied to events."""
        place = act.channel, act.publisher
        target = float(act.target) if isinstance(act.target, (int, float)) else 0.0
        if act.step is MechanismStep.FILTER_RATE and target:
            self.filters[place] = RateFilter(target)
        elif act.step is MechanismStep.RAISE_IMPORTANCE:
            self.adjustments.setdefault(place, GrantAdjustment()).raised[act.reaction] = True
        elif act.step is MechanismStep.SHAPE and target:
            leaves_ms = max(1, round(target))
            self.adjustments.setdefault(place, GrantAdjustment()).leaves_ms[act.reaction] = (
                leaves_ms
            )
        else:
            return False
        self._steps.setdefault(act.reaction, {})[act.step, place] = True
        return True

    def withdraw(self, reaction: int) -> None:
        for step, place in self._steps.pop(reaction, {}):
            if step is MechanismStep.FILTER_RATE:
                self.filters.pop(place, None)
                continue
            lift = self.adjustments[place]
            (lift.raised if step is MechanismStep.RAISE_IMPORTANCE else lift.leaves_ms).pop(
                reaction
            )
            if not lift:
                del self.adjustments[place]
