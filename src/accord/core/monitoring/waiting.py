"""Where an event waits: found when somebody asks, by a look through all queues."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# What an event waits for.
CPU: Final = "CPU"
JOURNAL: Final = "journal"  # to be recorded
SHAPING: Final = "shaping"
CONNECTION: Final = "connection"
ACKNOWLEDGEMENT: Final = "acknowledgement"  # the client has as many events as it takes at a time
LINK: Final = "link"
CLIENT_LIMIT: Final = "limit of the client"
NODE_LIMIT: Final = "limit of the node"
TURN: Final = "turn"


class Ahead(Struct, frozen=True, kw_only=True):
    """Events of one importance that go before another event."""

    importance: int
    events: int
    bytes: int


class Waiting(Struct, frozen=True, kw_only=True):
    """An event that waits for one destination, in the node's task queue if that is empty.

    `wait_ms` is how long it waits for a limit of `limit_bps` at least; `unacknowledged` are the
    events, or `under_way_bytes` the bytes, that the client has to take first.
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
