"""Counts that only grow, as rates: what was added between the first and the last of a few looks.

A few looks and not two, because what comes once in a second or is large would flicker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accord.core.monitoring.statistics import WAIT_BUCKETS

SAMPLES: Final = 3

Counts = tuple[int, ...]
Look = tuple[int, Counts]  # at which time


class CounterRates:
    """Rates of some counts over the last `SAMPLES` looks; begins with how they stood before."""

    __slots__ = ("_looks",)

    def __init__(self, time_ms: int, counts: Counts) -> None:
        self._looks: tuple[Look, ...] = ((time_ms, counts),)

    def add(self, time_ms: int, counts: Counts) -> None:
        self.add_look((time_ms, counts))

    def add_look(self, look: Look) -> None:
        """The same; others may have had the same look."""
        self._looks = (*self._looks[-SAMPLES:], look)

    @property
    def last(self) -> Counts:
        return self._looks[-1][1]

    @property
    def is_idle(self) -> bool:
        """Whether nothing has changed for all of the time."""
        return len(self._looks) > SAMPLES and self._looks[0][1] == self._looks[-1][1]

    def added(self) -> Counts:
        pairs = zip(self._looks[0][1], self._looks[-1][1], strict=True)
        return tuple(max(after - before, 0) for before, after in pairs)

    def rates(self) -> list[float]:
        """Per second; a count that went back was begun anew and has none."""
        elapsed_ms = self._looks[-1][0] - self._looks[0][0]
        if elapsed_ms <= 0:
            return [0.0] * len(self.last)
        return [round(count * 1_000 / elapsed_ms, 3) for count in self.added()]


def kbps(bytes_per_s: float) -> float:
    """In kbit/s."""
    return round(bytes_per_s * 8 / 1_000, 2)


def wait_quantile_ms(counts: Sequence[int], share: float) -> float | None:
    """The wait that `share` of them do not exceed, between the bounds of its bucket; None of none.

    Bucket k holds waits of 2**(k-1) up to 2**k ms, and the last one all that are longer.
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
