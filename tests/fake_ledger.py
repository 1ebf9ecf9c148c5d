"""What is watched of a node, for tests of the API and of commands that ask it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from accord.core.monitoring.channel_counts import ChannelTable
from accord.core.monitoring.counters import Counters
from accord.core.monitoring.delivery import Delivery
from accord.core.monitoring.delivery_lines import (
    ChannelDeliveries,
    ClientDeliveries,
    Deliveries,
    NewestEntries,
)
from accord.core.monitoring.ledger import (
    DELIVERED,
    EXPIRED,
    LATE,
    REFUSED,
    REPLACED,
    SHAPED,
    SHED,
    Ledger,
    deadline_detail,
    replacement_detail,
    shape_detail,
)
from accord.core.monitoring.samplers import ChannelSampler, ClientSampler
from accord.core.monitoring.series import SeriesRegistry, Summary
from accord.core.monitoring.top import (
    BinActivity,
    ChannelActivity,
    ClientActivity,
    LedgerStatus,
    Management,
    NodeLoad,
    Top,
    Waiting,
)
from accord.core.monitoring.verdict import NodeProblem
from accord.journal.ledger_records import LedgerQuery, LedgerResult
from accord.runtime.ledger_store import LedgerStore

START_MS = 1_763_000_000_000
FIRST = START_MS * 1_000_000

# number, destination, outcome, size, queued for ms, sending us, policy, detail
HAPPENED: tuple[tuple[int, str, int, int, int, int, str, str], ...] = (
    (0, "alpha-1", DELIVERED, 12_000, 3, 2_000, "", ""),
    (1, "alpha-1", DELIVERED, 12_000, 3, 0, "Reports", ""),
    (1, "bravo", EXPIRED, 12_000, 3_200, 320_000, "Reports", deadline_detail(5_000)),
    (1, "charlie", SHAPED, 9_500, 40, 253_333, "", shape_detail(70_300, "scaled to 640x480")),
    (1, "delta", REPLACED, 12_000, 900, 0, "", replacement_detail(FIRST + 2)),
    (1, "echo", SHED, 12_000, 10, 0, "", "queue full"),
    (1, "fox", LATE, 12_000, 5_100, 1_500, "", f"{deadline_detail(5_000)}; link was away"),
    (1, "golf", REFUSED, 12_000, 0, 0, "", "packet too large"),
)


class FakeLedger:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self.store = LedgerStore(self.ledger)
        self.asked: list[tuple[LedgerQuery, int]] = []
        self.series = SeriesRegistry()
        self.queued: list[tuple[int, Waiting]] = []
        self.now = busy_node(channels=3, clients=3)
        self.sampled_ms = 3_000
        self.statistics = Counters(started_ms=0).snapshot(now_ms=3_000)
        self.delivery = Delivery()
        self.problems: tuple[NodeProblem, ...] = ()
        self.all_channels = ChannelSampler(ChannelTable(), now_ms=0)
        self.all_clients = ClientSampler(tuple)

    def fill(self) -> FakeLedger:
        for number, to, outcome, size, queued_ms, sending_us, policy, detail in HAPPENED:
            self.ledger.add(
                FIRST + number,
                1,
                "patrol/report",
                "patrol-7",
                to,
                outcome,
                START_MS,
                START_MS + 1,
                START_MS + 1 + queued_ms,
                size,
                5,
                policy,
                detail,
                sending_us,
            )
        now_ms = START_MS
        self.ledger.add(
            FIRST + 2, 5, "", "x", "bravo", DELIVERED, now_ms, now_ms, now_ms, 50, 3, "", "", 0
        )
        return self

    def top(self, most: int) -> Top:
        return msgspec.structs.replace(self.now, channels=self.now.channels[:most])

    def channels(self) -> Iterator[ChannelActivity]:
        yield from self.now.channels
        yield ChannelActivity(channel="idle/one", published=7)

    def series_names(self, prefix: str) -> list[str]:
        return self.series.names(prefix)

    def summary(self, name: str) -> Summary | None:
        series = self.series.get(name)
        return None if series is None else series.summary(name, now_ms=self.sampled_ms)

    def points(self, name: str) -> list[tuple[int, float]]:
        series = self.series.get(name)
        return [] if series is None else series.points()

    def channel_sampler(self) -> ChannelSampler:
        return self.all_channels

    def client_sampler(self) -> ClientSampler:
        return self.all_clients

    @property
    def seeded(self) -> int:
        return self.store.seeded

    def follow_client(self, client: str, *, now_ms: int) -> ClientDeliveries:
        return self.store.follow_client(client, now_ms=now_ms)

    def follow_channel(self, channel: str, *, now_ms: int) -> ChannelDeliveries:
        return self.store.follow_channel(channel, "alpha", now_ms=now_ms)

    def follow_newest(self, pattern: str, client: str | None, *, now_ms: int) -> NewestEntries:
        return self.store.follow_newest(pattern, client, now_ms=now_ms)

    async def seed(self, table: Deliveries) -> None:
        await self.store.seed(table)

    async def waiting(self, number: int) -> list[Waiting]:
        return [each for at, each in self.queued if at == number]

    async def search(self, wanted: LedgerQuery, most: int) -> LedgerResult:
        self.asked.append((wanted, most))
        return await self.store.search(wanted, most, now_ms=START_MS + 9_000)


def busy_node(*, channels: int, clients: int) -> Top:
    return Top(
        name="alpha",
        version="1.2",
        taken_ms=START_MS,
        uptime_ms=12_300_000,
        load=NodeLoad(
            cpu_percent=43.2,
            memory_mb=81.5,
            backlog=12,
            connections=40,
            sessions=44,
            received_hz=1_234,
            received_kbps=1_800,
            sent_hz=5_678.2,
            sent_kbps=799,
            shed_hz=3.2,
            queued_bytes=3_000_000,
        ),
        management=Management(
            strategy="weighted fair",
            is_shaping=True,
            bandwidth_bps=800_000,
            client_bandwidth_bps=2_000_000,
            policies=12,
            version=7,
        ),
        bins=(
            BinActivity(importance=3, messages=30, bytes=3_700, wait_p50_ms=21.6, wait_p95_ms=180),
            BinActivity(importance=6, tasks=2),
        ),
        channels=tuple(
            ChannelActivity(
                channel=f"region/{number}/report\x1b[31m",
                published_hz=10,
                delivered_hz=1_234.5,
                delivered_kbps=80,
                latency_ms=12.3,
                latency_p95_ms=812,
                shaped_hz=2,
                expired_hz=0.5,
            )
            for number in range(channels)
        ),
        channels_total=channels + 2,
        clients=tuple(
            ClientActivity(
                client=f"patrol-{number}",
                user="ann",
                sent_hz=3,
                sent_kbps=299.3,
                link_kbps=300,
                limit_kbps=2_000,
                rtt_ms=41,
                queued_messages=7,
                queued_bytes=100_000,
            )
            for number in range(clients)
        ),
        clients_total=44,
        ledger=LedgerStatus(entries=10, missed=3),
    )
