"""How long answers take: a mean and a deviation, smoothed as TCP does it (RFC 6298).

A link that suddenly takes another time must be known to do so after a few answers, and one answer
that was held up must not look like that. So an answer far off the usual is doubted until the next
one: if that is far off in the same direction, the nearer of the two is the new mean at once, and
the next may move it further; if not, it counts for no more than what is just usual.
"""

from __future__ import annotations

from typing import Final

_MEAN_SHARE: Final = 1 / 8
_DEVIATION_SHARE: Final = 1 / 4
_DEVIATIONS: Final = 4
_LATENESS_US: Final = 10_000  # what a timer, a loop or a kernel may be late at any time


class RttEstimator:
    """`mean_us` is 0 while nothing `is_measured`."""

    __slots__ = ("_doubted_us", "deviation_us", "is_measured", "mean_us")

    def __init__(self) -> None:
        self.mean_us = 0.0
        self.deviation_us = 0.0
        self.is_measured = False
        self._doubted_us: int | None = None  # what the last answer took, if that was far off

    def copy(self) -> RttEstimator:
        copied = RttEstimator()
        copied.mean_us = self.mean_us
        copied.deviation_us = self.deviation_us
        copied.is_measured = self.is_measured
        copied._doubted_us = self._doubted_us
        return copied

    def begin_anew(self) -> None:
        """It may be another way from now on; until that is measured the old figures are all."""
        self.is_measured = False
        self._doubted_us = None

    def usual_us(self) -> float:
        """What takes longer is far off."""
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
            # The nearer one may have gone when only half of its way had changed.
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
        """On which side of the mean it is far off: 1, -1, or 0 where it is not."""
        off_us = took_us - self.mean_us
        return 0 if abs(off_us) <= self._spread_us() else 1 if off_us > 0 else -1

    def _spread_us(self) -> float:
        """What is further off the mean is far off."""
        return max(_DEVIATIONS * self.deviation_us, _LATENESS_US)
