"""Round-trip time estimator: smoothed mean and deviation as in TCP (RFC 6298), with outliers.

A lasting change of the round-trip time must be adopted after a few samples, and a single delayed
sample must not look like one. So an outlier is held back until the next sample. If that is an
outlier in the same direction, the nearer of the two becomes the mean at once, and the next may move
it further; otherwise the outlier is clipped to the usual range.
"""

from __future__ import annotations

from typing import Final

_MEAN_SHARE: Final = 1 / 8
_DEVIATION_SHARE: Final = 1 / 4
_DEVIATIONS: Final = 4
_LATENESS_US: Final = 10_000  # delay that a timer, an event loop or a kernel may always add


class RttEstimator:
    """Mean and deviation of the round-trip time; `mean_us` is 0 before the first sample."""

    __slots__ = ("_doubted_us", "deviation_us", "is_measured", "mean_us")

    def __init__(self) -> None:
        self.mean_us = 0.0
        self.deviation_us = 0.0
        self.is_measured = False
        self._doubted_us: int | None = None  # the last sample, if it was an outlier

    def copy(self) -> RttEstimator:
        copied = RttEstimator()
        copied.mean_us = self.mean_us
        copied.deviation_us = self.deviation_us
        copied.is_measured = self.is_measured
        copied._doubted_us = self._doubted_us
        return copied

    def begin_anew(self) -> None:
        """The network path may have changed: the next sample replaces the old values."""
        self.is_measured = False
        self._doubted_us = None

    def usual_us(self) -> float:
        """Upper limit of the usual range."""
        return self.mean_us + self._spread_us()

    def measure(self, took_us: int) -> None:
        if not self.is_measured:
            self.is_measured = True
            self.mean_us = float(took_us)
            self.deviation_us = took_us / 2
            return
        doubted_us, self._doubted_us = self._doubted_us, None
        side = self._side(took_us)
        if doubted_us is not None and side and self._side(doubted_us) == side:
            self.mean_us = float((min if side > 0 else max)(took_us, doubted_us))
            # The nearer one may have been sent when only one direction had changed.
            self._doubted_us = took_us
            return
        if doubted_us is not None:
            self._smooth(doubted_us)
        if side:
            self._doubted_us = took_us
        else:
            self._smooth(took_us)

    def _smooth(self, took_us: int) -> None:
        spread_us = self._spread_us()
        off_us = min(max(took_us - self.mean_us, -spread_us), spread_us)
        self.deviation_us += (abs(off_us) - self.deviation_us) * _DEVIATION_SHARE
        self.mean_us += off_us * _MEAN_SHARE

    def _side(self, took_us: int) -> int:
        """Side of the mean of an outlier: 1 or -1; 0 if it is none."""
        off_us = took_us - self.mean_us
        return 0 if abs(off_us) <= self._spread_us() else 1 if off_us > 0 else -1

    def _spread_us(self) -> float:
        """Half-width of the usual range around the mean."""
        return max(_DEVIATIONS * self.deviation_us, _LATENESS_US)
