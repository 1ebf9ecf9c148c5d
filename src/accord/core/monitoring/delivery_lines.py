"""What destinations got lately, from entries of the ledger: a line per channel or per client.

Entries may come in any order, so that a table can be seeded with older ones while new ones arrive.
Counts and latencies are of a sliding window of 15 minutes, in slices of 15 s; how far back a table
really reaches is its `since_ms`. A percentile is exact up to 8 ms and within an eighth above; it is
that of the last minute, if something came in it, and counts what still waits with its age so far.

A dropped event was replaced, expired, shed or refused. The in-time share is over all events that
should have reached the destination: a replaced one counts for neither side, because its newer event
is what the receiver asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import Final

from msgspec import Struct

from accord.core.model.channels import filter_shows, is_internal
from accord.core.monitoring.ledger import (
    DEADLINE,
    DELIVERED,
    EXPIRED,
    LATE,
    REPLACED,
    SHAPED,
    Row,
    stored_name,
)
from accord.core.monitoring.series import CounterRates

WINDOW_MS: Final = 900_000
SLICE_MS: Final = 15_000
_SLICES: Final = WINDOW_MS // SLICE_MS
_RECENT_SLICES: Final = 4  # besides the current one
_SECONDS: Final = 10
MAX_LINES: Final = 10_000  # further channels or clients are not counted
MAX_POINTS: Final = 300
MAX_NEWEST: Final = 1_000
_MAX_SOURCES: Final = 1_000
_SAMPLE_MS: Final = 500
SOURCES: Final = 5  # shown of each line
_MAX_JUDGED: Final = 10_000  # channels known to match a filter, or not
NODE: Final = "node "  # destination of a hop, followed by the node's name
OTHER_NODES: Final = "other nodes"


RECEIVED: Final = frozenset((DELIVERED, LATE, SHAPED))


def _first_slice(now_ms: int) -> int:
    return now_ms // SLICE_MS - _SLICES + 1


def in_time_share(*, received: float, late: float, missed: float) -> float | None:
    """The share of events that came in time; `missed` are those that expired or were lost."""
    wanted = received + missed
    return round(max(received - late, 0) / wanted, 4) if wanted > 0 else None


def is_client(destination: str) -> bool:
    """Whether the destination of an entry is a client."""
    return bool(destination) and destination != OTHER_NODES and not destination.startswith(NODE)


def _is_event(row: Row) -> bool:
    """Whether an entry is about events: others have no publisher and no size.

    Those say that a subscription was refused, or that history is missing.
    """
    return bool(row[4] or row[9])


def latency_bucket(latency_ms: int) -> int:
    """The bucket of a latency: one per ms below 8, then eight for each power of two."""
    if latency_ms < 8:
        return max(latency_ms, 0)
    power = latency_ms.bit_length() - 4
    return (power << 3) + (latency_ms >> power)


def bucket_bounds_ms(bucket: int) -> tuple[int, int]:
    """The latencies of a bucket: from the first to below the second."""
    if bucket < 8:
        return bucket, bucket + 1
    power = (bucket >> 3) - 1
    low = (8 + (bucket & 7)) << power
    return low, low + (1 << power)


def quantile_ms(counts: Mapping[int, int], share: float) -> float | None:
    """The latency that `share` of all do not exceed, interpolated within its bucket."""
    wanted = share * sum(counts.values())
    reached = 0
    for bucket in sorted(counts):
        count = counts[bucket]
        if reached + count >= wanted:
            low, high = bucket_bounds_ms(bucket)
            width = high - low - 1
            return round(low + width * (wanted - reached) / count, 1)
        reached += count
    return None


class DeliverySummary(Struct, frozen=True, kw_only=True):
    """One line: counts since the table's `since_ms`, latencies, and who decided last."""

    received: int = 0
    dropped: int = 0
    shaped: int = 0
    late: int = 0
    replaced: int = 0  # among the dropped
    rate_hz: float = 0
    last_ms: int | None = None  # when an event was received last
    p50_ms: float | None = None
    p95_ms: float | None = None
    in_time: float | None = None
    importance: int | None = None  # of the latest event
    policy: str = ""  # that decided it
    sources: tuple[str, ...] = ()
    sources_total: int = 0


class WaitingEvents:
    """What waits on one channel for one client, by age."""

    __slots__ = ("ages", "bytes", "events", "oldest_ms")

    def __init__(self) -> None:
        self.events = 0
        self.bytes = 0
        self.oldest_ms = 0
        self.ages: dict[int, int] = {}  # events by bucket, as latencies

    def add(self, events: int, bytes_: int, age_ms: int) -> None:
        self.events += events
        self.bytes += bytes_
        self.oldest_ms = max(self.oldest_ms, age_ms)
        bucket = latency_bucket(age_ms)
        self.ages[bucket] = self.ages.get(bucket, 0) + events


class _Tally:
    """Counts of a slice, or of all slices together."""

    __slots__ = ("dropped", "late", "latencies", "received", "replaced", "shaped")

    def __init__(self) -> None:
        self.received = 0
        self.dropped = 0
        self.shaped = 0
        self.late = 0
        self.replaced = 0
        self.latencies: dict[int, int] = {}

    def add(self, row: Row, latency_ms: int) -> None:
        count, outcome = row[2], row[6]
        if outcome not in RECEIVED:
            self.dropped += count
            self.replaced += count if outcome == REPLACED else 0
            return
        self.received += count
        if outcome == SHAPED:
            self.shaped += count
        if outcome == LATE or (outcome == SHAPED and DEADLINE in row[12]):
            self.late += count
        bucket = latency_bucket(latency_ms)
        self.latencies[bucket] = self.latencies.get(bucket, 0) + count

    def subtract(self, other: _Tally) -> None:
        self.received -= other.received
        self.dropped -= other.dropped
        self.shaped -= other.shaped
        self.late -= other.late
        self.replaced -= other.replaced
        for bucket, count in other.latencies.items():
            left = self.latencies[bucket] - count
            if left:
                self.latencies[bucket] = left
            else:
                del self.latencies[bucket]


class DeliveryLine:
    """The outcomes at one destination on one channel."""

    __slots__ = (
        "_all",
        "_decided",
        "_expired_to",
        "_latest",
        "_seconds",
        "_slices",
        "importance",
        "last_ms",
        "policy",
        "sources",
    )

    def __init__(self) -> None:
        self.last_ms = 0
        self.importance = 0
        self.policy = ""
        self.sources: dict[str, int] = {}  # by name, when last
        self._latest = (0, -1)  # time and number of the latest entry
        self._decided = (0, -1)  # of the latest that says which policy decided the importance
        self._expired_to = 0
        self._all = _Tally()
        self._slices: dict[int, _Tally] = {}
        self._seconds: dict[int, int] = {}  # events received in each of the last ones

    def add(self, row: Row, number: int, received_ms: int, done_ms: int) -> None:
        at = done_ms // SLICE_MS
        if at < self._expired_to:
            return
        each = self._slices.get(at)
        if each is None:
            each = self._slices[at] = _Tally()
        latency_ms = done_ms - received_ms
        each.add(row, latency_ms)
        self._all.add(row, latency_ms)
        if row[6] in RECEIVED:
            self.last_ms = max(self.last_ms, done_ms)
            self._count_recent(done_ms // 1_000, row[2])
        if (done_ms, number) >= self._latest:
            self._latest = done_ms, number
            self.importance = row[10]
        # Others name the policy that decided shaping or the deadline.
        if row[6] not in (SHAPED, EXPIRED, LATE) and (done_ms, number) >= self._decided:
            self._decided = done_ms, number
            self.policy = row[11]
        source = row[4]
        if source and (source in self.sources or len(self.sources) < _MAX_SOURCES):
            self.sources[source] = max(self.sources.get(source, 0), done_ms)

    def newest_source(self) -> str:
        return max(self.sources, key=lambda name: (self.sources[name], name), default="")

    def expire(self, now_ms: int) -> bool:
        """Forget what is older than the window; returns whether nothing is left."""
        first = _first_slice(now_ms)
        if first == self._expired_to:
            return not self._slices
        self._expired_to = first
        expired = [at for at in self._slices if at < first]
        for at in expired:
            self._all.subtract(self._slices.pop(at))
        if expired:
            since_ms = first * SLICE_MS
            self.sources = {name: ms for name, ms in self.sources.items() if ms >= since_ms}
        return not self._slices

    def rank(self) -> float:
        """Sorts lines, the worst first: by the share that came in time, then the busiest."""
        found = self._all
        wanted = found.received + found.dropped - found.replaced
        if not wanted:
            return 2.0
        return (found.received - found.late) / wanted - wanted * 1e-12

    def summary(
        self, now_ms: int, since_ms: int, backlog: WaitingEvents | None = None
    ) -> DeliverySummary:
        """The line, as far as the window goes; `since_ms` is when its table began to count."""
        found = self._all
        latencies = self._latencies(now_ms, backlog)
        missed = found.dropped - found.replaced
        return DeliverySummary(
            received=found.received,
            dropped=found.dropped,
            shaped=found.shaped,
            late=found.late,
            replaced=found.replaced,
            rate_hz=self._rate_hz(now_ms, since_ms),
            last_ms=self.last_ms or None,
            p50_ms=quantile_ms(latencies, 0.5),
            p95_ms=quantile_ms(latencies, 0.95),
            in_time=in_time_share(received=found.received, late=found.late, missed=missed),
            importance=self.importance,
            policy=self.policy,
            sources=tuple(nsmallest(SOURCES, self.sources)),
            sources_total=len(self.sources),
        )

    def _latencies(self, now_ms: int, backlog: WaitingEvents | None) -> Mapping[int, int]:
        """Those of the last minute and of what waits; of the whole window if there are none."""
        first = now_ms // SLICE_MS - _RECENT_SLICES
        recent = Counter({} if backlog is None else backlog.ages)
        for at, each in self._slices.items():
            if at >= first:
                recent.update(each.latencies)
        return recent or self._all.latencies

    def _count_recent(self, second: int, count: int) -> None:
        seconds = self._seconds
        if second not in seconds and len(seconds) > _SECONDS:
            oldest = min(seconds)
            if second < oldest:
                return
            del seconds[oldest]
        seconds[second] = seconds.get(second, 0) + count

    def _rate_hz(self, now_ms: int, since_ms: int) -> float:
        """Events received per second over the last 10 s."""
        first = now_ms // 1_000 - _SECONDS + 1
        recent = sum(count for second, count in self._seconds.items() if second >= first)
        elapsed_ms = now_ms - max(first * 1_000, since_ms)
        return round(recent * 1_000 / max(elapsed_ms, 1_000), 3)


class Deliveries:
    """Base of tables that follow the ledger; `asked_ms` is when somebody wanted it last."""

    def __init__(self, *, now_ms: int) -> None:
        self.asked_ms = now_ms
        self.reaches_back_ms = now_ms  # entries before that time were not seen
        self.is_seeded = False

    @property
    def reach_ms(self) -> int:
        """How long ago an entry may be to count."""
        return WINDOW_MS

    @property
    def is_full(self) -> bool:
        """Whether no older entry would count."""
        return False

    def since_ms(self, now_ms: int) -> int:
        """Since when all entries are counted."""
        return max(self.reaches_back_ms, _first_slice(now_ms) * SLICE_MS)

    def take(self, first_number: int, first_ms: int, rows: Sequence[Row]) -> None:
        """Count the entries of a batch, relative to `first_number` and `first_ms`."""
        raise NotImplementedError

    def expire(self, now_ms: int) -> None:
        """Forget what is older than the window."""


class _Lines(Deliveries):
    def __init__(self, *, now_ms: int) -> None:
        super().__init__(now_ms=now_ms)
        self.lines: dict[str, DeliveryLine] = {}

    def _line(self, name: str) -> DeliveryLine | None:
        line = self.lines.get(name)
        if line is None and len(self.lines) < MAX_LINES:
            line = self.lines[name] = DeliveryLine()
        return line

    def expire(self, now_ms: int) -> None:
        for name in [name for name, line in self.lines.items() if line.expire(now_ms)]:
            del self.lines[name]

    def worst(
        self, now_ms: int, most: int, shows: Callable[[str], bool] | None = None
    ) -> dict[str, DeliveryLine]:
        """The lines that something happened to, of those that `shows` accepts, the worst first."""
        self.expire(now_ms)
        found = [(name, line) for name, line in self.lines.items() if shows is None or shows(name)]
        return dict(nsmallest(most, found, key=lambda each: (each[1].rank(), each[0])))

    def summaries(self, now_ms: int) -> dict[str, DeliverySummary]:
        """All lines, each with the names of some of its sources."""
        self.expire(now_ms)
        since_ms = self.since_ms(now_ms)
        return {name: line.summary(now_ms, since_ms) for name, line in self.lines.items()}


Point = tuple[int, str, int, int]  # time, channel, latency in ms, outcome


class ClientDeliveries(_Lines):
    """What one client got: a line per channel, and the latency of each of the newest entries."""

    def __init__(self, client: str, *, now_ms: int) -> None:
        super().__init__(now_ms=now_ms)
        self._client = stored_name(client)
        self._points: list[tuple[int, int, Point]] = []

    def take(self, first_number: int, first_ms: int, rows: Sequence[Row]) -> None:
        client = self._client
        for row in [row for row in rows if row[5] == client]:
            if not _is_event(row) or is_internal(row[3]):
                continue
            number = first_number + row[0]
            received_ms = first_ms + row[1]
            done_ms = received_ms + row[7] + row[8]
            if (line := self._line(row[3])) is not None:
                line.add(row, number, received_ms, done_ms)
            point = done_ms, row[3], max(done_ms - received_ms, 0), row[6]
            self._points.append((done_ms, number, point))
            if len(self._points) >= 4 * MAX_POINTS:
                self._points = nlargest(MAX_POINTS, self._points)

    def expire(self, now_ms: int) -> None:
        super().expire(now_ms)
        floor_ms = now_ms - WINDOW_MS
        if any(each[0] < floor_ms for each in self._points):
            self._points = [each for each in self._points if each[0] >= floor_ms]

    def points(self) -> list[Point]:
        """The newest points, oldest first."""
        return [point for _, _, point in sorted(self._points)[-MAX_POINTS:]]


class PublisherRates:
    """Rates of growing counts, by name, as long as they are sampled."""

    def __init__(self) -> None:
        self._sampled_ms: int | None = None
        self._meters: dict[str, CounterRates] = {}
        self._changed_ms: dict[str, int] = {}

    def sample(self, counts: Mapping[str, int], *, now_ms: int) -> dict[str, float]:
        """Take a sample, if the last is some time ago; returns all rates per second."""
        is_due = self._sampled_ms is None or abs(now_ms - self._sampled_ms) >= _SAMPLE_MS
        if is_due:
            self._sampled_ms = now_ms
            self._changed_ms = {n: ms for n, ms in self._changed_ms.items() if n in counts}
            meters: dict[str, CounterRates] = {}
            for name, count in counts.items():
                meter = self._meters.get(name)
                if meter is None:
                    meter = CounterRates(now_ms, (count,))
                else:
                    if count != meter.last[0]:
                        self._changed_ms[name] = now_ms
                    meter.add(now_ms, (count,))
                meters[name] = meter
            self._meters = meters
        return {name: meter.rate(0) for name, meter in self._meters.items()}

    def changed_ms(self, name: str) -> int | None:
        """When a count was first seen to have its value."""
        return self._changed_ms.get(name)


class ChannelDeliveries(_Lines):
    """What the clients of this node got of one channel: a line per client.

    `arrived` counts events that came from other nodes, by publisher; `published_ms` is when each
    publisher's newest event was received. Names of publishers are as the ledger stores them.
    """

    def __init__(self, channel: str, *, node: str, now_ms: int) -> None:
        super().__init__(now_ms=now_ms)
        self.arrived: dict[str, int] = {}
        self.published_ms: dict[str, int] = {}
        self.publishing = PublisherRates()
        self._channel = stored_name(channel)
        self._here = stored_name(f"{NODE}{node}")

    def take(self, first_number: int, first_ms: int, rows: Sequence[Row]) -> None:
        channel = self._channel
        for row in [row for row in rows if row[3] == channel]:
            received_ms = first_ms + row[1]
            publisher, destination = row[4], row[5]
            if publisher:
                self._publish(publisher, received_ms)
            if destination == self._here:
                if publisher in self.published_ms:
                    self.arrived[publisher] = self.arrived.get(publisher, 0) + row[2]
            elif (
                is_client(destination)
                and _is_event(row)
                and (line := self._line(destination)) is not None
            ):
                done_ms = received_ms + row[7] + row[8]
                line.add(row, first_number + row[0], received_ms, done_ms)

    def _publish(self, publisher: str, received_ms: int) -> None:
        known_ms = self.published_ms.get(publisher)
        if known_ms is not None or len(self.published_ms) < _MAX_SOURCES:
            self.published_ms[publisher] = max(received_ms, known_ms or 0)


class NewestEntries(Deliveries):
    """The newest entries of a channel filter, to or from a client."""

    def __init__(self, pattern: str, client: str | None, *, now_ms: int) -> None:
        super().__init__(now_ms=now_ms)
        self._pattern = pattern
        self._client = None if client is None else stored_name(client)
        self._judged: dict[str, bool] = {}
        # Time, number and place of each, and the entry relative to its batch.
        self._entries: list[tuple[int, int, int, int, int, Row]] = []

    @property
    def reach_ms(self) -> int:
        return 1 << 60

    @property
    def is_full(self) -> bool:
        return len(self._entries) >= MAX_NEWEST

    def since_ms(self, now_ms: int) -> int:
        return min(self.reaches_back_ms, now_ms)

    def take(self, first_number: int, first_ms: int, rows: Sequence[Row]) -> None:
        client = self._client
        enough = MAX_NEWEST
        for at in range(len(rows) - 1, -1, -1):
            row = rows[at]
            if (client is None or client in (row[5], row[4])) and self._shows(row[3]):
                done_ms = first_ms + row[1] + row[7] + row[8]
                number = first_number + row[0]
                self._entries.append((done_ms, number, at, first_number, first_ms, row))
                enough -= 1
                if not enough:
                    break  # the others are older: a batch is in order of time
        if len(self._entries) > 2 * MAX_NEWEST:
            self._entries = nlargest(MAX_NEWEST, self._entries)

    def newest(self) -> list[tuple[int, int, Row]]:
        """First number and first time of its batch, and the entry, the newest first."""
        found = sorted(self._entries, reverse=True)[:MAX_NEWEST]
        return [(first_number, first_ms, row) for _, _, _, first_number, first_ms, row in found]

    def _shows(self, channel: str) -> bool:
        if not channel:
            return True  # a run over several channels
        known = self._judged.get(channel)
        if known is None:
            if len(self._judged) >= _MAX_JUDGED:
                self._judged.clear()
            known = self._judged[channel] = filter_shows(self._pattern, channel)
        return known
