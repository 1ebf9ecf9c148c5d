"""Whether to adapt for an expectation that could be satisfied, and how: strategies as plug-ins.

Utility and costs are numbers of the same kind only as far as whoever sets them makes them so: the
pareto rule compares costs with costs, the cost-minimising one also with utility.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from accord.core.quality.errors import QualityError
from accord.core.quality.match_groups import ProfileCopy
from accord.core.quality.mechanisms import Mechanism
from accord.core.quality.notices import AdaptationDecision
from accord.core.quality.properties import shown


class PropertyMove(msgspec.Struct, frozen=True):
    """Take a property to a score, by one of these, in this order; for remote ones by asking.

    The target is what to aim at, the level what is good enough.
    """

    property: str
    level: float
    target: float
    mechanisms: tuple[Mechanism, ...]


class Option(msgspec.Struct, frozen=True):
    """One profile that could be made to satisfy."""

    copy: ProfileCopy
    moves: tuple[PropertyMove, ...]
    cost: float  # of all properties of the expectation as they would be
    more: float  # than now, with what acting costs
    broken: tuple[str, ...] = ()  # expectations that would not be satisfied any more
    loss: float = 0.0  # their utility in all


class AdaptationCase(msgspec.Struct, frozen=True):
    """What is to be decided. All options break less than the expectation is worth."""

    expectation: str
    utility: float
    missing: int  # publishers
    options: tuple[Option, ...]  # of different sources, those first that lack the fewest properties
    # What it costs now to satisfy another expectation of the same subscription, None: none is.
    other_cost: float | None = None
    is_outranked: bool = False  # that one is wanted more


class AdaptationChoice(msgspec.Struct, frozen=True):
    """The options to take, or why not."""

    options: tuple[Option, ...]
    decision: AdaptationDecision = AdaptationDecision.ADAPTING


class AdaptationStrategy(Protocol):
    """`frees`: publishers are advised to do less where less is needed.

    Then an alternative that is satisfied while a better one is needs nothing. Nothing should be
    done for it in the first place: it would be undone at once.
    """

    name: str
    frees: bool

    def decide(self, case: AdaptationCase) -> AdaptationChoice: ...


class Pareto:
    """Decline only who has another expectation satisfied and would cost more than that does."""

    name = "pareto"
    frees = False

    def decide(self, case: AdaptationCase) -> AdaptationChoice:
        chosen = sorted(case.options, key=lambda option: option.cost)[: case.missing]
        cost = sum(option.cost for option in chosen)
        if case.other_cost is not None and cost > case.other_cost:
            return AdaptationChoice((), AdaptationDecision.TOO_COSTLY)
        return AdaptationChoice(tuple(chosen))


class ParetoReleasing(Pareto):
    """The same, and what expectations needed that are gone is given back."""

    name = "freeing"
    frees = True

    def decide(self, case: AdaptationCase) -> AdaptationChoice:
        return (
            AdaptationChoice((), AdaptationDecision.OUTRANKED)
            if case.is_outranked
            else super().decide(case)
        )


class Cheapest:
    """As little more cost as possible, and none that is higher than the utility it brings."""

    name = "cheapest"
    frees = True

    def decide(self, case: AdaptationCase) -> AdaptationChoice:
        if case.is_outranked:
            return AdaptationChoice((), AdaptationDecision.OUTRANKED)
        chosen = sorted(case.options, key=lambda option: option.more + option.loss)[: case.missing]
        more = sum(option.more + option.loss for option in chosen)
        if more > case.utility:
            return AdaptationChoice((), AdaptationDecision.TOO_COSTLY)
        return AdaptationChoice(tuple(chosen))


STRATEGIES: Final[Mapping[str, type[Pareto] | type[Cheapest]]] = {
    each.name: each for each in (Pareto, Cheapest, ParetoReleasing)
}


def strategy_named(name: str) -> AdaptationStrategy:
    if name not in STRATEGIES:
        expected = ", ".join(STRATEGIES)
        raise QualityError("strategy", f"expected one of {expected}, got {shown(name)}")
    return STRATEGIES[name]()
