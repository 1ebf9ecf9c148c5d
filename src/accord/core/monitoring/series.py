"""Time series with summaries over a window, and rates of counters.

A series is a pair of ring buffers for 15 minutes, with 12 bytes per point. Adding takes constant
time; a summary is computed on demand over the few points of the window, because running sums would
lose precision over days. A summary has last value, mean, deviation and trend; the trend is the
slope of the least-squares line, in units per second. All series together have at most
`MAX_POINTS`, 30 MB.

The rate of a counter is the increase between the first and the last of a few samples: with only
two, the rate of rare or large events would fluctuate.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, sqrt
from typing import Final

from msgspec import Struct

from accord.core.monitoring.statistics import WAIT_BUCKETS

WINDOW_MS: Final = 10_000
POINTS: Final = 900  # 15 minutes of one per second
MAX_POINTS: Final = 2_500_000
_MAX_OFFSET_MS: Final = (1 << 32) - 1


_UNITS: Final = {
    "hz": "1/s", "kbps": "kbit/s", "ms": "ms", "percent": "%", "mb": "MB", "bytes": "bytes",
}  # fmt: skip


def unit_of_series(name: str) -> str | None:
    """Return the unit of a series, the last word of its quantity: `channel/latency_ms/a` has ms."""
    kind, _, rest = name.partition("/")
    quantity = rest.partition("/")[0] if kind in ("channel", "client", "importance") else kind
    return _UNITS.get(quantity.rpartition("_")[2])


def channel_of_series(name: str) -> str | None:
    """Return the channel that a series is about; None if it is about none."""
    if not name.startswith("channel/"):
        return None
    return name.split("/", 2)[-1]


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

    __slots__ = ("_base_ms", "_capacity", "_head", "_times", "_values")

    def __init__(self, capacity: int = POINTS) -> None:
        if capacity < 1:
            raise ValueError(f"expected room for at least one point, got {capacity}")
        self._capacity = capacity
        self._base_ms = 0
        self._times = array("I")  # since the base
        self._values = array("d")
        self._head = 0  # index of the oldest point, when full

    def add(self, time_ms: int, value: float) -> None:
        """Add a point no older than the previous ones; ignores values that are not finite."""
        if not isfinite(value):
            return
        if not self._times:
            self._base_ms = time_ms
        elif not 0 <= time_ms - self._base_ms <= _MAX_OFFSET_MS:
            self._rebase(time_ms)
        offset_ms = time_ms - self._base_ms
        if len(self._times) < self._capacity:
            self._times.append(offset_ms)
            self._values.append(value)
            return
        self._times[self._head] = offset_ms
        self._values[self._head] = value
        self._head = (self._head + 1) % self._capacity

    def __len__(self) -> int:
        return len(self._times)

    def newest_first(self) -> Iterator[tuple[int, float]]:
        length = len(self._times)
        for back in range(1, length + 1):
            index = (self._head - back) % length
            yield self._base_ms + self._times[index], self._values[index]

    def _rebase(self, time_ms: int) -> None:
        """Make room for `time_ms`; points too far from it, by weeks, are dropped."""
        points = [each for each in self.points() if abs(time_ms - each[0]) <= _MAX_OFFSET_MS // 2]
        self._times, self._values, self._head = array("I"), array("d"), 0
        self._base_ms = min([time_ms, *(at_ms for at_ms, _ in points)])
        for at_ms, value in points:
            self._times.append(at_ms - self._base_ms)
            self._values.append(value)

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
    """Series by name, up to `limit` with `max_points`; beyond, the least recently updated go."""

    def __init__(
        self, limit: int = 4_096, *, capacity: int = POINTS, max_points: int = MAX_POINTS
    ) -> None:
        self._limit = limit
        self._capacity = capacity
        self._max_points = max(max_points, capacity)
        self._series: OrderedDict[str, Series] = OrderedDict()
        self.points = 0  # of all series together

    def add(self, name: str, time_ms: int, value: float) -> None:
        series = self._series.get(name)
        if series is None:
            while len(self._series) >= self._limit:
                self._evict()
            series = self._series[name] = Series(self._capacity)
        else:
            self._series.move_to_end(name)
        before = len(series)
        series.add(time_ms, value)
        self.points += len(series) - before
        while self.points > self._max_points:
            self._evict()

    def get(self, name: str) -> Series | None:
        return self._series.get(name)

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self._series if name.startswith(prefix))

    def __len__(self) -> int:
        return len(self._series)

    def _evict(self) -> None:
        _, series = self._series.popitem(last=False)
        self.points -= len(series)


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

    def rate(self, index: int) -> float:
        """Return the rate per second of one counter, as in `rates`."""
        return rate_between(*self.ends, index)

    @property
    def ends(self) -> tuple[Sample, Sample]:
        """The first and the last sample that rates are between."""
        return self._samples[0], self._samples[-1]

    @staticmethod
    def changing(meters: Iterable[tuple[str, CounterRates]], index: int) -> dict[str, float]:
        """Return by name the rates of one counter that are not 0; of thousands, most are."""
        found: dict[str, float] = {}
        for name, meter in meters:
            first_ms, first = meter._samples[0]
            last_ms, last = meter._samples[-1]
            more = last[index] - first[index]
            if more > 0 and last_ms > first_ms:
                found[name] = round(more * 1_000 / (last_ms - first_ms), 3)
        return found

    @property
    def sampled_ms(self) -> int:
        return self._samples[-1][0]


def rate_between(first: Sample, last: Sample, index: int) -> float:
    """Return the rate per second of one counter between two samples."""
    elapsed_ms = last[0] - first[0]
    if elapsed_ms <= 0:
        return 0.0
    return round(max(last[1][index] - first[1][index], 0) * 1_000 / elapsed_ms, 3)


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
