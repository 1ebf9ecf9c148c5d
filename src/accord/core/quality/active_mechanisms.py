"""Mechanisms that this node applies to a publisher's events on a channel, by negotiation.

A rate filter affects only subscribers with expectations of that rate: they gain nothing from more
events than they need. Subscribers without expectations receive everything.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.importance import IMPORTANCES
from accord.core.policy.grants import Grant
from accord.core.quality.notices import ApplyMechanism, MechanismStep

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
        self.lifts: dict[PublisherChannel, GrantAdjustment] = {}
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
            self.lifts.setdefault(place, GrantAdjustment()).raised[act.reaction] = True
        elif act.step is MechanismStep.SHAPE and target:
            leaves_ms = max(1, round(target))
            self.lifts.setdefault(place, GrantAdjustment()).leaves_ms[act.reaction] = leaves_ms
        else:
            return False
        self._steps.setdefault(act.reaction, {})[act.step, place] = True
        return True

    def withdraw(self, reaction: int) -> None:
        for step, place in self._steps.pop(reaction, {}):
            if step is MechanismStep.FILTER_RATE:
                self.filters.pop(place, None)
                continue
            lift = self.lifts[place]
            (lift.raised if step is MechanismStep.RAISE_IMPORTANCE else lift.leaves_ms).pop(
                reaction
            )
            if not lift:
                del self.lifts[place]
