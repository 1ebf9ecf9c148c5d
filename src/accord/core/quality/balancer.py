"""Enumerates what could be done for an unmet demand, at which cost and at whose expense.

Satisfying one demand may worsen a property that others depend on: the publisher couples two
properties, or a mechanism has side effects. The balancer computes this beforehand. A demand is
broken if it depends on the profile for a property that gets worse and no other source satisfies it.
An option that would break at least as much utility as it brings is discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from accord.core.quality.costs import cheapest
from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.mechanisms import Mechanism, MechanismRepository, advises, better_direction
from accord.core.quality.messages import AdaptationDecision
from accord.core.quality.profiles import Coupling, ScoredCapabilities, ScoredCapability
from accord.core.quality.properties import Better, Property
from accord.core.quality.strategies import (
    AdaptationCase,
    AdaptationChoice,
    AdaptationStrategy,
    Delivered,
    Option,
    PropertyMove,
)
from accord.core.quality.upstream_requests import ProfileDependencies, RequiredScores

MAX_OPTIONS: Final = 8  # or the number of missing publishers, if larger


class Candidate(msgspec.Struct, frozen=True):
    """A profile that could be made to satisfy; the couplings of remote profiles are unknown."""

    copy: ProfileCopy
    offers: ScoredCapabilities
    couplings: tuple[Coupling, ...] = ()
    delivered: Delivered = Delivered()

    @property
    def is_local(self) -> bool:
        return not self.copy[1]


class UnmetDemand(msgspec.Struct, frozen=True):
    """The demand that options are weighed for: an expectation that is not satisfied."""

    expectation: str
    required: RequiredScores
    most: RequiredScores  # scores beyond which nothing is gained; absent: no bound
    utility: float
    missing: int = 1
    other_cost: float | None = None
    is_outranked: bool = False


class Balancer:
    """Computes the options of an unmet demand and has a strategy choose.

    `is_broken(who, copy)` is true if no source other than that of `copy` satisfies the demand
    `who`, which depends on it.
    """

    def __init__(
        self,
        repository: MechanismRepository,
        dependencies: ProfileDependencies,
        is_broken: Callable[[str, ProfileCopy], bool],
        utility_of: Callable[[str], float],
    ) -> None:
        self._repository = repository
        self._dependencies = dependencies
        self._is_broken = is_broken
        self._utility_of = utility_of

    def decide(
        self, demand: UnmetDemand, candidates: Iterable[Candidate], strategy: AdaptationStrategy
    ) -> AdaptationChoice:
        options: dict[str, Option] = {}
        is_conflict = False
        for candidate in candidates:
            option = self._option(demand, candidate)
            if option is None:
                is_conflict = True
            else:
                options.setdefault(candidate.copy[0], option)
            if len(options) >= max(MAX_OPTIONS, demand.missing):
                break
        if len(options) < demand.missing:
            return AdaptationChoice(
                (), AdaptationDecision.CONFLICT if is_conflict else AdaptationDecision.FAILED
            )
        return strategy.decide(
            AdaptationCase(
                demand.expectation,
                demand.utility,
                demand.missing,
                tuple(options.values()),
                demand.other_cost,
                demand.is_outranked,
            )
        )

    def _option(self, demand: UnmetDemand, candidate: Candidate) -> Option | None:
        """Returns None if it would break as much utility as it brings, or the demand itself."""
        lacking = {
            name: least
            for name, least in demand.required.items()
            if candidate.offers[name].current < least
        }
        moves: list[PropertyMove] = []
        shifts: dict[str, float] = {}
        cost = more = 0.0
        for name in demand.required:
            offer = candidate.offers[name]
            if name not in lacking:
                cost += offer.cost(offer.current)
            else:
                most = demand.most.get(name, offer.best)
                score, price = target_of(offer, lacking[name], most)
                cost += price
                more += price - offer.cost(offer.current)
                options = self._mechanisms_for(demand, candidate, name, score, lacking)
                if candidate.is_local and not options:
                    return None
                moves.append(PropertyMove(name, lacking[name], score, options))
                more += self._acting_cost(offer.property, options)
                for mechanism in options[:1]:
                    if not candidate.couplings and not mechanism.effects:
                        continue  # no other property changes
                    for on, by in _shifts(candidate, mechanism, name, score, lacking).items():
                        shifts[on] = shifts.get(on, 0.0) + by
        broken = self._broken(demand, candidate, shifts)
        if broken is None:
            return None
        loss = sum(broken.values())
        delivered = candidate.delivered
        return Option(candidate.copy, tuple(moves), cost, more, tuple(broken), loss, delivered)

    def _acting_cost(self, property_: Property, mechanisms: tuple[Mechanism, ...]) -> float:
        """Remote mechanisms are assumed to cost what local ones do: nodes hardly differ in that."""
        known = mechanisms or self._repository.of(property_, better_direction(property_))
        return known[0].cost if known else 0.0

    def _mechanisms_for(
        self,
        demand: UnmetDemand,
        candidate: Candidate,
        name: str,
        score: float,
        lacking: RequiredScores,
    ) -> tuple[Mechanism, ...]:
        """Mechanisms that break less than is gained: least damage first, then cheapest."""
        if not candidate.is_local:
            return ()
        property_ = candidate.offers[name].property
        mechanisms = self._repository.of(property_, better_direction(property_))
        if not candidate.couplings and not any(each.effects for each in mechanisms):
            return mechanisms  # no other property changes
        options: list[tuple[float, int, Mechanism]] = []
        for number, mechanism in enumerate(mechanisms):
            shifts = _shifts(candidate, mechanism, name, score, lacking)
            broken = self._broken(demand, candidate, shifts)
            if broken is not None:
                options.append((sum(broken.values()), number, mechanism))
        options.sort(key=lambda option: option[:2])
        return tuple(mechanism for _, _, mechanism in options)

    def _broken(
        self, demand: UnmetDemand, candidate: Candidate, shifts: RequiredScores
    ) -> dict[str, float] | None:
        """Returns the utilities of the demands that would break; None if their sum is too high."""
        broken: dict[str, float] = {}
        loss = 0.0
        for name, by in shifts.items():
            offer = candidate.offers[name]
            now = offer.current
            after = _flip(offer.property, _flip(offer.property, now) + by)
            if after >= now:
                continue
            if name in demand.required and after < demand.required[name]:
                return None
            for who in self._dependencies.between(candidate.copy, name, after, now):
                if who in broken or who == demand.expectation:
                    continue
                if self._is_broken(who, candidate.copy):
                    broken[who] = self._utility_of(who)
                    loss += broken[who]
                    if loss >= demand.utility:
                        return None
        return broken


def target_of(offer: ScoredCapability, least: float, most: float) -> tuple[float, float]:
    """Returns the cheapest score in the useful range, and its cost."""
    property_ = offer.property
    preferred = _flip(property_, least)
    low, high = sorted((preferred, _flip(property_, min(most, offer.best))))
    found, price = cheapest(offer.capability.cost, low, high, offer.positions, preferred=preferred)
    return _flip(property_, found), price


def _shifts(
    candidate: Candidate, mechanism: Mechanism, name: str, score: float, moved: RequiredScores
) -> dict[str, float]:
    """Returns the change of each other property, except those with targets of their own."""
    offer = candidate.offers[name]
    by = _flip(offer.property, score) - _flip(offer.property, offer.current)
    units = [(effect.on, effect.per_unit) for effect in mechanism.effects]
    if advises(mechanism):
        units += [(each.on, each.per_unit) for each in candidate.couplings if each.of == name]
    shifts: dict[str, float] = {}
    for on, per_unit in units:
        if on in candidate.offers and on not in moved:
            shifts[on] = shifts.get(on, 0.0) + per_unit * by
    return shifts


def _flip(property_: Property, score: float) -> float:
    """Converts a score to a position, or back."""
    return score if property_.better is Better.HIGHER else -score
