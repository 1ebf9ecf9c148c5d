"""Publishes the pipeline's measurements to the running system: which values, and when.

Fresh values cost nothing: the archive's batches count events per channel. They are published every
few seconds, and at once when a rate steps. Slower ones take Spark jobs over the recent part of the
tables, about every minute, soon after a step, and seldom while nothing is archived: rates and
selectivity of predicates, rates of sources and how well they are delivered, availability of nodes
and links.

Rates are those of `core.model.estimator`, with the bound that admission reserves. Where Spark
counts, it counts by age: in the slots of SLOTS_MS, which get longer as an estimator's spans do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from threading import Lock
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.core.model.estimator import HORIZON_MS, SILENT, Rate, RateEstimator
from accord.core.monitoring.measurement_registry import (
    BOUND,
    DELIVERED,
    FAILURE,
    IN_TIME,
    parts_of,
    subject_of,
)
from accord.core.monitoring.sightings import LINKS
from accord.core.queries.messages import Measure, MeasuredValues, WatchedPredicate
from accord.pipeline.datasets.availability import availability, sightings
from accord.pipeline.datasets.losses import between
from accord.pipeline.datasets.quality import quality
from accord.pipeline.datasets.selectivity import matches, most_used
from accord.pipeline.decode.attributes import Declared

MOST: Final = 1_000  # subjects per kind
DAY_MS: Final = 86_400_000
SLOTS_MS: Final = tuple(
    1_000 * second for second in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 300)
)
_PAUSE_MS: Final = 2_000  # a longer time between two batches had no events
_BATCH_MS: Final = 500  # time of the events in a batch after a pause
_MAX_SIGHTINGS: Final = 100_000
_LATE_MS: Final = 600_000  # entries of a node may be archived so much later than another's
_SOON_MS: Final = 10_000  # after a step
_STEP: Final = 0.3  # share of a rate, and
_SAMPLE: Final = 100  # events
_STEP_HZ: Final = 1.0  # events per second that it changes by at least

Counts = Mapping[str, tuple[int, int]]  # channel -> events, bytes of payload


class Rates:
    """Events and bytes per second of each channel, updated per batch.

    A batch has what came since the one before, or since shortly before it if there was a pause. Its
    events are counted in that time, not when it ends: batches may take seconds. Until the next one
    is overdue, rates are those at the end of the last.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._channels: dict[str, RateEstimator] = {}
        self._from_ms = 0  # when the last batch began, and
        self._done_ms = 0  # ended

    def add(self, counts: Counts, *, at_ms: int, took_ms: int = 0) -> None:
        """Add a batch that is done; channels beyond the bound are omitted."""
        began_ms = max(at_ms - took_ms, self._from_ms + 1)
        has_paused = began_ms - self._done_ms > _PAUSE_MS
        since_ms = began_ms - _BATCH_MS if has_paused else self._from_ms
        self._from_ms, self._done_ms = began_ms, max(at_ms, began_ms)
        for channel, (events, size) in counts.items():
            known = self._channels.get(channel)
            if events <= 0 or (known is None and len(self._channels) >= self._most):
                continue
            if known is None:
                known = self._channels[channel] = RateEstimator()
            known.add(since_ms, began_ms, events, size)

    def reached_ms(self, now_ms: int) -> int:
        """Until when all events are counted."""
        overdue_ms = 2 * (self._done_ms - self._from_ms) + _PAUSE_MS
        return max(self._from_ms, now_ms - overdue_ms)

    def stepped(self, published: Mapping[str, Rate], *, now_ms: int) -> dict[str, Rate]:
        """Return the rates that differ much from what was published of them."""
        at_ms = self.reached_ms(now_ms)
        return {
            channel: rate
            for channel, each in self._channels.items()
            if _is_step(published.get(channel, SILENT).hz, each.latest_hz(at_ms))
            and _is_step(published.get(channel, SILENT).hz, (rate := each.rate(at_ms)).hz)
        }

    def take(self, *, now_ms: int) -> dict[str, Rate]:
        """Return all rates; a silent channel is included once more before it is removed."""
        at_ms = self.reached_ms(now_ms)
        found = {channel: each.rate(at_ms) for channel, each in self._channels.items()}
        for channel, rate in found.items():
            if rate == SILENT:
                del self._channels[channel]
        return found


class RecentSightings:
    """The sightings of the last day; each is read from the archive once."""

    def __init__(self) -> None:
        self._rows: deque[dict[str, Any]] = deque(maxlen=_MAX_SIGHTINGS)  # in order of the archive
        self._seen: dict[str, int] = {}  # by node: last offset
        self._read_ms: int | None = None
        self._newest_ms: int | None = None

    def since_ms(self, now_ms: int) -> int:
        """The ledger is needed from then on."""
        if self._read_ms is None:
            return now_ms - DAY_MS
        reached_ms = self._read_ms if self._newest_ms is None else self._newest_ms
        return max(min(reached_ms, self._read_ms) - _LATE_MS, now_ms - DAY_MS)

    def measure(self, ledger: DataFrame, *, now_ms: int) -> list[Measure]:
        """Availability of links and nodes, including what is new in the ledger."""
        self._read(ledger)
        self._read_ms = now_ms
        while self._rows and self._rows[0]["until_us"] < (now_ms - DAY_MS) * 1_000:
            self._rows.popleft()
        if not self._rows:
            return []
        table = pa.Table.from_pylist(list(self._rows))
        times = {name: F.timestamp_micros(F.col(f"{name}_us")) for name in ("since", "until")}
        seen = ledger.sparkSession.createDataFrame(table).withColumns(times)
        names = ("availability", FAILURE, "mean_up_s", "mean_down_s")
        return [
            Measure(
                "link" if row["channel"] == LINKS else "node",
                subject_of(row["observer"], row["subject"]),
                name,
                row[name],
                now_ms,
            )
            for row in availability(seen).orderBy(F.desc("down_s")).limit(2 * MOST).collect()
            for name in names
            if row[name] is not None
        ]

    def _read(self, ledger: DataFrame) -> None:
        is_new = F.lit(True)
        for node, offset in self._seen.items():
            is_new &= (F.col("node") != node) | (F.col("offset") > offset)
        new = sightings(ledger.where(is_new)).select(
            "*", F.unix_micros("since").alias("since_us"), F.unix_micros("until").alias("until_us")
        )
        for row in new.drop("since", "until").orderBy("until_us", "since_us").collect():
            self._rows.append(row.asDict())
            self._seen[row["node"]] = max(self._seen.get(row["node"], -1), row["offset"])
            self._newest_ms = max(self._newest_ms or 0, row["until_us"] // 1_000)


class MeasurementPublisher:
    """What to measure, and when. One thread counts batches, another takes rates."""

    def __init__(self, *, fresh_every_ms: int = 5_000, slow_every_ms: int = 60_000) -> None:
        self._rates = Rates()
        self._sightings = RecentSightings()
        self._fresh_every_ms = fresh_every_ms
        self._slow_every_ms = slow_every_ms
        self._fresh_ms = 0
        self._slow_ms: int | None = None
        self._published: dict[str, Rate] = {}  # by channel
        self._has_stepped = False  # since the slow measurements
        self._is_idle = False  # no batch since then
        self._watched: tuple[WatchedPredicate, ...] = ()
        self._is_counting = False
        self._lock = Lock()

    def watch(self, predicates: Sequence[WatchedPredicate]) -> None:
        self._watched = tuple(most_used(predicates))

    def count(self, counts: Counts, *, at_ms: int, took_ms: int = 0) -> None:
        """Add the counts of an archive batch."""
        self._is_counting = True
        self._is_idle = False
        with self._lock:
            self._rates.add(counts, at_ms=at_ms, took_ms=took_ms)

    def fresh(self, *, now_ms: int) -> MeasuredValues | None:
        """Return the rates of channels that are due: of all, or of those that stepped."""
        is_due = now_ms - self._fresh_ms >= self._fresh_every_ms
        with self._lock:
            stepped = self._rates.stepped(self._published, now_ms=now_ms)
            rates = self._rates.take(now_ms=now_ms) if is_due else stepped
        if is_due:
            self._fresh_ms = now_ms
            self._published = {channel: rate for channel, rate in rates.items() if rate != SILENT}
        else:
            self._published |= rates
        self._has_stepped = self._has_stepped or bool(stepped)
        found = [
            each
            for name, rate in rates.items()
            for each in _measures("channel", name, rate, now_ms)
        ]
        return MeasuredValues(tuple(found)) if found else None

    def is_due(self, *, now_ms: int) -> bool:
        """Whether `measure` is due; the first time is some while after the start."""
        if self._slow_ms is None:
            self._slow_ms = now_ms
        every_ms = self._slow_every_ms
        if self._has_stepped:
            every_ms = min(_SOON_MS, every_ms)
        elif self._is_idle:
            every_ms = max(HORIZON_MS, every_ms)  # until all that came is too old
        return now_ms - self._slow_ms >= every_ms

    def since_ms(self, *, now_ms: int) -> tuple[int, int]:
        """From when on `measure` needs the events, and the ledger."""
        return now_ms - HORIZON_MS, min(now_ms - HORIZON_MS, self._sightings.since_ms(now_ms))

    def measure(
        self,
        events: DataFrame,
        ledger: DataFrame,
        *,
        now_ms: int,
        declared: Declared = MappingProxyType({}),
    ) -> MeasuredValues:
        """Run the slow measurements over the recent part of the tables."""
        self._slow_ms, self._has_stepped, self._is_idle = now_ms, False, self._is_counting
        with self._lock:
            until_ms = self._rates.reached_ms(now_ms)
        recent = between(events, "received", until_ms - HORIZON_MS, until_ms)
        measures = [*_of_sources(recent, until_ms, now_ms)]
        if not self._is_counting:
            measures += _of_channels(measures, now_ms)
        if self._watched:
            measures += _of_predicates(recent, self._watched, until_ms, now_ms, declared)
        measures += _of_deliveries(between(ledger, "done", now_ms - HORIZON_MS, now_ms), now_ms)
        measures += self._sightings.measure(ledger, now_ms=now_ms)
        return MeasuredValues(tuple(measures))


def _is_step(before_hz: float, after_hz: float) -> bool:
    change = abs(after_hz - before_hz)
    return change > _STEP_HZ and change > _STEP * max(before_hz, after_hz)


def _measures(kind: str, subject: str, rate: Rate, now_ms: int) -> list[Measure]:
    values = (("rate_hz", rate.hz), (BOUND, rate.bound_hz), ("bytes_per_s", rate.bytes_per_s))
    return [Measure(kind, subject, name, value, now_ms) for name, value in values]


def slot_of(column: str, until_ms: int) -> Column:
    """The slot of a timestamp by its age at `until_ms`, the youngest first."""
    age_ms = F.lit(until_ms) - F.unix_millis(column)
    slot = F.lit(0)
    for from_ms in SLOTS_MS[1:-1]:
        slot += (age_ms > from_ms).cast("int")
    return slot


def rate_of(slots: Mapping[int, tuple[int, int]], until_ms: int) -> Rate:
    """The rate at `until_ms` of events and bytes by slot, from the first that has any."""
    estimator = RateEstimator()
    edges = list(enumerate(pairwise(SLOTS_MS)))
    for slot, (from_ms, before_ms) in reversed(edges):
        events, size = slots.get(slot, (0, 0))
        if events:
            estimator.add(until_ms - before_ms, until_ms - from_ms, events, size)
    return estimator.rate(until_ms)


def _of_sources(events: DataFrame, until_ms: int, now_ms: int) -> Iterator[Measure]:
    size = F.coalesce("payload_bytes", F.lit(0))
    slotted = events.select(
        "publisher", "channel", slot_of("received", until_ms).alias("slot"), size.alias("size")
    )
    counted = slotted.groupBy("publisher", "channel", "slot").agg(
        F.count(F.lit(1)).alias("events"), F.sum("size").alias("bytes")
    )
    found = counted.groupBy("publisher", "channel").agg(
        F.sum("events").alias("all"), F.collect_list(F.struct("slot", "events", "bytes"))
    )
    for publisher, channel, _, slots in found.orderBy(F.desc("all")).limit(MOST).collect():
        rate = rate_of({slot: (count, size) for slot, count, size in slots}, until_ms)
        yield from _measures("publisher", subject_of(publisher, channel), rate, now_ms)


def _of_channels(of_sources: Iterable[Measure], now_ms: int) -> Iterator[Measure]:
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
    until_ms: int,
    now_ms: int,
    declared: Declared,
) -> Iterator[Measure]:
    """Rates, and the share of what came while the rate was what it is now."""
    slot = slot_of("received", until_ms)
    counted = matches(events, watched, slot=slot, slots=len(SLOTS_MS) - 1, declared=declared)
    slots: dict[int, dict[int, tuple[int, int, int]]] = {}
    for row in counted.collect():
        slots.setdefault(row["index"], {})[row["slot"]] = row["seen"], row["matched"], row["bytes"]
    for index, of_index in sorted(slots.items()):
        each = watched[index]
        subject = subject_of(each.channel, each.where, each.xpath)
        if any(seen for seen, _, _ in of_index.values()):
            yield Measure("predicate", subject, "selectivity", _share(of_index), now_ms)
        rate = rate_of({key: (count, size) for key, (_, count, size) in of_index.items()}, until_ms)
        yield from _measures("predicate", subject, rate, now_ms)


def _share(slots: Mapping[int, tuple[int, int, int]]) -> float:
    """Share that matched of the latest events, of a hundred at least if there were so many."""
    all_seen = all_matched = 0
    for _, (seen, matched, _) in sorted(slots.items()):
        all_seen += seen
        all_matched += matched
        if all_seen >= _SAMPLE:
            break
    return all_matched / all_seen


def _of_deliveries(ledger: DataFrame, now_ms: int) -> Iterator[Measure]:
    """How much of each source arrives, and the share of it that arrives in time."""
    found = quality(ledger, "publisher", "channel", seconds=HORIZON_MS / 1_000)
    used = found.where((F.col("channel") != "") & (F.col("publisher") != ""))
    columns = used.select("publisher", "channel", "rate_hz", "in_time", "events")
    for row in columns.orderBy(F.desc("events")).limit(MOST).collect():
        subject = subject_of(row["publisher"], row["channel"])
        yield Measure("publisher", subject, DELIVERED, row["rate_hz"], now_ms)
        if row["in_time"] is not None:
            yield Measure("publisher", subject, IN_TIME, row["in_time"], now_ms)
