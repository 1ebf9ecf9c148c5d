"""Expectations of subscriptions: their form, validation, lifecycle and table.

An expectation is a set of (property, lower, upper) with a utility. A subscription may hold several
as alternatives; the one with the highest utility is preferred. An expectation of several
`publishers` is met when that many of them each meet all of it; a publisher counts once per channel.

The bound at the worse end is the requirement; beyond the other one nothing is gained. A bound that
is omitted is the end of the property's domain.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

from accord.core.model.channels import problem_with_filter
from accord.core.quality.properties import Better, PropertyRegistry, QualityError, Value, shown

MAX_ID: Final = 256
MAX_REQUIREMENTS: Final = 16
MAX_PUBLISHERS: Final = 16
MAX_UTILITY: Final = 1e9
MAX_ALTERNATIVES: Final = 16
MAX_EXPECTATIONS: Final = 100_000


class PropertyRequirement(msgspec.Struct, frozen=True, array_like=True):
    property: str
    lower: Value | None = None
    upper: Value | None = None


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """`channel` may be a filter: then publishers on every channel it selects count."""

    id: str
    subscription: str
    channel: str
    requirements: tuple[PropertyRequirement, ...]
    utility: float = 1.0
    publishers: int = 1


class ScoredExpectation(msgspec.Struct, frozen=True):
    """An expectation in the form used for matching: property names and least sufficient scores."""

    names: tuple[str, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]  # beyond which nothing is gained


def score_expectation(expectation: Expectation, registry: PropertyRegistry) -> ScoredExpectation:
    """Raises QualityError if the expectation is not acceptable."""
    place = f"expectation {shown(expectation.id)}"
    _check(expectation, place)
    scores: dict[str, tuple[float, float]] = {}
    for requirement in expectation.requirements:
        if requirement.property in scores:
            raise QualityError(place, f"{requirement.property}: expected once")
        try:
            scores[requirement.property] = bounds_of(requirement, registry)
        except QualityError as error:
            raise QualityError(f"{place}, {error.place}", error.problem) from None
    names = tuple(sorted(scores))
    least = tuple(scores[name][0] for name in names)
    return ScoredExpectation(names, least, tuple(scores[name][1] for name in names))


def bounds_of(requirement: PropertyRequirement, registry: PropertyRegistry) -> tuple[float, float]:
    """Scores of the worst sufficient value and of the best useful one."""
    property_ = registry.get(requirement.property)
    is_higher = property_.better is Better.HIGHER
    lowest, highest = (
        (0.0, len(property_.levels) - 1.0)
        if property_.levels
        else (property_.lowest, property_.highest)
    )
    low = lowest if requirement.lower is None else property_.position(requirement.lower)
    high = highest if requirement.upper is None else property_.position(requirement.upper)
    if low > high:
        bounds = f"{shown(requirement.lower)} and {shown(requirement.upper)}"
        raise QualityError(requirement.property, f"expected lower before upper, got {bounds}")
    return (low, high) if is_higher else (-high, -low)


def _check(expectation: Expectation, place: str) -> None:
    for name in ("id", "subscription"):
        text: str = getattr(expectation, name)
        if not 0 < len(text) <= MAX_ID or "\0" in text:
            expected = f"1 to {MAX_ID} characters, none of them null"
            raise QualityError(place, f"{name}: expected {expected}")
    if problem := problem_with_filter(expectation.channel):
        raise QualityError(place, f"channel: {problem}")
    count = len(expectation.requirements)
    if not 1 <= count <= MAX_REQUIREMENTS:
        raise QualityError(place, f"expected 1 to {MAX_REQUIREMENTS} properties, got {count}")
    if not 0 < expectation.utility <= MAX_UTILITY:
        expected = f"more than 0, up to {shown(MAX_UTILITY)}"
        raise QualityError(place, f"utility: expected {expected}, got {shown(expectation.utility)}")
    if not 1 <= expectation.publishers <= MAX_PUBLISHERS:
        problem = f"publishers: expected 1 to {MAX_PUBLISHERS}, got {expectation.publishers}"
        raise QualityError(place, problem)


class Lifecycle(enum.Enum):
    ACTIVE = "active"
    SUSPENDED = "suspended"
    REVOKED = "revoked"


TRANSITIONS: Final = {
    (Lifecycle.ACTIVE, "update"): Lifecycle.ACTIVE,
    (Lifecycle.SUSPENDED, "update"): Lifecycle.SUSPENDED,
    (Lifecycle.ACTIVE, "suspend"): Lifecycle.SUSPENDED,
    (Lifecycle.SUSPENDED, "resume"): Lifecycle.ACTIVE,
    (Lifecycle.ACTIVE, "revoke"): Lifecycle.REVOKED,
    (Lifecycle.SUSPENDED, "revoke"): Lifecycle.REVOKED,
}


class RegisteredExpectation(msgspec.Struct):
    """An expectation with its lifecycle state."""

    expectation: Expectation
    scored: ScoredExpectation
    lifecycle: Lifecycle = Lifecycle.ACTIVE


class ExpectationTable:
    """All registered expectations; every lifecycle transition is listed in LIFE."""

    def __init__(self, registry: PropertyRegistry, limit: int = MAX_EXPECTATIONS) -> None:
        self._registry = registry
        self._limit = limit
        self._registered: dict[str, RegisteredExpectation] = {}
        self._by_subscription: dict[str, dict[str, RegisteredExpectation]] = {}

    def __len__(self) -> int:
        return len(self._registered)

    def __iter__(self) -> Iterator[RegisteredExpectation]:
        return iter(self._registered.values())

    def __contains__(self, id_: str) -> bool:
        return id_ in self._registered

    def get(self, id_: str) -> RegisteredExpectation:
        found = self._registered.get(id_)
        if found is None:
            raise QualityError(f"expectation {shown(id_)}", "not registered")
        return found

    def alternatives(self, subscription: str) -> list[RegisteredExpectation]:
        """All expectations of one subscription, in order of registration."""
        return list(self._by_subscription.get(subscription, {}).values())

    def register(self, expectation: Expectation) -> RegisteredExpectation:
        place = f"expectation {shown(expectation.id)}"
        if expectation.id in self._registered:
            raise QualityError(place, "registered already; update it, or choose another id")
        if len(self._registered) >= self._limit:
            raise QualityError(place, f"{self._limit} expectations are registered already")
        alternatives = self._by_subscription.get(expectation.subscription, {})
        if len(alternatives) >= MAX_ALTERNATIVES:
            problem = f"its subscription holds {MAX_ALTERNATIVES} already"
            raise QualityError(place, problem)
        held = RegisteredExpectation(expectation, score_expectation(expectation, self._registry))
        self._registered[expectation.id] = held
        self._by_subscription.setdefault(expectation.subscription, alternatives)
        alternatives[expectation.id] = held
        return held

    def update(self, expectation: Expectation) -> RegisteredExpectation:
        held = self.get(expectation.id)
        if expectation.subscription != held.expectation.subscription:
            problem = f"subscription: expected {shown(held.expectation.subscription)}"
            raise QualityError(f"expectation {shown(expectation.id)}", problem)
        wanted = score_expectation(expectation, self._registry)
        held.lifecycle = self._after(held, "update")
        held.expectation, held.scored = expectation, wanted
        return held

    def suspend(self, id_: str) -> RegisteredExpectation:
        return self._step(id_, "suspend")

    def resume(self, id_: str) -> RegisteredExpectation:
        return self._step(id_, "resume")

    def revoke(self, id_: str) -> RegisteredExpectation:
        held = self._step(id_, "revoke")
        del self._registered[id_]
        subscription = held.expectation.subscription
        alternatives = self._by_subscription[subscription]
        del alternatives[id_]
        if not alternatives:
            del self._by_subscription[subscription]
        return held

    def check_invariants(self) -> None:
        assert len(self._registered) <= self._limit
        listed = [id_ for each in self._by_subscription.values() for id_ in each]
        assert sorted(listed) == sorted(self._registered)
        assert all(self._by_subscription.values())
        for id_, held in self._registered.items():
            assert held.expectation.id == id_
            assert held.lifecycle is not Lifecycle.REVOKED
            assert held.scored == score_expectation(held.expectation, self._registry)

    def _step(self, id_: str, verb: str) -> RegisteredExpectation:
        held = self.get(id_)
        held.lifecycle = self._after(held, verb)
        return held

    def _after(self, held: RegisteredExpectation, verb: str) -> Lifecycle:
        after = TRANSITIONS.get((held.lifecycle, verb))
        if after is None:
            place = f"expectation {shown(held.expectation.id)}"
            raise QualityError(place, f"can't {verb} what is {held.lifecycle.value}")
        return after
