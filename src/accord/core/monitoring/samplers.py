"""Samplers of channel and client activity, called about once a second.

There may be thousands of either. The channel sampler skips idle channels and reads exact counts of
the busiest only, more of them while a table of all is shown; the client sampler continues where the
last sample stopped. A sample thus takes a few milliseconds, and rates are correct because each
sample has its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import islice
from typing import Final

from accord.core.monitoring.channel_counts import ChannelCounts, ChannelTable
from accord.core.monitoring.delivery import Delivery, DeliveryTotals
from accord.core.monitoring.delivery_lines import in_time_share
from accord.core.monitoring.series import (
    CounterRates,
    Counts,
    Sample,
    kbps,
    rate_between,
    wait_quantile_ms,
)
from accord.core.monitoring.statistics import WAIT_BUCKETS
from accord.core.monitoring.top import ChannelActivity, ClientActivity, ClientReading

BUSIEST: Final = 200
SHOWN: Final = 2_000
CLIENTS_AT_A_TIME: Final = 1_000
_SOON_MS: Final = 500
CLIENT_RATES: Final = {"sent_hz": 0, "sent_kbps": 1, "shed_hz": 2, "replaced_hz": 3}

# Layout of a channel's counts: activity, ten counters, then the waiting times.
RATES: Final = {
    "published_hz": 1,
    "published_kbps": 2,
    "delivered_hz": 3,
    "delivered_kbps": 4,
    "late_hz": 5,
    "shaped_hz": 6,
    "replaced_hz": 7,
    "expired_hz": 8,
    "shed_hz": 9,
    "refused_hz": 10,
}
_BYTES_IN: Final = 2
_BYTES_OUT: Final = 4
_WAITED: Final = 11
_NOTHING: Final[Counts] = (0,) * (_WAITED + 1 + WAIT_BUCKETS)


class ChannelSampler:
    """Samples all channels, and measures the rates of the busiest."""

    def __init__(self, table: ChannelTable, *, now_ms: int, busiest: int = BUSIEST) -> None:
        self._table = table
        self._busiest = busiest
        self.total = 0
        self.delivery = Delivery()
        self._totals = DeliveryTotals(now_ms=now_ms)
        self.is_shown = False  # a table of all channels is: more of them are measured
        self._asked: set[str] = set()  # since the last sample
        self._sampled_ms = now_ms
        self._seen: dict[str, Counts] = {}
        self._meters: dict[str, CounterRates] = {}
        self._behind: dict[str, int] = {}  # changed since that time, but not among the busiest

    def sample(self, *, now_ms: int) -> list[ChannelActivity]:
        """Take a sample; returns the busiest non-internal channels, most bytes first."""
        changed: list[tuple[int, ChannelCounts]] = []
        shown = [counts for counts in self._table.counts.values() if not counts.is_internal]
        self.total = len(shown)
        for counts in (*shown, self._table.other):
            more = counts.activity() - self._seen.get(counts.channel, _NOTHING)[0]
            if more:
                changed.append((more, counts))
            elif (meter := self._meters.get(counts.channel)) is not None:
                meter.add(now_ms, meter.last)
        chosen = changed
        limit = max(SHOWN, self._busiest) if self.is_shown else self._busiest
        if len(changed) > limit:
            chosen = nlargest(limit, changed, key=lambda each: each[0])
            names = {counts.channel for _, counts in chosen}
            chosen += [
                each
                for each in changed
                if each[1].channel in self._asked and each[1].channel not in names
            ]
            names |= self._asked
            for _, counts in changed:
                if counts.channel not in names:
                    self._behind.setdefault(counts.channel, self._sampled_ms)
                    self._meters.pop(counts.channel, None)
        for _, counts in chosen:
            self._measure(counts, now_ms)
        self._meters = {name: meter for name, meter in self._meters.items() if not meter.is_idle}
        self._asked = set()
        self._sampled_ms = now_ms
        meters: Iterable[tuple[str, CounterRates]] = self._meters.items()
        if len(self._meters) > self._busiest:
            meters = nlargest(self._busiest, meters, key=lambda each: _new_bytes(each[1]))
        busiest = list(meters)
        self._sample_delivery(changed, [meter for _, meter in busiest], now_ms)
        lines = [_channel_activity(name, meter) for name, meter in busiest]
        lines.sort(key=lambda line: line.delivered_kbps + line.published_kbps, reverse=True)
        return lines

    @property
    def counted(self) -> int:
        """How many channels have counts, internal ones included: it only grows."""
        return len(self._table.counts)

    def names(self) -> list[str]:
        """All channels but internal ones."""
        return [name for name, counts in self._table.counts.items() if not counts.is_internal]

    def activity(self, channel: str) -> ChannelActivity | None:
        """One channel, idle or active; None if it has no counts.

        It is measured with the next sample, however busy others are.
        """
        self._asked.add(channel)
        counts = self._table.counts.get(channel)
        if counts is None:
            return None
        meter = self._meters.get(channel)
        if meter is not None:
            return _channel_activity(channel, meter)
        return _idle_channel(counts)

    def values(self, field: str) -> Mapping[str, float]:
        """A field of `ChannelActivity`, or `in_time`, by channel.

        Channels left out have none, or a rate of 0.
        """
        counts = self._table.counts.items()
        meters = self._meters.items()
        match field:
            case "published":
                return {name: each.published for name, each in counts}
            case "delivered":
                return {name: each.delivered for name, each in counts}
            case "dropped":
                return {name: _dropped(each) for name, each in counts}
            case _ if field in RATES:
                return CounterRates.changing(meters, RATES[field])
        read = _MEASURES[field]
        values = ((name, read(*meter.ends)) for name, meter in meters)
        return {name: value for name, value in values if value is not None}

    def _sample_delivery(
        self, changed: list[tuple[int, ChannelCounts]], busiest: list[CounterRates], now_ms: int
    ) -> None:
        """Count all channels; the latencies are those of the busiest."""
        shown = [counts for _, counts in changed if not counts.is_internal]
        self._totals.sample(shown, now_ms=now_ms)
        histograms = (meter.added()[_WAITED + 1 :] for meter in busiest)
        waits = [sum(bucket) for bucket in zip(*histograms, strict=True)]
        self.delivery = self._totals.delivery(
            wait_quantile_ms(waits, 0.5), wait_quantile_ms(waits, 0.95)
        )

    def activities(self) -> Iterator[ChannelActivity]:
        """Activity of all non-internal channels by the last sample; rates of the busiest only."""
        for counts in list(self._table.counts.values()):
            if counts.is_internal:
                continue
            meter = self._meters.get(counts.channel)
            yield (
                _idle_channel(counts) if meter is None else _channel_activity(counts.channel, meter)
            )

    def _measure(self, counts: ChannelCounts, now_ms: int) -> None:
        name = counts.channel
        meter = self._meters.get(name)
        if meter is None:
            since_ms = self._behind.pop(name, self._sampled_ms)
            meter = self._meters[name] = CounterRates(since_ms, self._seen.get(name, _NOTHING))
        self._seen[name] = _counts_of(counts)
        meter.add(now_ms, self._seen[name])


def _new_bytes(meter: CounterRates) -> int:
    (_, first), (_, last) = meter.ends
    return last[_BYTES_IN] - first[_BYTES_IN] + last[_BYTES_OUT] - first[_BYTES_OUT]


def _dropped(counts: ChannelCounts) -> int:
    return counts.replaced + counts.expired + counts.shed + counts.refused


def _counts_of(counts: ChannelCounts) -> Counts:
    return (
        counts.activity(),
        counts.published,
        counts.published_bytes,
        counts.delivered,
        counts.delivered_bytes,
        counts.late,
        counts.shaped,
        counts.replaced,
        counts.expired,
        counts.shed,
        counts.refused,
        counts.waited_ms,
        *counts.wait_counts,
    )


def _channel_activity(name: str, meter: CounterRates) -> ChannelActivity:
    first, last = meter.ends
    rates = [0.0, *(rate_between(first, last, index) for index in range(1, _WAITED))]
    counts = last[1]
    return ChannelActivity(
        channel=name,
        published_hz=rates[1],
        published_kbps=kbps(rates[2]),
        delivered_hz=rates[3],
        delivered_kbps=kbps(rates[4]),
        late_hz=rates[5],
        shaped_hz=rates[6],
        replaced_hz=rates[7],
        expired_hz=rates[8],
        shed_hz=rates[9],
        refused_hz=rates[10],
        latency_ms=_latency_ms(first, last),
        latency_p95_ms=_latency_p95_ms(first, last),
        published=counts[1],
        delivered=counts[3],
        dropped=sum(counts[7:_WAITED]),
    )


def _idle_channel(counts: ChannelCounts) -> ChannelActivity:
    """Activity of a channel whose rates are not measured: it is idle, or others are busier."""
    return ChannelActivity(
        channel=counts.channel,
        published=counts.published,
        delivered=counts.delivered,
        dropped=_dropped(counts),
    )


def _latency_ms(first: Sample, last: Sample) -> float | None:
    before, now = first[1], last[1]
    left = sum(now[_WAITED + 1 :]) - sum(before[_WAITED + 1 :])
    return round((now[_WAITED] - before[_WAITED]) / left, 1) if left > 0 else None


def _latency_p95_ms(first: Sample, last: Sample) -> float | None:
    pairs = zip(first[1][_WAITED + 1 :], last[1][_WAITED + 1 :], strict=True)
    return wait_quantile_ms([after - before for before, after in pairs], 0.95)


def _in_time(first: Sample, last: Sample) -> float | None:
    before, now = first[1], last[1]
    return in_time_share(
        received=now[3] - before[3],
        late=now[5] - before[5],
        missed=sum(now[8:_WAITED]) - sum(before[8:_WAITED]),
    )


_MEASURES: Final = {
    "latency_ms": _latency_ms,
    "latency_p95_ms": _latency_p95_ms,
    "in_time": _in_time,
}


class _Watched(CounterRates):
    """Rates of one client."""

    __slots__ = ("reading", "round", "weight")

    def __init__(self, sample: Sample, reading: ClientReading, round_: int) -> None:
        super().__init__(*sample)
        self.reading = reading
        self.round = round_
        self.weight = 0  # bytes queued or recently sent


class ClientSampler:
    """Samples clients in rounds; clients missing from a round of `readings` are removed."""

    def __init__(
        self,
        readings: Callable[[], Iterable[ClientReading]],
        *,
        busiest: int = BUSIEST,
        at_a_time: int = CLIENTS_AT_A_TIME,
    ) -> None:
        self._readings = readings
        self._busiest = busiest
        self._at_a_time = at_a_time
        self._walk: Iterator[ClientReading] | None = None  # one round, over several samples
        self._round = 0
        self._clients: dict[str, _Watched] = {}

    def sample(self, *, now_ms: int) -> list[ClientActivity]:
        """Take a sample; returns the busiest clients, by bytes queued and recently sent."""
        if self._walk is None:
            self._round += 1
            self._walk = iter(self._readings())
        if self._sample_clients(self._walk, now_ms) < self._at_a_time:
            seen = self._round
            self._clients = {n: each for n, each in self._clients.items() if each.round == seen}
            self._walk = None
        busiest = nlargest(self._busiest, self._clients.values(), key=_weight)
        return [_client_activity(each) for each in busiest]

    def __len__(self) -> int:
        return len(self._clients)

    def measure(self, readings: Iterable[ClientReading], *, now_ms: int) -> None:
        """Take a sample of some clients now, which may be long before their turn."""
        for reading in readings:
            watched = self._clients.get(reading.client)
            if watched is None or now_ms - watched.sampled_ms >= _SOON_MS:
                self._take(reading, (now_ms, _client_counts(reading)))

    def rates(self, client: str) -> tuple[float, float, float, float]:
        """Events and kbit per second sent, events shed and replaced; 0 before two samples."""
        watched = self._clients.get(client)
        if watched is None:
            return 0.0, 0.0, 0.0, 0.0
        return watched.rate(0), kbps(watched.rate(1)), watched.rate(2), watched.rate(3)

    def values(self, field: str) -> Mapping[str, float]:
        """Rates by client; clients left out have a rate of 0."""
        return CounterRates.changing(self._clients.items(), CLIENT_RATES[field])

    def _sample_clients(self, walk: Iterator[ClientReading], now_ms: int) -> int:
        taken = 0
        looks: dict[Counts, Sample] = {}  # most clients are idle and share a sample
        for reading in islice(walk, self._at_a_time):
            taken += 1
            counts = _client_counts(reading)
            self._take(reading, looks.setdefault(counts, (now_ms, counts)))
        return taken

    def _take(self, reading: ClientReading, look: Sample) -> None:
        watched = self._clients.get(reading.client)
        if watched is None:
            watched = self._clients[reading.client] = _Watched(look, reading, self._round)
        else:
            watched.add_sample(look)
            watched.reading, watched.round = reading, self._round
        watched.weight = reading.queued_bytes + watched.added()[1]


def _client_counts(reading: ClientReading) -> Counts:
    return reading.sent, reading.sent_bytes, reading.shed, reading.replaced


def _weight(watched: _Watched) -> tuple[int, int]:
    return watched.weight, watched.reading.is_connected


def _client_activity(watched: _Watched) -> ClientActivity:
    reading = watched.reading
    sent_hz, sent_bps, shed_hz, replaced_hz = watched.rates()
    return ClientActivity(
        client=reading.client,
        user=reading.user,
        is_connected=reading.is_connected,
        sent_hz=sent_hz,
        sent_kbps=kbps(sent_bps),
        shed_hz=shed_hz,
        replaced_hz=replaced_hz,
        shed=reading.shed,
        replaced=reading.replaced,
        queued_messages=reading.queued_messages,
        queued_bytes=reading.queued_bytes,
        waiting_ms=reading.waiting_ms,
        link_kbps=reading.link_kbps,
        limit_kbps=reading.limit_kbps,
        rtt_ms=reading.rtt_ms,
    )
