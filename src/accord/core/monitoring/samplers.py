"""Samplers of channel and client activity, called about once a second.

There may be thousands of either. The channel sampler skips idle channels and reads exact counts of
the busiest only; the client sampler continues where the last sample stopped. A sample thus takes a
few milliseconds at most, and rates are correct because each sample has its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from itertools import islice
from typing import Final

from accord.core.monitoring.channel_counts import ChannelCounts, ChannelTable
from accord.core.monitoring.series import CounterRates, Counts, Sample, kbps, wait_quantile_ms
from accord.core.monitoring.statistics import WAIT_BUCKETS
from accord.core.monitoring.top import ChannelActivity, ClientActivity, ClientReading

BUSIEST: Final = 200
CLIENTS_AT_A_TIME: Final = 1_000

# Layout of a channel's counts: activity, ten counters, then the waiting times.
_WAITED: Final = 11
_NOTHING: Final[Counts] = (0,) * (_WAITED + 1 + WAIT_BUCKETS)


class ChannelSampler:
    """Samples all channels, and measures the rates of the busiest."""

    def __init__(self, table: ChannelTable, *, now_ms: int, busiest: int = BUSIEST) -> None:
        self._table = table
        self._busiest = busiest
        self.total = 0
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
        if len(changed) > self._busiest:
            chosen = nlargest(self._busiest, changed, key=lambda each: each[0])
            names = {counts.channel for _, counts in chosen}
            for _, counts in changed:
                if counts.channel not in names:
                    self._behind.setdefault(counts.channel, self._sampled_ms)
                    self._meters.pop(counts.channel, None)
        for _, counts in chosen:
            self._measure(counts, now_ms)
        self._meters = {name: meter for name, meter in self._meters.items() if not meter.is_idle}
        self._sampled_ms = now_ms
        lines = [_channel_activity(name, meter) for name, meter in self._meters.items()]
        return nlargest(
            self._busiest, lines, key=lambda line: line.delivered_kbps + line.published_kbps
        )

    def _measure(self, counts: ChannelCounts, now_ms: int) -> None:
        name = counts.channel
        meter = self._meters.get(name)
        if meter is None:
            since_ms = self._behind.pop(name, self._sampled_ms)
            meter = self._meters[name] = CounterRates(since_ms, self._seen.get(name, _NOTHING))
        self._seen[name] = _counts_of(counts)
        meter.add(now_ms, self._seen[name])


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
    rates = meter.rates()
    waited_ms, *waits = meter.added()[_WAITED:]
    left = sum(waits)
    _, published, _, delivered, _, _, _, *dropped = meter.last[:_WAITED]
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
        latency_ms=round(waited_ms / left, 1) if left else None,
        latency_p95_ms=wait_quantile_ms(waits, 0.95),
        published=published,
        delivered=delivered,
        dropped=sum(dropped),
    )


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

    def _sample_clients(self, walk: Iterator[ClientReading], now_ms: int) -> int:
        taken = 0
        looks: dict[Counts, Sample] = {}  # most clients are idle and share a sample
        for reading in islice(walk, self._at_a_time):
            taken += 1
            counts = (reading.sent, reading.sent_bytes, reading.shed)
            look = looks.setdefault(counts, (now_ms, counts))
            watched = self._clients.get(reading.client)
            if watched is None:
                watched = _Watched(look, reading, self._round)
                self._clients[reading.client] = watched
            else:
                watched.add_sample(look)
                watched.reading, watched.round = reading, self._round
            watched.weight = reading.queued_bytes + watched.added()[1]
        return taken


def _weight(watched: _Watched) -> tuple[int, int]:
    return watched.weight, watched.reading.is_connected


def _client_activity(watched: _Watched) -> ClientActivity:
    reading = watched.reading
    sent_hz, sent_bps, shed_hz = watched.rates()
    return ClientActivity(
        client=reading.client,
        user=reading.user,
        is_connected=reading.is_connected,
        sent_hz=sent_hz,
        sent_kbps=kbps(sent_bps),
        shed_hz=shed_hz,
        shed=reading.shed,
        queued_messages=reading.queued_messages,
        queued_bytes=reading.queued_bytes,
        link_kbps=reading.link_kbps,
        limit_kbps=reading.limit_kbps,
        rtt_ms=reading.rtt_ms,
    )
