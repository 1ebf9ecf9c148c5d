"""Validates neighbours' entries, and applies the effect of the link to their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from accord.core.model.channels import problem_with_filter
from accord.core.quality.expectations import MAX_ID, MAX_PUBLISHERS, MAX_REQUIREMENTS
from accord.core.quality.match_groups import Path, Scope
from accord.core.quality.measurements import is_close
from accord.core.quality.messages import MAX_HOPS, ForwardedProfile, PropertyInterest
from accord.core.quality.profiles import (
    Capability,
    ScoredCapabilities,
    check_capabilities,
    score_capabilities,
)
from accord.core.quality.properties import HopEffect, PropertyRegistry, QualityError, Value, shown

MAX_LEVELS: Final = 64  # of a filter: each takes far more memory than its name is long

Qualities = Mapping[str, Value]  # of a link, by property


class NeighbourValidator:
    def __init__(self, node: str, registry: PropertyRegistry) -> None:
        self.malformed = 0
        self._node = node
        self._registry = registry

    def check(self, qualities: Qualities) -> None:
        """Checks the values of a link, set by the node itself."""
        for name, value in qualities.items():
            if not math.isfinite(self._registry.get(name).position(value)):
                raise QualityError(name, f"expected a finite value of a link, got {shown(value)}")

    def is_close(self, before: Qualities, after: Qualities) -> bool:
        return before.keys() == after.keys() and all(
            is_close(self._registry.get(name), before[name], value) for name, value in after.items()
        )

    def accepts_interest(self, neighbour: str, interest: PropertyInterest) -> bool:
        """Whether to accept an interest: it is valid and did not come over this node."""
        is_good = (
            problem_with_filter(interest.channel) is None
            and interest.channel.count("/") < MAX_LEVELS
            and _is_set(interest.properties)
            and 1 <= interest.publishers <= MAX_PUBLISHERS
            and is_path(interest.path, neighbour)
        )
        self.malformed += not is_good
        return is_good and self._node not in interest.path

    def accepts_profile(self, neighbour: str, profile: ForwardedProfile) -> bool:
        is_good = (
            _is_set(profile.properties)
            and tuple(each.property for each in profile.capabilities) == profile.properties
            and 0 < len(profile.source) <= MAX_ID
            and is_path(profile.path, neighbour)
        )
        self.malformed += not is_good
        return is_good and self._node not in profile.path

    def behind_link(
        self, profile: ForwardedProfile, qualities: Qualities
    ) -> ScoredCapabilities | None:
        """The capabilities after the link; None if they are invalid by the current definitions."""
        try:
            check_capabilities(profile.capabilities, self._registry, "what a neighbour has")
            arrived = tuple(self._over_hop(each, qualities) for each in profile.capabilities)
            return score_capabilities(arrived, self._registry)
        except QualityError:
            return None

    def _over_hop(self, capability: Capability, qualities: Qualities) -> Capability:
        property_ = self._registry.get(capability.property)
        link = qualities.get(capability.property)
        if link is None or property_.over_hops is HopEffect.KEEP:
            return capability
        return Capability(
            capability.property,
            property_.over_hop(capability.lower, link),
            property_.over_hop(capability.upper, link),
            property_.over_hop(capability.current, link),
            capability.cost,
        )


def scope_of(entry: PropertyInterest | ForwardedProfile) -> Scope:
    return entry.channel, entry.properties


def is_path(path: Path, neighbour: str) -> bool:
    is_simple = len(set(path)) == len(path)
    return is_simple and 1 <= len(path) <= MAX_HOPS and path[0] == neighbour


def _is_set(names: tuple[str, ...]) -> bool:
    return 1 <= len(names) <= MAX_REQUIREMENTS and list(names) == sorted(set(names))
