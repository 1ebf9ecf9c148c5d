"""Priority bins: two for each importance, the better one for what is light.

Among equals, what takes little goes before what takes much: it hardly delays the others. What is
light is learned per channel, and kept to until the mean has clearly left it, so that a channel
near the limit does not change between bins (and overtake itself) with every event.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.importance import IMPORTANCES

BINS: Final = 2 * IMPORTANCES

LIGHT_US: Final = 1_000  # of CPU time

_SHARE: Final = 0.125  # of a new value in the mean
_HEAVY_FROM: Final = 1.25  # times the limit, for what was light
_LIGHT_FROM: Final = 0.75  # times the limit, for what was heavy


def bin_of(importance: int, mean: float, light_below: float) -> int:
    """The bin of something that takes `mean`."""
    return 2 * importance + (1 if mean < light_below else 0)


class CostEstimate:
    """The exponential mean of what something takes, and whether that is light."""

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
