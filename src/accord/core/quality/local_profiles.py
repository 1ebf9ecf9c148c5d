"""Profiles registered at this node, each under a number that stands for its publisher."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from accord.core.quality.measurements import EVERYBODY, Measurement, Measurements
from accord.core.quality.profiles import (
    Profile,
    ScoredCapabilities,
    check_profile,
    score_capabilities,
)
from accord.core.quality.properties import PropertyRegistry, QualityError, shown
from accord.core.quality.reactions import ProfileRef

MAX_PROFILES: Final = 100_000


class LocalProfile(msgspec.Struct):
    """A registered profile, completed with what is measured of its publisher."""

    subject: ProfileRef
    profile: Profile
    offers: ScoredCapabilities


class LocalProfiles:
    def __init__(self, node: str, registry: PropertyRegistry, limit: int = MAX_PROFILES) -> None:
        self.measurements = Measurements(registry)
        self._node = node
        self._registry = registry
        self._limit = limit
        self._locals: dict[str, LocalProfile] = {}
        self._numbers: dict[str, dict[str, str]] = {}  # source by channel and publisher
        self._publishers: dict[str, dict[str, bool]] = {}  # channels by publisher
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._locals)

    def __iter__(self) -> Iterator[LocalProfile]:
        return iter(self._locals.values())

    def get(self, source: str) -> LocalProfile | None:
        return self._locals.get(source)

    def look_up(self, publisher: str, channel: str) -> LocalProfile | None:
        return self._locals.get(self._numbers.get(channel, {}).get(publisher, ""))

    def find(self, publisher: str, channel: str) -> LocalProfile:
        source = self._numbers.get(channel, {}).get(publisher)
        if source is None:
            place = f"profile of {shown(publisher)}"
            raise QualityError(place, f"none is registered for channel {shown(channel)}")
        return self._locals[source]

    def channels_of(self, publisher: str) -> list[str]:
        return list(self._publishers.get(publisher, {}))

    def sources_on(self, channel: str) -> list[str]:
        """Sources on the channel."""
        return list(self._numbers.get(channel, {}).values())

    def register(self, profile: Profile) -> LocalProfile:
        check_profile(profile, self._registry)
        place = f"profile of {shown(profile.publisher)}"
        if profile.publisher in self._numbers.get(profile.channel, {}):
            problem = f"one is registered for channel {shown(profile.channel)} already; update it"
            raise QualityError(place, problem)
        if len(self._locals) >= self._limit:
            raise QualityError(place, f"{self._limit} profiles are registered already")
        self._last_number += 1
        source = f"{self._node}#{self._last_number}"
        local = LocalProfile(
            ProfileRef(source, profile.publisher, profile.channel), profile, self._score(profile)
        )
        self._locals[source] = local
        self._numbers.setdefault(profile.channel, {})[profile.publisher] = source
        self._publishers.setdefault(profile.publisher, {})[profile.channel] = True
        return local

    def update(self, profile: Profile) -> LocalProfile:
        local = self.find(profile.publisher, profile.channel)
        check_profile(profile, self._registry)
        local.profile = profile
        local.offers = self._score(profile)
        return local

    def revoke(self, publisher: str, channel: str) -> LocalProfile:
        local = self.find(publisher, channel)
        del self._locals[local.subject.source]
        of_channel, of_publisher = self._numbers[channel], self._publishers[publisher]
        del of_channel[publisher], of_publisher[channel]
        if not of_channel:
            del self._numbers[channel]
            self.measurements.remove(channel, EVERYBODY)
        if not of_publisher:
            del self._publishers[publisher]
        self.measurements.remove(channel, publisher)
        return local

    def measure(self, measurement: Measurement) -> list[str]:
        """Records a measurement; returns the sources it changes (see `refresh`)."""
        channel, publisher = measurement.channel, measurement.publisher
        if publisher != EVERYBODY:
            self.find(publisher, channel)
        if channel not in self._numbers or not self.measurements.record(measurement):
            return []
        if publisher == EVERYBODY:
            return self.sources_on(channel)
        return [self._numbers[channel][publisher]]

    def refresh(self, source: str) -> LocalProfile | None:
        """Recomputes a profile from the current measurements."""
        local = self._locals.get(source)
        if local is not None:
            local.offers = self._score(local.profile)
        return local

    def check_invariants(self) -> None:
        self.measurements.check_invariants()
        assert len(self._locals) <= self._limit
        listed = [source for of in self._numbers.values() for source in of.values()]
        assert sorted(listed) == sorted(self._locals)
        for source, local in self._locals.items():
            profile = local.profile
            assert self._numbers[profile.channel][profile.publisher] == source
            assert profile.channel in self._publishers[profile.publisher]
            assert (profile.publisher, profile.channel) == (
                local.subject.publisher,
                local.subject.channel,
            )

    def _score(self, profile: Profile) -> ScoredCapabilities:
        measured = self.measurements.capabilities(profile.channel, profile.publisher)
        return score_capabilities((*profile.capabilities, *measured), self._registry)
