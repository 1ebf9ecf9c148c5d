"""What a node does to what a publisher sends on a channel, while a negotiation wants that.

A rate is filtered for those only who have expectations of it: for them nothing is gained by more
than they need. Whoever subscribed without any gets everything.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.importance import IMPORTANCES
from accord.core.negotiation.notices import Act, Step
from accord.core.qos.grants import Grant

FILTERED: Final = "rate filtered"
HIGHER: Final = 2  # levels of importance
Place = tuple[str, str]  # channel and publisher


class RateFilter:
    """Lets through so many events a second, evenly."""

    def __init__(self, rate_hz: float) -> None:
        self.rate_hz = rate_hz
        self._next_us = 0

    def passes(self, now_us: int) -> bool:
        if now_us < self._next_us:
            return False
        every_us = int(1e6 / self.rate_hz) if self.rate_hz > 0 else 1_000_000
        # One that came somewhat late must not lower the rate.
        is_steady = now_us - self._next_us < every_us
        self._next_us = (self._next_us if is_steady else now_us) + every_us
        return True


class Acts:
    """Those in effect."""

    def __init__(self) -> None:
        self.filters: dict[Place, RateFilter] = {}
        self.raised: dict[Place, int] = {}  # how many reactions want it
        self._steps: dict[int, dict[tuple[Step, Place], Act]] = {}  # by the reaction's number

    def __len__(self) -> int:
        return sum(map(len, self._steps.values()))

    def apply(self, act: Act) -> bool:
        """False where this is nothing that can be done to events."""
        place = act.channel, act.publisher
        steps = self._steps.setdefault(act.reaction, {})
        is_new = (act.step, place) not in steps
        if act.step is Step.FILTER_RATE and isinstance(act.target, (int, float)):
            self.filters[place] = RateFilter(float(act.target))
        elif act.step is Step.RAISE_IMPORTANCE:
            self.raised[place] = self.raised.get(place, 0) + is_new
        else:
            if not steps:
                del self._steps[act.reaction]
            return False
        steps[act.step, place] = act
        return True

    def withdraw(self, reaction: int) -> None:
        for step, place in self._steps.pop(reaction, {}):
            if step is Step.FILTER_RATE:
                self.filters.pop(place, None)
                continue
            self.raised[place] -= 1
            if not self.raised[place]:
                del self.raised[place]


def raised_grant(grant: Grant) -> Grant:
    """The same at a higher importance."""
    return Grant(
        min(grant.importance + HIGHER, IMPORTANCES - 1),
        grant.deadline_ms,
        grant.shaping,
        grant.max_bytes,
        grant.max_pixels,
        grant.is_replacing,
        grant.policy,
        grant.deadline_policy,
        grant.shaping_policy,
    )
