"""Matches profiles against an expectation, as in figure 3 of the paper.

A property is *satisfied* if the current value is good enough, else *covered* if the range of the
capability overlaps the wanted one, else neither. A profile is satisfied if all properties are,
unsatisfied if one is neither or missing, satisfiable otherwise. An expectation takes the best state
over all profiles (for several publishers: the best that so many of them reach); the figure's loop,
read literally, would take that of the last profile that is not unsatisfied.

Because the current value lies within the capability's range, a property that is not satisfied is
covered exactly if the *best* value of the capability is good enough. Each profile is therefore
matched by two scores per property, current and best, and a profile that is at least as good in all
of them as another meets everything the other meets: see `skyline`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from accord.core.quality.expectations import Expectation, PropertyRequirement
from accord.core.quality.profiles import Capability, Profile
from accord.core.quality.properties import Better, Property, PropertyRegistry, Value


class MatchState(enum.IntEnum):
    UNSATISFIED = 0
    SATISFIABLE = 1
    SATISFIED = 2

    @property
    def word(self) -> str:
        return self.name.lower()


class UnmetReason(msgspec.Struct, frozen=True, array_like=True):
    """Why an expectation is not satisfied: the property's current value, None if there is none."""

    expectation: str
    property: str
    now: Value | None


class Match(msgspec.Struct, frozen=True):
    """The figure's result: the state and both sets of candidates, as publishers and channels."""

    state: MatchState
    satisfied: tuple[tuple[str, str], ...]
    satisfiable: tuple[tuple[str, str], ...]
    reasons: tuple[UnmetReason, ...]


def match(
    expectation: Expectation, profiles: Iterable[Profile], registry: PropertyRegistry
) -> Match:
    """MATCH of figure 3: one expectation against all these profiles."""
    satisfied: list[tuple[str, str]] = []
    satisfiable: list[tuple[str, str]] = []
    nearest: tuple[tuple[int, int], tuple[UnmetReason, ...]] | None = None
    for profile in profiles:
        states = check_properties(expectation, profile, registry)
        state = state_of_profile(states.values())
        candidate = profile.publisher, profile.channel
        if state is MatchState.SATISFIED:
            satisfied.append(candidate)
        elif state is MatchState.SATISFIABLE:
            satisfiable.append(candidate)
        lacking = [name for name, each in states.items() if each is not MatchState.SATISFIED]
        distance = sum(each is MatchState.UNSATISFIED for each in states.values()), len(lacking)
        if lacking and (nearest is None or distance < nearest[0]):
            nearest = distance, _reasons(expectation, lacking, profile)
    count = expectation.publishers
    if len(satisfied) >= count:
        return Match(MatchState.SATISFIED, tuple(satisfied), tuple(satisfiable), ())
    reasons = nearest[1] if nearest else _reasons(expectation, _names(expectation), None)
    is_satisfiable = len(satisfied) + len(satisfiable) >= count
    state = MatchState.SATISFIABLE if is_satisfiable else MatchState.UNSATISFIED
    return Match(state, tuple(satisfied), tuple(satisfiable), reasons)


def check_properties(
    expectation: Expectation, profile: Profile, registry: PropertyRegistry
) -> dict[str, MatchState]:
    """The loop of CHECKSTATE: the state of each property of the expectation."""
    capabilities = {each.property: each for each in profile.capabilities}
    states: dict[str, MatchState] = {}
    for requirement in expectation.requirements:
        capability = capabilities.get(requirement.property)
        property_ = registry.get(requirement.property)
        if capability is None:
            states[requirement.property] = MatchState.UNSATISFIED
        elif satisfies(capability.current, requirement, property_):
            states[requirement.property] = MatchState.SATISFIED
        elif covers(capability, requirement, property_):
            states[requirement.property] = MatchState.SATISFIABLE
        else:
            states[requirement.property] = MatchState.UNSATISFIED
    return states


def state_of_profile(states: Iterable[MatchState]) -> MatchState:
    """The end of CHECKSTATE: the worst one counts."""
    return min(states)


def satisfies(value: Value, requirement: PropertyRequirement, property_: Property) -> bool:
    """SATISFIES of figure 3."""
    if property_.better is Better.LOWER:
        upper = requirement.upper
        return upper is None or property_.position(value) <= property_.position(upper)
    lower = requirement.lower
    return lower is None or property_.position(value) >= property_.position(lower)


def covers(capability: Capability, requirement: PropertyRequirement, property_: Property) -> bool:
    """COVERS, which figure 3 leaves out: both ranges overlap."""
    lower, upper = requirement.lower, requirement.upper
    reaches = lower is None or property_.position(capability.upper) >= property_.position(lower)
    begins = upper is None or property_.position(capability.lower) <= property_.position(upper)
    return reaches and begins


def _reasons(
    expectation: Expectation, lacking: Iterable[str], profile: Profile | None
) -> tuple[UnmetReason, ...]:
    now = {} if profile is None else {each.property: each.current for each in profile.capabilities}
    return tuple(UnmetReason(expectation.id, name, now.get(name)) for name in lacking)


def _names(expectation: Expectation) -> list[str]:
    return [each.property for each in expectation.requirements]
