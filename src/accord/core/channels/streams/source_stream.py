"""State of one stream at one node of its tree: buffered events, gaps, and others' progress.

All nodes of the tree buffer the events from `base` on, so that each can request missing ones from
its parent: the source advances `base` only past events that every member it waits for has. A node
that learns of a base beyond what it has was dropped by the source; it has missed events, and
records that. When a stream is silent for long its events are discarded, but a checkpoint of its
progress remains: if the stream continues, the node neither delivers an event twice nor misses one
unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from accord.core.channels.streams.messages import Stamp, StreamHeader, StreamId
from accord.core.channels.trees.tree import Digest
from accord.core.model.units import NEVER_US
from accord.core.overlay.signalling import Carried
from accord.core.scheduling.timers import Timer

WINDOW: Final = 1_024  # events from the base on
# Per stream of another node: its source has 4 MiB in flight, and one event of maximum size.
MAX_BYTES: Final = 32 << 20
_OVERHEAD: Final = 200
_RANGES: Final = 16
MAX_ASKED: Final = 64  # per message
HELD_US: Final = 20_000  # interval of checks whether this node has room
_FIRST_NACK_US: Final = 5_000
_MIN_NACK_US: Final = 60_000
_NACKS: Final = 4  # nacks without progress before the interval doubles
_SLOWEST: Final = 2  # maximum number of doublings
_MAX_SYNC_US: Final = 600_000


class BufferedEvent:
    """An event as received, with its header and arrival time."""

    __slots__ = ("at_us", "event", "note")

    def __init__(self, event: Carried, note: StreamHeader, at_us: int) -> None:
        self.event = event
        self.note = note
        self.at_us = at_us


class HeartbeatBackoff:
    """Heartbeat timer of a neighbour; the interval grows while the neighbour is silent."""

    __slots__ = ("due_us", "pause_us", "said_us")

    def __init__(self, due_us: int, pause_us: int, said_us: int = -NEVER_US) -> None:
        self.due_us = due_us
        self.pause_us = pause_us
        self.said_us = said_us  # time of the last heartbeat

    def slow_down(self, now_us: int) -> None:
        self.due_us = now_us + self.pause_us
        self.pause_us = max(self.pause_us, min(self.pause_us * 3 // 2, _MAX_SYNC_US))


class StreamCheckpoint(NamedTuple):
    """Progress of an evicted stream: delivered up to where, and whether this node was a member."""

    key: StreamId
    through: int
    is_wanted: bool


class SourceStream:
    """One stream at one node; `parent` is the next hop towards the source.

    All events up to `through` have arrived and been handed over. `held_us` is when to check again
    whether the node accepts more.
    """

    def __init__(self, channel: str, key: StreamId, base: int, now_us: int) -> None:
        self.channel = channel
        self.key = key
        self.base = base
        self._kept_from = base
        self.top = base - 1
        self.through = base - 1
        self.parent = ""
        self.turn = 0
        self.digest: Digest = b""
        self.events: dict[int, BufferedEvent] = {}
        self.bytes = 0  # of `events`
        self.held_back: dict[Stamp, int] = {}  # not yet delivered in the total order, by position
        self.reports: dict[str, int] = {}  # acknowledged numbers of nodes beyond this one
        self.bases: dict[str, int] = {}  # of neighbours
        self.paces: dict[str, HeartbeatBackoff] = {}  # of neighbours that may lack events
        self.heard_us = now_us
        self.is_wanted = False  # this node has been a member since some earlier hand-over
        self._handed = 0  # delivered up to here before the checkpoint
        self.skipped = 0  # sequence numbers that will never arrive
        self.ack_us = NEVER_US
        # Send time of the parent's heartbeat, by its clock, while it is unanswered.
        self.asked_us = 0
        self.unacked = 0  # events since the last ack
        self.nack_us = NEVER_US
        self.in_vain = 0  # nacks since the last arrival
        self.held_us = NEVER_US
        self.timer: Timer | None = None  # created on first use

    @property
    def done(self) -> int:
        """The cumulative acknowledgement: all up to it has arrived and is not held back."""
        return next(iter(self.held_back.values())) - 1 if self.held_back else self.through

    def go_on(self, past: StreamCheckpoint) -> None:
        """Resume from a checkpoint: `ready` continues after it."""
        self._handed = past.through
        self.through = min(self.through, past.through)
        self.is_wanted = past.is_wanted

    def past(self) -> StreamCheckpoint:
        return StreamCheckpoint(self.key, max(self.through, self._handed), self.is_wanted)

    def end(self) -> None:
        """End the stream: buffered events become `ready` despite gaps before them."""
        self.hear(self.top + 1, self.top)

    def hear(self, base: int, top: int) -> None:
        """Apply a received base and top; `ready` may change."""
        self.base = max(self.base, base)
        self.top = max(self.top, self.base - 1, min(top, self.base + WINDOW - 1))

    def put(self, number: int, kept: BufferedEvent, most_bytes: int = MAX_BYTES) -> bool:
        """Buffer an event; False if it is a duplicate, outside the window, or over the byte limit.

        One event is always accepted, whatever its size.
        """
        if number <= self.through or number in self.events or number >= self.base + WINDOW:
            return False
        size = size_of(kept.event)
        if self.events and self.bytes + size > most_bytes:
            return False
        self.in_vain = 0
        self.events[number] = kept
        self.bytes += size
        self.top = max(self.top, number)
        return True

    def ready(self, most: int = WINDOW) -> list[BufferedEvent]:
        """Return up to `most` events that are next, plus those that the source no longer waits for.

        Events do not wait for numbers that will never arrive.
        """
        found = []
        if self.through + 1 < self.base:
            since = max(self.through, self._handed)
            passed = sorted(number for number in self.events if since < number < self.base)
            found += [self.events[number] for number in passed]
            self.skipped += max(0, self.base - 1 - since - len(passed))
            self.through = self.base - 1
        while len(found) < most and (kept := self.events.get(self.through + 1)) is not None:
            self.through += 1
            if self.through > self._handed:
                found.append(kept)
        self._forget()
        return found

    def advance_base(self, base: int) -> None:
        """Confirm all events below `base`, at the source."""
        self.base = max(self.base, base)
        self._forget()

    def hold(self, now_us: int) -> None:
        """Schedule another delivery attempt if an event is waiting."""
        self.held_us = now_us + HELD_US if self.through + 1 in self.events else NEVER_US

    def lacks(self) -> bool:
        return self.through < self.top

    def has_nothing_to_do(self) -> bool:
        """Whether all events have arrived here and beyond, and the parent knows it."""
        return not self.lacks() and not self.events and self.next_due_us() == NEVER_US

    def missing(self) -> tuple[tuple[int, int], ...]:
        """Ranges of sequence numbers to nack."""
        ranges: list[tuple[int, int]] = []
        asked = 0
        for number in range(self.through + 1, self.top + 1):
            if number in self.events:
                continue
            if asked >= MAX_ASKED:
                break
            asked += 1
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1] = (ranges[-1][0], number)
            elif len(ranges) < _RANGES:
                ranges.append((number, number))
            else:
                break
        return tuple(ranges)

    def seek(self, now_us: int) -> None:
        """Schedule a nack if events are missing."""
        if not self.lacks():
            self.nack_us = NEVER_US
        elif self.nack_us == NEVER_US:
            self.nack_us = now_us + _FIRST_NACK_US

    def sought(self, pause_us: int, now_us: int) -> None:
        """Schedule the next nack, with backoff while nothing arrives."""
        self.in_vain += 1
        slower = min(self.in_vain // _NACKS, _SLOWEST)
        self.nack_us = now_us + max(_MIN_NACK_US << slower, pause_us)

    def report(self, through: dict[str, int], nodes: Iterable[str]) -> bool:
        """Merge acknowledgements of `nodes`, those beyond a neighbour; False if nothing is new."""
        is_news = False
        for node in nodes:
            number = min(through.get(node, -1), self.top)  # an ack beyond the top is capped
            if number > self.reports.get(node, -1):
                self.reports[node] = number
                is_news = True
        return is_news

    def next_due_us(self) -> int:
        due_us = min(self.ack_us, self.nack_us, self.held_us)
        for pace in self.paces.values():
            due_us = min(due_us, pace.due_us)
        return due_us

    def check_invariants(self) -> None:
        assert self.base - 1 <= self.through <= self.top
        assert len(self.events) <= WINDOW
        assert self.bytes == sum(size_of(kept.event) for kept in self.events.values())
        assert all(self.base <= number <= self.top for number in self.events)
        assert self.held_us < NEVER_US or self.through + 1 not in self.events
        assert list(self.held_back.values()) == sorted(self.held_back.values())
        assert self.done <= self.through

    def _forget(self) -> None:
        if self._kept_from < self.base:
            self._kept_from = self.base
            for number in [each for each in self.events if each < self.base]:
                self.bytes -= size_of(self.events.pop(number).event)


def size_of(event: Carried) -> int:
    return len(event.payload) + len(event.block) + _OVERHEAD
