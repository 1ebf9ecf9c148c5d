"""Adaptation strategies (plug-ins): whether and how to adapt for a satisfiable expectation.

Utility and costs are comparable only as far as their authors make them so: the Pareto rule compares
costs with costs, the cost-minimising one also with utility.

What a publisher sends is of use only as far as it arrives in time, so options are also weighed by
the share of its events that did. The Pareto rule compares costs per share, the cost-minimising one
counts the utility that is lost. Of equal options the one that delivers most is taken: it is in use
already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.mechanisms import Mechanism
from accord.core.quality.messages import AdaptationDecision
from accord.core.quality.properties import QualityError, shown

_LEAST: Final = 0.001  # share in time


class PropertyMove(msgspec.Struct, frozen=True):
    """Moves a property to a score by the first of these mechanisms that works; remotely by request.

    `target` is the score aimed at, `level` the least sufficient one.
    """

    property: str
    level: float
    target: float
    mechanisms: tuple[Mechanism, ...]


class Delivered(msgspec.Struct, frozen=True):
    """What was measured of a publisher's events on a channel; the default is nothing."""

    in_time: float = 1.0  # share that arrived in time, at all who wanted them
    rate_hz: float = 0.0  # deliveries per second


class Option(msgspec.Struct, frozen=True):
    """One profile that could be made to satisfy."""

    copy: ProfileCopy
    moves: tuple[PropertyMove, ...]
    cost: float  # of all properties of the expectation after the moves
    more: float  # cost added by the moves, with that of the mechanisms
    broken: tuple[str, ...] = ()  # expectations that would no longer be satisfied
    loss: float = 0.0  # total utility of `broken`
    delivered: Delivered = Delivered()


class AdaptationCase(msgspec.Struct, frozen=True):
    """Input of a decision. Every option breaks less utility than the expectation has."""

    expectation: str
    utility: float
    missing: int  # publishers
    options: tuple[Option, ...]  # of different sources, fewest missing properties first
    # Current cost of the satisfied alternative of the same subscription; None: there is none.
    other_cost: float | None = None
    is_outranked: bool = False  # a preferred alternative is satisfied


class AdaptationChoice(msgspec.Struct, frozen=True):
    """The chosen options, or why there are none."""

    options: tuple[Option, ...]
    decision: AdaptationDecision = AdaptationDecision.ADAPTING


class AdaptationStrategy(Protocol):
    """Chooses among the options; `frees`: publishers are advised to do less if less is needed.

    In that case an alternative that is satisfied while a preferred one is satisfied needs nothing.
    Nothing should be started for it either: it would be undone at once.
    """

    name: str
    frees: bool

    def decide(self, case: AdaptationCase) -> AdaptationChoice: ...


class Pareto:
    """Declines only if an alternative is satisfied at a lower cost."""

    name = "pareto"
    frees = False

    def decide(self, case: AdaptationCase) -> AdaptationChoice:
        chosen = sorted(case.options, key=_cost_per_share)[: case.missing]
        cost = sum(option.cost for option in chosen)
        if case.other_cost is not None and cost > case.other_cost:
            return AdaptationChoice((), AdaptationDecision.TOO_COSTLY)
        return AdaptationChoice(tuple(chosen))


class ParetoReleasing(Pareto):
    """As `Pareto`, and releases what is no longer needed; declines if outranked."""

    name = "freeing"
    frees = True

    def decide(self, case: AdaptationCase) -> AdaptationChoice:
        return (
            AdaptationChoice((), AdaptationDecision.OUTRANKED)
            if case.is_outranked
            else super().decide(case)
        )


class Cheapest:
    """Minimises added cost plus broken utility, and declines if they exceed the utility gained."""

    name = "cheapest"
    frees = True

    def decide(self, case: AdaptationCase) -> AdaptationChoice:
        if case.is_outranked:
            return AdaptationChoice((), AdaptationDecision.OUTRANKED)
        share = case.utility / max(case.missing, 1)  # of each publisher in the utility

        def loss(option: Option) -> tuple[float, float]:
            missed = (1 - option.delivered.in_time) * share
            return option.more + option.loss + missed, -option.delivered.rate_hz

        chosen = sorted(case.options, key=loss)[: case.missing]
        if sum(loss(option)[0] for option in chosen) > case.utility:
            return AdaptationChoice((), AdaptationDecision.TOO_COSTLY)
        return AdaptationChoice(tuple(chosen))


def _cost_per_share(option: Option) -> tuple[float, float, float]:
    """Cost of what arrives in time; a gain is the smaller the less does."""
    in_time = max(option.delivered.in_time, _LEAST)
    cost = option.cost / in_time if option.cost > 0 else option.cost * in_time
    return cost, -in_time, -option.delivered.rate_hz


STRATEGIES: Final[Mapping[str, type[Pareto] | type[Cheapest]]] = {
    each.name: each for each in (Pareto, Cheapest, ParetoReleasing)
}


def strategy_named(name: str) -> AdaptationStrategy:
    if name not in STRATEGIES:
        expected = ", ".join(STRATEGIES)
        raise QualityError("strategy", f"expected one of {expected}, got {shown(name)}")
    return STRATEGIES[name]()
