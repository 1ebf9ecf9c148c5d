"""Time series with summaries over a window, and rates of counters.

A series is a pair of ring buffers. Adding takes constant time; a summary is computed on demand over
the few points of the window, because running sums would lose precision over days. A summary has
last value, mean, deviation and trend; the trend is the slope of the least-squares line, in units
per second.

The rate of a counter is the increase between the first and the last of a few samples: with only
two, the rate of rare or large events would fluctuate.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from math import isfinite, sqrt
from typing import Final

from msgspec import Struct

from accord.core.monitoring.statistics import WAIT_BUCKETS

WINDOW_MS: Final = 10_000
POINTS: Final = 300  # five minutes of one per second


class Summary(Struct, frozen=True, kw_only=True):
    """Summary of a series; if the window has no points, only `last` is known."""

    name: str
    last: float
    last_ms: int
    count: int = 0
    mean: float | None = None
    deviation: float | None = None
    trend: float | None = None


class Series:
    """The last `capacity` points of a repeated measurement."""

    __slots__ = ("_capacity", "_head", "_times", "_values")

    def __init__(self, capacity: int = POINTS) -> None:
        if capacity < 1:
            raise ValueError(f"expected room for at least one point, got {capacity}")
        self._capacity = capacity
        self._times = array("q")
        self._values = array("d")
        self._head = 0  # index of the oldest point, when full

    def add(self, time_ms: int, value: float) -> None:
        """Add a point no older than the previous ones; ignores values that are not finite."""
        if not isfinite(value):
            return
        if len(self._times) < self._capacity:
            self._times.append(time_ms)
            self._values.append(value)
            return
        self._times[self._head] = time_ms
        self._values[self._head] = value
        self._head = (self._head + 1) % self._capacity

    def __len__(self) -> int:
        return len(self._times)

    def newest_first(self) -> Iterator[tuple[int, float]]:
        length = len(self._times)
        for back in range(1, length + 1):
            index = (self._head - back) % length
            yield self._times[index], self._values[index]

    def points(self) -> list[tuple[int, float]]:
        """Return time and value of each point, oldest first."""
        return list(self.newest_first())[::-1]

    def last(self) -> float | None:
        return next((value for _, value in self.newest_first()), None)

    def summary(self, name: str, *, now_ms: int, window_ms: int = WINDOW_MS) -> Summary | None:
        """Summarise the points of the last `window_ms`; None if there never was one."""
        if not self._times:
            return None
        last_ms, last = next(self.newest_first())
        times: list[float] = []
        values: list[float] = []
        for time_ms, value in self.newest_first():
            if time_ms <= now_ms - window_ms:
                break
            times.append((time_ms - last_ms) / 1_000)
            values.append(value)
        if not values:
            return Summary(name=name, last=last, last_ms=last_ms)
        mean = sum(values) / len(values)
        return Summary(
            name=name,
            last=last,
            last_ms=last_ms,
            count=len(values),
            mean=mean,
            deviation=sqrt(sum((value - mean) ** 2 for value in values) / len(values)),
            trend=_slope(times, values, mean),
        )


def _slope(times: list[float], values: list[float], mean: float) -> float | None:
    """Return the slope of the least-squares line; None if all points have the same time."""
    middle = sum(times) / len(times)
    spread = sum((time - middle) ** 2 for time in times)
    if not spread:
        return None
    together = zip(times, values, strict=True)
    return sum((time - middle) * (value - mean) for time, value in together) / spread


class SeriesRegistry:
    """Series by name, up to `limit`; beyond it, the least recently updated is evicted."""

    def __init__(self, limit: int = 4_096, *, capacity: int = POINTS) -> None:
        self._limit = limit
        self._capacity = capacity
        self._series: OrderedDict[str, Series] = OrderedDict()

    def add(self, name: str, time_ms: int, value: float) -> None:
        series = self._series.get(name)
        if series is None:
            while len(self._series) >= self._limit:
                self._series.popitem(last=False)
            series = self._series[name] = Series(self._capacity)
        else:
            self._series.move_to_end(name)
        series.add(time_ms, value)

    def get(self, name: str) -> Series | None:
        return self._series.get(name)

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self._series if name.startswith(prefix))

    def __len__(self) -> int:
        return len(self._series)


SAMPLES: Final = 3

Counts = tuple[int, ...]
Sample = tuple[int, Counts]  # time and counts


class CounterRates:
    """Rates over the last `SAMPLES` samples, starting from a base sample."""

    __slots__ = ("_samples",)

    def __init__(self, time_ms: int, counts: Counts) -> None:
        self._samples: tuple[Sample, ...] = ((time_ms, counts),)

    def add(self, time_ms: int, counts: Counts) -> None:
        self.add_sample((time_ms, counts))

    def add_sample(self, sample: Sample) -> None:
        """Add a sample, which several `CounterRates` may share."""
        self._samples = (*self._samples[-SAMPLES:], sample)

    @property
    def last(self) -> Counts:
        return self._samples[-1][1]

    @property
    def is_idle(self) -> bool:
        """Whether nothing changed over all samples."""
        return len(self._samples) > SAMPLES and self._samples[0][1] == self._samples[-1][1]

    def added(self) -> Counts:
        pairs = zip(self._samples[0][1], self._samples[-1][1], strict=True)
        return tuple(max(after - before, 0) for before, after in pairs)

    def rates(self) -> list[float]:
        """Return rates per second; 0 for a counter that was reset."""
        elapsed_ms = self._samples[-1][0] - self._samples[0][0]
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
