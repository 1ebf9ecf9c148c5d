"""Position of a queued event, found on demand by scanning all queues."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

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
