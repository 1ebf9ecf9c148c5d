"""Samples the node once a second and records the samples as time series.

Counters become rates here; nothing is measured twice. Series are named as the resources in policies
where those exist (`cpu_percent`, `sent_kbps`, …). Series of a channel, client or importance start
with the quantity: `channel/latency_ms/patrol/report`, `client/sent_kbps/raven-7`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from accord.core.model.units import IMPORTANCES
from accord.core.monitoring.channel_counts import ChannelTable
from accord.core.monitoring.delivery import Delivery
from accord.core.monitoring.delivery_lines import (
    ChannelDeliveries,
    ClientDeliveries,
    Deliveries,
    NewestEntries,
)
from accord.core.monitoring.recent_changes import RecentChanges, state_changes
from accord.core.monitoring.samplers import ChannelSampler, ClientSampler
from accord.core.monitoring.series import (
    CounterRates,
    Counts,
    SeriesRegistry,
    Summary,
    kbps,
    wait_quantile_ms,
)
from accord.core.monitoring.statistics import WAIT_BUCKETS, Statistics
from accord.core.monitoring.top import (
    BinActivity,
    ChannelActivity,
    ClientActivity,
    ClientReading,
    Management,
    NodeLoad,
    Top,
    Waiting,
)
from accord.core.monitoring.verdict import (
    NetFaults,
    NodeFacts,
    NodeProblem,
    ProblemLog,
    find_problems,
)
from accord.journal.ledger_records import LedgerQuery, LedgerResult
from accord.runtime.ledger_store import LedgerStore
from accord.runtime.process import ProcessUsage

_SHOWN_MS: Final = 10_000
_NO_WAITS: Final[Counts] = (0,) * WAIT_BUCKETS
_CHANNEL: Final = (
    "published_hz", "delivered_hz", "delivered_kbps", "shed_hz", "latency_ms", "latency_p95_ms",
)  # fmt: skip
_CLIENT: Final = ("sent_kbps", "queued_bytes", "waiting_ms", "shed_hz", "link_kbps", "rtt_ms")


class MonitoredNode(Protocol):
    """A node as the monitor sees it. Called on its event loop."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def statistics(self) -> Statistics: ...

    def backlog(self) -> Sequence[int]:
        """Tasks waiting for the CPU, by importance; empty if there are none."""

    def readings(self) -> Iterable[ClientReading]:
        """All clients, lazily: with many clients, consumed over several samples."""

    def management(self) -> Management: ...

    def net_faults(self) -> NetFaults:
        """What fails in the network, as far as the node knows."""

    async def waiting(self, number: int) -> list[Waiting]:
        """Where event `number` is queued."""


class Monitor:
    def __init__(  # noqa: PLR0913 (what it samples)
        self,
        watched: MonitoredNode,
        channels: ChannelTable,
        store: LedgerStore,
        *,
        now_ms: int,
        process: ProcessUsage | None = None,
        changes: RecentChanges | None = None,
    ) -> None:
        self.store = store
        self.series = SeriesRegistry()
        self.load = NodeLoad()
        self.changes = changes or RecentChanges()
        self._watched = watched
        self._process = process or ProcessUsage()
        self._sampled_ms = now_ms
        self.statistics = watched.statistics()  # of the last sample
        self._node = CounterRates(now_ms, self._counts(self.statistics))
        self._problems = ProblemLog()
        self._shed: dict[str, CounterRates] = {}
        self._waits = [CounterRates(now_ms, _NO_WAITS) for _ in range(IMPORTANCES)]
        self._channel_sampler = ChannelSampler(channels, now_ms=now_ms)
        self._client_sampler = ClientSampler(watched.readings)
        self._bins: list[BinActivity] = []
        self._channel_activity: list[ChannelActivity] = []
        self._client_activity: list[ClientActivity] = []
        self._uptime_ms = 0
        self._shown_ms = -_SHOWN_MS  # when a table of all channels was shown last

    def sample(self, *, now_ms: int) -> None:
        """Take a sample; call about once a second."""
        self.store.drain(now_ms=now_ms)
        before, statistics = self.statistics, self._watched.statistics()
        self.statistics = statistics
        backlog = self._watched.backlog()
        self._uptime_ms = statistics.uptime_ms
        self._sample_node(statistics, sum(backlog), now_ms)
        self._bins = self._sample_bins(statistics, backlog, now_ms)
        sampler = self._channel_sampler
        sampler.is_shown = abs(now_ms - self._shown_ms) < _SHOWN_MS
        self._channel_activity = sampler.sample(now_ms=now_ms)
        for line in self._channel_activity:
            self._add_each("channel", _CHANNEL, line.channel, line)
        self._client_activity = self._client_sampler.sample(now_ms=now_ms)
        for client in self._client_activity:
            self._add_each("client", _CLIENT, client.client, client)
        self._sample_delivery()
        problems = find_problems(self._facts(statistics), self._problems.keys)
        self._problems.update(problems, now_ms=now_ms)
        self._note_changes(before, statistics, now_ms)

    @property
    def delivery(self) -> Delivery:
        return self._channel_sampler.delivery

    @property
    def problems(self) -> tuple[NodeProblem, ...]:
        """What is not well, the worst first."""
        return self._problems.problems

    @property
    def sampled_ms(self) -> int:
        return self._sampled_ms

    def series_names(self, prefix: str) -> list[str]:
        return self.series.names(prefix)

    def resources(self) -> dict[str, float]:
        """Resources of the whole node, by the names that policies use."""
        load = self.load
        return {
            "cpu_percent": load.cpu_percent,
            "memory_mb": load.memory_mb,
            "backlog": load.backlog,
            "queued_bytes": load.queued_bytes,
            "sent_kbps": load.sent_kbps,
        }

    def top(self, most: int = 20) -> Top:
        return Top(
            name=self._watched.name,
            version=self._watched.version,
            taken_ms=self._sampled_ms,
            uptime_ms=self._uptime_ms,
            load=self.load,
            management=self._watched.management(),
            bins=tuple(self._bins),
            channels=tuple(self._channel_activity[:most]),
            channels_total=self._channel_sampler.total,
            clients=tuple(self._client_activity[:most]),
            clients_total=self.load.sessions,
            ledger=self.store.status(),
        )

    def channels(self) -> Iterator[ChannelActivity]:
        return self._channel_sampler.activities()

    def summary(self, name: str) -> Summary | None:
        series = self.series.get(name)
        return None if series is None else series.summary(name, now_ms=self._sampled_ms)

    def points(self, name: str) -> list[tuple[int, float]]:
        series = self.series.get(name)
        return [] if series is None else series.points()

    async def search(self, wanted: LedgerQuery, most: int) -> LedgerResult:
        return await self.store.search(wanted, most, now_ms=self._sampled_ms)

    async def waiting(self, number: int) -> list[Waiting]:
        return await self._watched.waiting(number)

    def channel_sampler(self) -> ChannelSampler:
        """For a table of all channels: more of them are measured while it is shown."""
        self._shown_ms = self._sampled_ms
        return self._channel_sampler

    def client_sampler(self) -> ClientSampler:
        return self._client_sampler

    @property
    def seeded(self) -> int:
        """Grows whenever a table that follows the ledger is complete."""
        return self.store.seeded

    def follow_client(self, client: str, *, now_ms: int) -> ClientDeliveries:
        return self.store.follow_client(client, now_ms=now_ms)

    def follow_channel(self, channel: str, *, now_ms: int) -> ChannelDeliveries:
        return self.store.follow_channel(channel, self._watched.name, now_ms=now_ms)

    def follow_newest(self, pattern: str, client: str | None, *, now_ms: int) -> NewestEntries:
        return self.store.follow_newest(pattern, client, now_ms=now_ms)

    async def seed(self, table: Deliveries) -> None:
        await self.store.seed(table)

    def _facts(self, statistics: Statistics) -> NodeFacts:
        return NodeFacts(
            load=self.load,
            management=self._watched.management(),
            channels=self._channel_activity,
            clients=self._client_activity,
            journal=statistics.journal,
            pipeline=statistics.pipeline,
            net=self._watched.net_faults(),
        )

    def _sample_delivery(self) -> None:
        delivery = self.delivery
        for name in delivery.__struct_fields__:
            self._add(f"delivery/{name}", getattr(delivery, name))

    def _note_changes(self, before: Statistics, after: Statistics, now_ms: int) -> None:
        """Record what happened to the journal and to the pipeline since the last sample."""
        for kind, what, detail in state_changes(before, after):
            self.changes.add(kind, what, detail=detail, page="/internals", now_ms=now_ms)

    def _sample_node(self, statistics: Statistics, backlog: int, now_ms: int) -> None:
        before_ms, self._sampled_ms = self._sampled_ms, now_ms
        self._node.add(now_ms, self._counts(statistics))
        cpu, received, received_bytes, sent, sent_bytes, shed, replaced = self._node.rates()
        for cause, count in statistics.shed.causes.items():
            self._shed.setdefault(cause, CounterRates(before_ms, (0,))).add(now_ms, (count,))
        self.load = NodeLoad(
            cpu_percent=round(cpu / 10_000, 1),
            memory_mb=round(self._process.memory_bytes() / 1e6, 1),
            backlog=backlog,
            connections=statistics.connections,
            sessions=statistics.sessions,
            received_hz=received,
            received_kbps=kbps(received_bytes),
            sent_hz=sent,
            sent_kbps=kbps(sent_bytes),
            shed_hz=shed,
            shed={cause: meter.rates()[0] for cause, meter in self._shed.items()},
            replaced_hz=replaced,
            queued_messages=statistics.queued_messages,
            queued_bytes=statistics.queued_bytes,
        )
        for name in self.load.__struct_fields__:
            value = getattr(self.load, name)
            if not isinstance(value, dict):
                self._add(name, value)
        for cause, rate in self.load.shed.items():
            self._add(f"shed_hz/{cause}", rate)
        self._add("ledger_missed", self.store.status().missed)

    def _sample_bins(
        self, statistics: Statistics, backlog: Sequence[int], now_ms: int
    ) -> list[BinActivity]:
        """Activity of each importance that has ever been used."""
        lines = []
        for queue in statistics.queues:
            importance = queue.importance
            tasks = backlog[importance] if importance < len(backlog) else 0
            waits = self._waits[importance]
            waits.add(now_ms, queue.waits.counts)
            if not (queue.messages or tasks or any(queue.waits.counts)):
                continue
            line = BinActivity(
                importance=importance,
                messages=queue.messages,
                bytes=queue.bytes,
                tasks=tasks,
                wait_p50_ms=wait_quantile_ms(waits.added(), 0.5),
                wait_p95_ms=wait_quantile_ms(waits.added(), 0.95),
            )
            lines.append(line)
            names = ("messages", "bytes", "tasks", "wait_p50_ms", "wait_p95_ms")
            self._add_each("importance", names, str(importance), line)
        return lines

    def _counts(self, statistics: Statistics) -> Counts:
        return (
            int(self._process.cpu_s() * 1e6),
            statistics.received.publishes.total,
            statistics.received.bytes,
            statistics.sent.publishes.total,
            statistics.sent.bytes,
            statistics.shed.total,
            statistics.replaced,
        )

    def _add_each(self, kind: str, names: Sequence[str], which: str, line: object) -> None:
        for name in names:
            self._add(f"{kind}/{name}/{which}", getattr(line, name))

    def _add(self, name: str, value: float | None) -> None:
        if value is not None:
            self.series.add(name, self._sampled_ms, value)
