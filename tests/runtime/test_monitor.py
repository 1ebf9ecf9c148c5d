from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from accord.core.monitoring.channel_counts import ChannelTable
from accord.core.monitoring.counters import Counters
from accord.core.monitoring.delivery import Delivery
from accord.core.monitoring.ledger import SHED, Ledger
from accord.core.monitoring.statistics import JournalStatus, PipelineStatus, Statistics
from accord.core.monitoring.top import BinActivity, ClientReading, Management, Waiting
from accord.core.monitoring.verdict import NetFaults
from accord.journal.ledger_records import LedgerQuery
from accord.runtime.ledger_store import LedgerStore
from accord.runtime.monitor import Monitor
from accord.runtime.process import ProcessUsage


class FakeProcess(ProcessUsage):
    def __init__(self) -> None:
        self.cpu = 0.0

    def cpu_s(self) -> float:
        return self.cpu

    def memory_bytes(self) -> int:
        return 85_000_000


class FakeNode:
    """A node whose numbers the tests set."""

    name = "alpha"
    version = "1.2"

    def __init__(self) -> None:
        self.counters = Counters(started_ms=0)
        self.tasks: list[int] = []
        self.clients: list[ClientReading] = []
        self.decided = Management(strategy="strict", policies=2)
        self.missing: list[tuple[str, str]] = []
        self.journal: JournalStatus | None = None
        self.pipeline: PipelineStatus | None = None
        self.now_ms = 0
        self.process = FakeProcess()
        self.channels = ChannelTable()
        self.ledger = Ledger()
        self.monitor = Monitor(
            self, self.channels, LedgerStore(self.ledger), now_ms=0, process=self.process
        )

    def statistics(self) -> Statistics:
        taken = self.counters.snapshot(now_ms=self.now_ms, journal=self.journal)
        return replace(taken, pipeline=self.pipeline)

    def backlog(self) -> Sequence[int]:
        return self.tasks

    def readings(self) -> Iterable[ClientReading]:
        return iter(list(self.clients))

    def net_faults(self) -> NetFaults:
        return NetFaults(links_down=self.missing)

    async def waiting(self, number: int) -> list[Waiting]:
        raise NotImplementedError

    def management(self) -> Management:
        return self.decided

    def look(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.monitor.sample(now_ms=now_ms)


def test_a_node_as_a_whole() -> None:
    node = FakeNode()
    counters = node.counters
    counters.sessions = 5
    counters.count_connect()
    counters.publishes_received = [10, 0, 0]
    counters.bytes_received = 1_000
    counters.publishes_sent = [0, 20, 0]
    counters.bytes_sent = 4_000
    counters.queued_messages[3], counters.queued_bytes[3] = 7, 700
    counters.count_shed("queue full", "bob", 6)
    counters.replaced = 4
    node.process.cpu = 0.5
    node.tasks = [0, 0, 0, 4, 0, 0, 0, 1]
    node.look(2_000)
    load = node.monitor.load
    assert (load.cpu_percent, load.memory_mb, load.backlog) == (25, 85, 5)
    assert (load.connections, load.sessions) == (1, 5)
    assert (load.received_hz, load.received_kbps) == (5, 4)
    assert (load.sent_hz, load.sent_kbps) == (10, 16)
    assert (load.shed_hz, load.shed, load.replaced_hz) == (3, {"queue full": 3}, 2)
    assert node.monitor.resources() == {
        "cpu_percent": 25, "memory_mb": 85, "backlog": 5, "queued_bytes": 700, "sent_kbps": 16,
    }  # fmt: skip
    summary = node.monitor.summary("shed_hz/queue full")
    assert summary is not None
    assert (summary.last, summary.last_ms) == (3, 2_000)


def test_series_over_time() -> None:
    node = FakeNode()
    for second in range(1, 6):
        node.counters.queued_bytes[3] = second * 100
        node.look(second * 1_000)
    summary = node.monitor.summary("queued_bytes")
    assert summary is not None
    assert (summary.last, summary.mean, summary.trend) == (500, 300, 100)
    assert node.monitor.points("queued_bytes")[0] == (1_000, 100)
    assert node.monitor.summary("nothing") is None
    assert node.monitor.points("nothing") == []
    names = node.monitor.series_names("queued")
    assert names == ["queued_bytes", "queued_messages"]


def test_queues_by_importance() -> None:
    node = FakeNode()
    node.counters.count_wait(3, 8, 100)
    node.counters.queued_messages[6], node.counters.queued_bytes[6] = 2, 50
    node.tasks = [0, 0, 0, 0, 0, 0, 4]
    node.look(1_000)
    assert node.monitor.top().bins == (
        BinActivity(importance=3, wait_p50_ms=12, wait_p95_ms=15.6),
        BinActivity(importance=6, messages=2, bytes=50, tasks=4),
    )
    assert node.monitor.summary("importance/wait_p95_ms/3") is not None
    assert node.monitor.summary("importance/wait_p95_ms/6") is None
    assert node.monitor.summary("importance/messages/0") is None
    for second in range(2, 6):
        node.look(second * 1_000)
    assert node.monitor.top().bins[0].wait_p50_ms is None


def test_channels_and_clients() -> None:
    node = FakeNode()
    node.clients = [ClientReading(client=f"c{n}", queued_bytes=n) for n in range(3)]
    node.look(1_000)
    counts = node.channels.get("a/b")
    counts.published, counts.published_bytes = 4, 400
    counts.delivered, counts.delivered_bytes = 8, 800
    counts.count_wait(4, 8)
    node.clients[2] = ClientReading(client="c2", sent=5, sent_bytes=1_000, link_kbps=300)
    node.look(2_000)
    top = node.monitor.top(2)
    assert [(line.channel, line.delivered_hz) for line in top.channels] == [("a/b", 8)]
    assert [(line.client, line.sent_kbps) for line in top.clients] == [("c2", 8), ("c1", 0)]
    assert top.channels_total == 1
    names = set(node.monitor.series_names("c"))
    assert {"channel/latency_ms/a/b", "client/sent_kbps/c2", "client/link_kbps/c2"} <= names
    assert "client/link_kbps/c1" not in names


def test_top_says_what_is_decided_and_what_the_ledger_has() -> None:
    node = FakeNode()
    node.ledger.add(7, 1, "a", "ann", "bob", SHED, 1, 1, 1, 9, 3, "", "queue full", 0)
    node.look(1_000)
    top = node.monitor.top()
    assert (top.name, top.version, top.taken_ms, top.uptime_ms) == ("alpha", "1.2", 1_000, 1_000)
    assert top.management is node.decided
    assert (top.ledger.entries, top.ledger.reaches_back_ms) == (1, 1_000)
    answer = asyncio.run(node.monitor.search(LedgerQuery(outcome=SHED), 5))
    assert [entry.detail for entry in answer.entries] == ["queue full"]


def test_this_process() -> None:
    process = ProcessUsage()
    assert process.cpu_s() > 0
    assert 1_000_000 < process.memory_bytes() < 1 << 40


def test_all_channels_together() -> None:
    node = FakeNode()
    node.look(1_000)
    assert node.monitor.delivery == Delivery()
    for number in range(300):  # more than are looked at one by one
        counts = node.channels.get(f"a/{number}")
        counts.published = counts.delivered = 3
        counts.count_wait(4, 3)
    node.channels.get("a/7").late = 1
    node.channels.get("a/7").with_deadline = 2
    node.channels.get("a/8").expired = 100
    node.channels.get("$SYS/x").shed = 1_000
    node.look(2_000)
    delivery = node.monitor.delivery
    assert (delivery.delivered_hz, delivery.late_hz, delivery.expired_hz) == (450, 0.5, 50)
    assert delivery.in_time == round(899 / 1_000, 6)
    assert delivery.deadline_hz == 51
    assert delivery.shed_hz == 0
    assert delivery.p50_ms is not None
    assert 4 <= delivery.p50_ms <= 8
    summary = node.monitor.summary("delivery/in_time")
    assert summary is not None
    assert summary.last == delivery.in_time


def test_problems_last_as_long_as_they_are_there() -> None:
    node = FakeNode()
    node.missing = [("denver", "connection refused")]
    node.look(1_000)
    node.look(2_000)
    (problem,) = node.monitor.problems
    assert (problem.key, problem.since_ms) == ("link/denver", 1_000)
    node.missing = []
    node.look(3_000)
    assert node.monitor.problems == ()


def test_what_happens_to_journal_and_pipeline_is_recorded() -> None:
    node = FakeNode()
    node.journal = JournalStatus()
    node.pipeline = PipelineStatus(state="off")
    node.look(1_000)
    node.journal = JournalStatus(failure="no space left")
    node.pipeline = PipelineStatus(state="starting")
    node.look(2_000)
    node.look(3_000)
    node.journal = JournalStatus()
    node.pipeline = PipelineStatus(state="ready")
    node.look(4_000)
    rows = [(row.at_ms, row.kind, row.what) for row in node.monitor.changes.rows()]
    assert rows == [
        (4_000, "pipeline", "pipeline: ready"),
        (4_000, "node", "journal works again"),
        (2_000, "pipeline", "pipeline: starting"),
        (2_000, "node", "journal failed"),
    ]
