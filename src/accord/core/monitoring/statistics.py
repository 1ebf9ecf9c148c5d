"""Statistics of a node as frozen values, for metrics, statistics topics and the status page.

`Counters` holds the mutable counts from which they are taken.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# Causes for which a message did not reach a client. These are the usual ones; others may occur.
SHED_QUEUE_FULL: Final = "queue full"
SHED_EXPIRED: Final = "expired"
SHED_PACKET_TOO_LARGE: Final = "packet too large"
SHED_SLOW_READER: Final = "slow reader"
SHED_NO_SESSION: Final = "no session"
SHED_SESSION_EXPIRED: Final = "session expired"
SHED_NOT_ALLOWED: Final = "not allowed"
SHED_JOURNAL_FAILED: Final = "journal failed"

# A wait of w whole milliseconds falls into bucket w.bit_length(): bucket k holds waits below 2**k.
WAIT_BUCKETS: Final = 18
WAIT_BOUNDS_MS: Final = tuple(1 << bucket for bucket in range(WAIT_BUCKETS - 1))


class Waits(Struct, frozen=True):
    """Histogram of waiting times; the last bucket has no upper bound."""

    counts: tuple[int, ...]
    total_ms: int

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile_ms(self, share: float) -> int:
        """Return a bound below which at least `share` of the waits lie; 0 if there are none."""
        wanted = share * self.count
        reached = 0
        for bound_ms, count in zip(WAIT_BOUNDS_MS, self.counts, strict=False):
            reached += count
            if reached and reached >= wanted:
                return bound_ms
        return 2 * WAIT_BOUNDS_MS[-1] if self.count else 0


class Publishes(Struct, frozen=True):
    """Published messages, by QoS."""

    qos0: int = 0
    qos1: int = 0
    qos2: int = 0

    @property
    def total(self) -> int:
        return self.qos0 + self.qos1 + self.qos2


class Traffic(Struct, frozen=True, kw_only=True):
    """Traffic in one direction between the node and its clients."""

    bytes: int = 0
    packets: int = 0
    publishes: Publishes = Publishes()
    publish_bytes: int = 0


class Queue(Struct, frozen=True, kw_only=True):
    """Queued messages of one importance, over all clients."""

    importance: int
    messages: int
    bytes: int
    waits: Waits


class ShedClient(Struct, frozen=True):
    """Messages shed for one client and cause; client `other` stands for many."""

    client: str
    cause: str
    count: int


class Shed(Struct, frozen=True, kw_only=True):
    """Messages shed, by cause, and by client for those with the most."""

    causes: dict[str, int]
    clients: tuple[ShedClient, ...]

    @property
    def total(self) -> int:
        return sum(self.causes.values())


class JournalStatus(Struct, frozen=True, kw_only=True):
    """Status of the journal; offsets count records from its start."""

    segments: int = 0
    bytes: int = 0
    first_offset: int = 0
    next_offset: int = 0
    synced_offset: int = 0
    failure: str | None = None
    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None

    @property
    def unsynced(self) -> int:
        return self.next_offset - self.synced_offset


class PipelineStatus(Struct, frozen=True, kw_only=True):
    """Status of the data pipeline; `problem` states what is wrong, and the remedy.

    `last_end` is the cause of the last end of its process, `last_output` the last lines it printed.
    """

    state: str = "off"  # off, starting, ready, stopping, failed
    problem: str = ""
    spark: str = ""
    spark_version: str = ""
    spark_ui: str = ""  # address of Spark's own page, if it is on
    event_log: str = ""  # folder of Spark's event logs, if they are on
    build: str = ""  # as in `core.router.build`
    archive: str = ""
    archived_offset: int = 0
    lag_ms: int = 0
    lag_records: int = 0
    events: int = 0
    ledger_rows: int = 0
    rows_per_s: float = 0.0
    files: int = 0
    bytes: int = 0
    compactions: int = 0
    queries: int = 0
    queries_running: int = 0
    queries_waiting: int = 0  # in the pipeline
    waiting: int = 0  # at the node, for a reply
    restarts: int = 0
    last_end: str = ""
    last_end_ms: int = 0
    last_output: tuple[str, ...] = ()


class Statistics(Struct, frozen=True, kw_only=True):
    """A snapshot of a node's statistics; counters count since its start."""

    taken_ms: int
    uptime_ms: int
    connections: int
    connections_peak: int
    connects: int
    connects_refused: dict[str, int]
    disconnects: dict[str, int]
    sessions: int
    subscriptions: int
    predicates: int
    retained_messages: int
    retained_bytes: int
    received: Traffic
    sent: Traffic
    matched: int
    unmatched: int
    queues: tuple[Queue, ...]
    shed: Shed
    replaced: int = 0  # queued messages whose place newer values took: no loss
    journal: JournalStatus | None = None
    pipeline: PipelineStatus | None = None

    @property
    def queued_messages(self) -> int:
        return sum(queue.messages for queue in self.queues)

    @property
    def queued_bytes(self) -> int:
        return sum(queue.bytes for queue in self.queues)


class ClientStatus(Struct, frozen=True, kw_only=True):
    """Status of one client's session, connected or offline."""

    client: str
    user: str = ""
    address: str = ""
    protocol: str = ""
    is_connected: bool = False
    connected_ms: int | None = None
    subscriptions: int = 0
    queued_messages: int = 0
    queued_bytes: int = 0
    received: int = 0
    sent: int = 0
    shed: int = 0
    replaced: int = 0
