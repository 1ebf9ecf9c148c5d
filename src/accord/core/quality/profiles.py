"""Capabilities of publishers; those of one publisher for one channel form a profile.

A capability is the range that a publisher can provide in principle, the value at which it operates
now, and the cost of operating at a value. A coupling states that improving one property changes
another: a sensor that is read more often may be less certain. Publishers cannot declare what nodes
determine (latency, reliability, order); it is measured and completes the profile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from accord.core.model.channels import problem_with_channel
from accord.core.quality.costs import FREE, Cost, check_cost, cost_at, table_positions
from accord.core.quality.properties import (
    MAX_NUMBER,
    Better,
    Property,
    PropertyRegistry,
    QualityError,
    Value,
    shown,
)

MAX_PUBLISHER: Final = 256
MAX_CAPABILITIES: Final = 32
MAX_COUPLINGS: Final = 64


class Capability(msgspec.Struct, frozen=True, array_like=True):
    property: str
    lower: Value
    upper: Value
    current: Value
    cost: Cost = FREE


class Coupling(msgspec.Struct, frozen=True, array_like=True):
    """Each unit that `of` rises moves `on` by `per_unit` units of its own (levels: by number)."""

    of: str
    on: str
    per_unit: float


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    publisher: str
    channel: str
    capabilities: tuple[Capability, ...]
    couplings: tuple[Coupling, ...] = ()


class ScoredCapability:
    """A capability in the form used for matching: by scores, higher is better."""

    __slots__ = ("best", "capability", "current", "positions", "property")

    def __init__(self, property_: Property, capability: Capability) -> None:
        self.property = property_
        self.capability = capability
        self.current = property_.score(capability.current)
        ends = property_.score(capability.lower), property_.score(capability.upper)
        self.best = max(ends)
        self.positions = table_positions(capability.cost, property_)

    def cost(self, score: float) -> float:
        position = score if self.property.better is Better.HIGHER else -score
        return cost_at(self.capability.cost, position, self.positions)


ScoredCapabilities = dict[str, ScoredCapability]  # by property
Vector = tuple[float, ...]


def score_capabilities(
    capabilities: Iterable[Capability], registry: PropertyRegistry
) -> ScoredCapabilities:
    """Converts capabilities that were validated before."""
    return {
        each.property: ScoredCapability(registry.get(each.property), each) for each in capabilities
    }


def vector_of(offers: ScoredCapabilities, names: tuple[str, ...]) -> Vector | None:
    """The current scores of these properties, then the best ones; None if one is missing."""
    try:
        found = [offers[name] for name in names]
    except KeyError:
        return None
    return (*[each.current for each in found], *[each.best for each in found])


def check_profile(profile: Profile, registry: PropertyRegistry) -> None:
    """Raises QualityError if the profile is not acceptable."""
    place = f"profile of {shown(profile.publisher)}"
    if not 0 < len(profile.publisher) <= MAX_PUBLISHER:
        raise QualityError(place, f"publisher: expected 1 to {MAX_PUBLISHER} characters")
    if problem := problem_with_channel(profile.channel):
        raise QualityError(place, f"channel: {problem}")
    check_capabilities(profile.capabilities, registry, place)
    for capability in profile.capabilities:
        if registry.get(capability.property).is_measured:
            problem = "is measured by nodes; a publisher can't declare it"
            raise QualityError(f"{place}, {capability.property}", problem)
    _check_couplings(profile.couplings, registry, place)


def check_capabilities(
    capabilities: tuple[Capability, ...], registry: PropertyRegistry, place: str
) -> None:
    if not 1 <= len(capabilities) <= MAX_CAPABILITIES:
        count = len(capabilities)
        raise QualityError(place, f"expected 1 to {MAX_CAPABILITIES} capabilities, got {count}")
    seen: set[str] = set()
    for capability in capabilities:
        if capability.property in seen:
            raise QualityError(place, f"{capability.property}: expected once")
        seen.add(capability.property)
        try:
            check_capability(capability, registry)
        except QualityError as error:
            raise QualityError(f"{place}, {error.place}", error.problem) from None


def check_capability(capability: Capability, registry: PropertyRegistry) -> None:
    property_ = registry.get(capability.property)
    low, high = property_.position(capability.lower), property_.position(capability.upper)
    if not low <= property_.position(capability.current) <= high:
        bounds = f"{shown(capability.lower)} to {shown(capability.upper)}"
        problem = f"expected lower ≤ current ≤ upper, got {shown(capability.current)} in {bounds}"
        raise QualityError(capability.property, problem)
    check_cost(capability.cost, property_, capability.property)


def _check_couplings(
    couplings: tuple[Coupling, ...], registry: PropertyRegistry, place: str
) -> None:
    if len(couplings) > MAX_COUPLINGS:
        problem = f"{len(couplings)} couplings, at most {MAX_COUPLINGS} accepted"
        raise QualityError(place, problem)
    for coupling in couplings:
        registry.get(coupling.of)
        registry.get(coupling.on)
        if coupling.of == coupling.on:
            raise QualityError(place, f"{coupling.of}: expected a coupling of two properties")
        if not abs(coupling.per_unit) <= MAX_NUMBER:
            problem = f"{coupling.of} on {coupling.on}: expected a finite number per unit"
            raise QualityError(place, problem)
