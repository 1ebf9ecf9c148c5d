"""Priority bins: two per importance, the higher one for light entries.

Among equals, light entries go before heavy ones: they hardly delay them. Whether a channel is light
is learned from its mean cost, with hysteresis, so that a channel near the limit does not change
bins (and reorder its own events) with every event.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.importance import IMPORTANCES

BINS: Final = 2 * IMPORTANCES

LIGHT_US: Final = 1_000  # of CPU time

_SHARE: Final = 0.125  # weight of a new value in the mean
_HEAVY_FROM: Final = 1.25  # times the limit, to become heavy
_LIGHT_FROM: Final = 0.75  # times the limit, to become light


def bin_of(importance: int, mean: float, light_below: float) -> int:
    """The bin for a mean cost."""
    return 2 * importance + (1 if mean < light_below else 0)


class CostEstimate:
    """Exponential mean of a cost, classified as light or heavy."""

    def __init__(self, light_below: float) -> None:
        self.light_below: float = light_below
        self.mean: float = 0.0
        self.is_light: bool = True
        self.is_known: bool = False

    def add(self, value: float) -> None:
        if not self.is_known:
            self.is_known = True
            self.mean = value
            self.is_light = value < self.light_below
            return
        self.mean += _SHARE * (value - self.mean)
        if self.is_light:
            self.is_light = self.mean < _HEAVY_FROM * self.light_below
        else:
            self.is_light = self.mean < _LIGHT_FROM * self.light_below

    def bin(self, importance: int) -> int:
        return 2 * importance + 1 if self.is_light else 2 * importance
