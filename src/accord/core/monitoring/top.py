"""Values shown by `accord top`: the busiest channels, clients and queues, and queued events.

Rates (`_hz`, `_kbps`) are over the last few seconds.

The position of a queued event is found on demand by scanning all queues.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class ChannelActivity(Struct, frozen=True, kw_only=True):
    """Activity of one channel: published events, their outcomes and their latency."""

    channel: str
    published_hz: float = 0
    published_kbps: float = 0
    delivered_hz: float = 0
    delivered_kbps: float = 0
    late_hz: float = 0
    shaped_hz: float = 0
    replaced_hz: float = 0
    expired_hz: float = 0
    shed_hz: float = 0
    refused_hz: float = 0
    latency_ms: float | None = None
    latency_p95_ms: float | None = None
    published: int = 0
    delivered: int = 0
    dropped: int = 0

    @property
    def dropped_hz(self) -> float:
        return self.replaced_hz + self.expired_hz + self.shed_hz + self.refused_hz


class ClientState(Struct, frozen=True, kw_only=True, gc=False):
    """State of a client and its link; `shed` and `replaced` count since the start.

    `waiting_ms` is how long ago the oldest event that waits for it came, about.
    """

    client: str
    user: str = ""
    is_connected: bool = True
    shed: int = 0
    replaced: int = 0
    queued_messages: int = 0
    queued_bytes: int = 0
    waiting_ms: int = 0
    link_kbps: float | None = None
    limit_kbps: float | None = None
    rtt_ms: float | None = None


class ClientReading(ClientState, frozen=True, kw_only=True):
    """`ClientState` with cumulative counts of what was sent."""

    sent: int = 0
    sent_bytes: int = 0


class ClientActivity(ClientState, frozen=True, kw_only=True):
    """`ClientState` with rates of what was sent."""

    sent_hz: float = 0
    sent_kbps: float = 0
    shed_hz: float = 0
    replaced_hz: float = 0


class BinActivity(Struct, frozen=True, kw_only=True):
    """Queued messages of one importance, over all clients, and the waits of those that left."""

    importance: int
    messages: int = 0
    bytes: int = 0
    tasks: int = 0
    wait_p50_ms: float | None = None
    wait_p95_ms: float | None = None


class Management(Struct, frozen=True, kw_only=True):
    """Decisions of the administrator that apply to the node."""

    strategy: str = ""
    is_shaping: bool = False
    bandwidth_bps: int | None = None
    client_bandwidth_bps: int | None = None
    limited_clients: int = 0
    policies: int = 0
    version: int = 0


class LedgerStatus(Struct, frozen=True, kw_only=True):
    """Coverage of the ledger; `missed` events were too many, or the journal was full."""

    is_on: bool = True
    entries: int = 0
    missed: int = 0
    reaches_back_ms: int | None = None


class NodeLoad(Struct, frozen=True, kw_only=True):
    """Load of the node as a whole; what newer values replaced is not among the shed."""

    cpu_percent: float = 0
    memory_mb: float = 0
    backlog: int = 0
    connections: int = 0
    sessions: int = 0
    received_hz: float = 0
    received_kbps: float = 0
    sent_hz: float = 0
    sent_kbps: float = 0
    shed_hz: float = 0
    shed: dict[str, float] = {}  # per second, by cause
    replaced_hz: float = 0
    queued_messages: int = 0
    queued_bytes: int = 0


class Top(Struct, frozen=True, kw_only=True):
    """A node's busiest parts; `channels_total` and `clients_total` include those not shown."""

    name: str
    version: str
    taken_ms: int
    uptime_ms: int
    load: NodeLoad
    management: Management
    bins: tuple[BinActivity, ...]
    channels: tuple[ChannelActivity, ...]
    channels_total: int
    clients: tuple[ClientActivity, ...]
    clients_total: int
    ledger: LedgerStatus


# What an event waits for.
CPU: Final = "CPU"
JOURNAL: Final = "journal"  # to be written
SHAPING: Final = "shaping"
CONNECTION: Final = "connection"
ACKNOWLEDGEMENT: Final = "acknowledgement"  # the client's window is full
LINK: Final = "link"
CLIENT_LIMIT: Final = "limit of the client"
NODE_LIMIT: Final = "limit of the node"
TURN: Final = "turn"


class Ahead(Struct, frozen=True, kw_only=True):
    """Events of one importance that precede another event."""

    importance: int
    events: int
    bytes: int


class Waiting(Struct, frozen=True, kw_only=True):
    """An event queued for a destination; if that is empty, in the node's task queue.

    `wait_ms` is the minimum wait for a limit of `limit_bps`; `unacknowledged` events or
    `under_way_bytes` bytes must be accepted by the client first.
    """

    destination: str
    channel: str
    publisher: str
    received_ms: int
    queued_ms: int
    taken_ms: int
    size: int
    importance: int
    policy: str = ""
    waits_for: str
    ahead: tuple[Ahead, ...] = ()
    limit_bps: int | None = None
    wait_ms: int | None = None
    unacknowledged: int | None = None
    under_way_bytes: int | None = None
