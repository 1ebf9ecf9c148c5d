"""Publishes the pipeline's measurements to the running system: which values, and when.

Fresh values cost nothing: the archive's batches count events per channel, and a window over the
last batches gives rates. Slower ones take a Spark job over the recent part of the tables, about
every minute: selectivity of predicates, use of sources, availability of nodes and links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame

from accord.core.monitoring.measurement_registry import parts_of, subject_of
from accord.core.queries.messages import Measure, MeasuredValues, WatchedPredicate
from accord.pipeline.attributes import Declared
from accord.pipeline.datasets.availability import availability
from accord.pipeline.datasets.losses import between, sources
from accord.pipeline.datasets.selectivity import most_used, selectivity

WINDOW_MS: Final = 10_000
MOST: Final = 1_000  # subjects per kind

Counts = Mapping[str, tuple[int, int]]  # channel -> events, bytes of payload


class Rates:
    """Events and bytes per second of each channel over the last `window_ms`, updated per batch.

    A channel that has become silent is reported once more, with 0, before it is removed.
    """

    def __init__(self, window_ms: int = WINDOW_MS, most: int = MOST) -> None:
        self._window_ms = window_ms
        self._most = most
        self._batches: deque[tuple[int, Counts]] = deque()
        self._sums: dict[str, list[int]] = {}

    def add(self, counts: Counts, *, at_ms: int) -> None:
        """Add a batch; channels beyond the bound are omitted."""
        taken: dict[str, tuple[int, int]] = {}
        for channel, (events, size) in counts.items():
            is_new = channel not in self._sums
            if events <= 0 or (is_new and len(self._sums) >= self._most):
                continue
            sums = self._sums.setdefault(channel, [0, 0])
            sums[0] += events
            sums[1] += size
            taken[channel] = events, size
        if taken:
            self._batches.append((at_ms, taken))

    def take(self, *, now_ms: int) -> list[Measure]:
        """Return the current rates."""
        while self._batches and self._batches[0][0] <= now_ms - self._window_ms:
            for channel, (events, size) in self._batches.popleft()[1].items():
                self._sums[channel][0] -= events
                self._sums[channel][1] -= size
        measures = [
            Measure("channel", channel, name, amount * 1_000 / self._window_ms, now_ms)
            for channel, sums in self._sums.items()
            for name, amount in zip(("rate_hz", "bytes_per_s"), sums, strict=True)
        ]
        self._sums = {channel: sums for channel, sums in self._sums.items() if sums[0]}
        return measures


class MeasurementPublisher:
    """What to measure, and when. One thread counts batches, another takes rates."""

    def __init__(
        self,
        *,
        window_ms: int = WINDOW_MS,
        fresh_every_ms: int = 5_000,
        slow_every_ms: int = 60_000,
        recent_ms: int = 300_000,
    ) -> None:
        self.recent_ms: int = recent_ms  # time range of the slow measurements
        self._rates = Rates(window_ms)
        self._fresh_every_ms = fresh_every_ms
        self._slow_every_ms = slow_every_ms
        self._fresh_ms = 0
        self._slow_ms: int | None = None
        self._watched: tuple[WatchedPredicate, ...] = ()
        self._is_counting = False
        self._lock = Lock()

    def watch(self, predicates: Sequence[WatchedPredicate]) -> None:
        self._watched = tuple(most_used(predicates))

    def count(self, counts: Counts, *, at_ms: int) -> None:
        """Add the counts of an archive batch."""
        self._is_counting = True
        with self._lock:
            self._rates.add(counts, at_ms=at_ms)

    def fresh(self, *, now_ms: int) -> MeasuredValues | None:
        """Return the rates of channels, if due."""
        if now_ms - self._fresh_ms < self._fresh_every_ms:
            return None
        self._fresh_ms = now_ms
        with self._lock:
            measures = self._rates.take(now_ms=now_ms)
        return MeasuredValues(tuple(measures)) if measures else None

    def is_due(self, *, now_ms: int) -> bool:
        """Whether `measure` is due; the first time is some while after the start."""
        if self._slow_ms is None:
            self._slow_ms = now_ms
        return now_ms - self._slow_ms >= self._slow_every_ms

    def measure(
        self, events: DataFrame, *, now_ms: int, declared: Declared = MappingProxyType({})
    ) -> MeasuredValues:
        """Run the slow measurements over the recent part of `events`."""
        self._slow_ms = now_ms
        recent = between(events, "received", now_ms - self.recent_ms, now_ms)
        seconds = self.recent_ms / 1_000
        measures = [*_of_sources(recent, seconds, now_ms)]
        if not self._is_counting:
            measures += _of_channels(measures, now_ms)
        if self._watched:
            measures += _of_predicates(recent, self._watched, seconds, now_ms, declared)
        return MeasuredValues(tuple(measures))


def measure_availability(sightings: DataFrame, kind: str, *, now_ms: int) -> MeasuredValues:
    """Measure the nodes or links (`kind`) in a frame that `datasets.availability` accepts."""
    rows = availability(sightings).limit(MOST).collect()
    names = ("availability", "failure_probability", "mean_up_s", "mean_down_s")
    return MeasuredValues(
        tuple(
            Measure(kind, row["subject"], name, row[name], now_ms)
            for row in rows
            for name in names
            if row[name] is not None
        )
    )


def _of_sources(events: DataFrame, seconds: float, now_ms: int) -> Iterable[Measure]:
    by_rate = sources(events, seconds=seconds).orderBy("rate_hz", ascending=False)
    for row in by_rate.limit(MOST).collect():
        subject = subject_of(row["publisher"], row["channel"])
        for name in ("rate_hz", "bytes_per_s"):
            yield Measure("publisher", subject, name, row[name], now_ms)


def _of_channels(of_sources: Iterable[Measure], now_ms: int) -> Iterable[Measure]:
    """Rates of channels if no batches are counted: the sums over their sources."""
    sums: dict[tuple[str, str], float] = {}
    for each in of_sources:
        key = parts_of(each.subject)[-1], each.name
        sums[key] = sums.get(key, 0.0) + each.value
    for (channel, name), value in sums.items():
        yield Measure("channel", channel, name, value, now_ms)


def _of_predicates(
    events: DataFrame,
    watched: Sequence[WatchedPredicate],
    seconds: float,
    now_ms: int,
    declared: Declared,
) -> Iterable[Measure]:
    for row in selectivity(events, watched, seconds=seconds, declared=declared).collect():
        each = watched[row["index"]]
        subject = subject_of(each.channel, each.where, each.xpath)
        for name in ("selectivity", "rate_hz", "bytes_per_s"):
            if row[name] is not None:
                yield Measure("predicate", subject, name, row[name], now_ms)
