"""Rates of counters: the increase between the first and the last of a few samples.

A few samples and not two, because the rate of rare or large events would fluctuate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accord.core.monitoring.statistics import WAIT_BUCKETS

SAMPLES: Final = 3

Counts = tuple[int, ...]
Look = tuple[int, Counts]  # time and counts


class CounterRates:
    """Rates over the last `SAMPLES` samples, starting from a base sample."""

    __slots__ = ("_looks",)

    def __init__(self, time_ms: int, counts: Counts) -> None:
        self._looks: tuple[Look, ...] = ((time_ms, counts),)

    def add(self, time_ms: int, counts: Counts) -> None:
        self.add_look((time_ms, counts))

    def add_look(self, look: Look) -> None:
        """Add a sample, which several `CounterRates` may share."""
        self._looks = (*self._looks[-SAMPLES:], look)

    @property
    def last(self) -> Counts:
        return self._looks[-1][1]

    @property
    def is_idle(self) -> bool:
        """Whether nothing changed over all samples."""
        return len(self._looks) > SAMPLES and self._looks[0][1] == self._looks[-1][1]

    def added(self) -> Counts:
        pairs = zip(self._looks[0][1], self._looks[-1][1], strict=True)
        return tuple(max(after - before, 0) for before, after in pairs)

    def rates(self) -> list[float]:
        """Return rates per second; 0 for a counter that was reset."""
        elapsed_ms = self._looks[-1][0] - self._looks[0][0]
        if elapsed_ms <= 0:
            return [0.0] * len(self.last)
        return [round(count * 1_000 / elapsed_ms, 3) for count in self.added()]


def kbps(bytes_per_s: float) -> float:
    """Convert to kbit/s."""
    return round(bytes_per_s * 8 / 1_000, 2)


def wait_quantile_ms(counts: Sequence[int], share: float) -> float | None:
    """Return the wait that `share` of all do not exceed, interpolated within its bucket.

    Bucket k holds waits of 2**(k-1) up to 2**k ms, the last one all longer waits. None if all are
    0.
    """
    wanted = share * sum(counts)
    reached = 0
    for bucket, count in enumerate(counts):
        if count and reached + count >= wanted:
            low = 1 << (bucket - 1) if bucket else 0
            if bucket in (0, WAIT_BUCKETS - 1):
                return float(low)
            return round(low + low * (wanted - reached) / count, 1)
        reached += count
    return None
