"""What the processes of a trial are told, and what they tell at the end: JSON, a line each.

Every process gets its plan in the first line of its input and says `ready`. A publisher then gets
the time to start at, a subscriber the word to stop; both answer with what they have seen. Times
are those of the monotonic clock, which is one for all processes of a machine.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

# At the beginning of every payload: when the event was due in ns, its number, whose it is.
STAMP: Final = struct.Struct("!QIB")


class Flow(Struct, frozen=True, kw_only=True):
    """A publisher: events of `sizes` in turns, with the `metadata` in turns if there is any.

    Paced to `bytes_per_s` whether the broker keeps up or not, or as fast as the broker takes them
    if that is 0; never more than `window` unacknowledged.
    """

    number: int
    name: str
    host: str
    port: int
    topic: str
    sizes: tuple[int, ...]
    metadata: tuple[str, ...] = ()
    bytes_per_s: float = 0.0
    window: int = 500
    seconds: float = 1.0
    is_first: bool = False


class Sent(Struct, frozen=True, kw_only=True):
    """When each event was due, also those that could not be sent any more, and payload sizes."""

    due_ns: list[int]
    sizes: list[int]
    sent: int
    refused: int


class Audience(Struct, frozen=True, kw_only=True):
    """Subscribers in one process: one for each predicate, or a single one without."""

    host: str
    port: int
    topic: str
    predicates: tuple[str, ...] = ()
    qos: int = 0


class Arrivals(Struct, frozen=True, kw_only=True):
    """What came of one flow, event by event."""

    arrived_ns: list[int] = []
    due_ns: list[int] = []
    numbers: list[int] = []
    sizes: list[int] = []


class Received(Struct, frozen=True, kw_only=True):
    """By flow; and bytes on the connections, by tenths of a second of the clock."""

    flows: dict[int, Arrivals]
    tenths: dict[int, int]
