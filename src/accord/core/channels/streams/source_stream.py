"""State of one stream at one node of its tree: buffered events, gaps, and others' progress.

All nodes of the tree buffer the events from `window_base` on, so that each can request missing ones
from its parent: the source advances `window_base` only past events that every member it waits for
has. A node that learns of a base beyond what it has was dropped by the source; it has missed
events, and records that. When a stream is silent for long its events are discarded, but a
checkpoint of its progress remains: if the stream continues, the node neither delivers an event
twice nor misses one unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from accord.core.channels.streams.messages import Stamp, StreamHeader, StreamId
from accord.core.channels.trees.tree import Digest
from accord.core.model.units import NEVER_US
from accord.core.overlay.signalling import TransitEvent
from accord.core.scheduling.timers import Timer

WINDOW: Final = 1_024  # events from the base on
# Per stream of another node: its source has 4 MiB in flight, and one event of maximum size.
MAX_BYTES: Final = 32 << 20
_OVERHEAD: Final = 200
_RANGES: Final = 16
MAX_NACKED: Final = 64  # per message
RETRY_US: Final = 20_000  # interval of checks whether this node has room
_FIRST_NACK_US: Final = 5_000
_MIN_NACK_US: Final = 60_000
_NACKS: Final = 4  # nacks without progress before the interval doubles
_MAX_DOUBLINGS: Final = 2  # maximum number of doublings
_MAX_SYNC_US: Final = 600_000


class BufferedEvent:
    """An event as received, with its header and arrival time."""

    __slots__ = ("at_us", "event", "header")

    def __init__(self, event: TransitEvent, header: StreamHeader, at_us: int) -> None:
        self.event = event
        self.header = header
        self.at_us = at_us


class HeartbeatBackoff:
    """Heartbeat timer of a neighbour; the interval grows while the neighbour is silent."""

    __slots__ = ("due_us", "interval_us", "sent_us")

    def __init__(self, due_us: int, interval_us: int, sent_us: int = -NEVER_US) -> None:
        self.due_us = due_us
        self.interval_us = interval_us
        self.sent_us = sent_us  # time of the last heartbeat

    def back_off(self, now_us: int) -> None:
        self.due_us = now_us + self.interval_us
        self.interval_us = max(self.interval_us, min(self.interval_us * 3 // 2, _MAX_SYNC_US))


class StreamCheckpoint(NamedTuple):
    """Progress of an evicted stream: delivered up to where, and whether this node was a member."""

    key: StreamId
    delivered_through: int
    was_member: bool


class SourceStream:
    """One stream at one node; `parent` is the next hop towards the source.

    All events up to `delivered_through` have arrived and been handed over. `retry_us` is when to
    check again whether the node accepts more.
    """

    def __init__(self, channel: str, key: StreamId, window_base: int, now_us: int) -> None:
        self.channel = channel
        self.key = key
        self.window_base = window_base
        self._kept_from = window_base
        self.last_sent = window_base - 1
        self.received_through = window_base - 1
        self.parent = ""
        self.tree_epoch = 0
        self.digest: Digest = b""
        self.events: dict[int, BufferedEvent] = {}
        self.bytes = 0  # of `events`
        self.undelivered: dict[Stamp, int] = {}  # not yet delivered in the total order, by position
        self.reports: dict[str, int] = {}  # acknowledged numbers of nodes beyond this one
        self.bases: dict[str, int] = {}  # of neighbours
        self.heartbeats: dict[str, HeartbeatBackoff] = {}  # of neighbours that may lack events
        self.received_us = now_us
        self.was_member = False  # this node has been a member since some earlier hand-over
        self._delivered_through = 0  # delivered up to here before the checkpoint
        self.skipped = 0  # sequence numbers that will never arrive
        self.ack_us = NEVER_US
        # Send time of the parent's heartbeat, by its clock, while it is unanswered.
        self.echo_us = 0
        self.unacked = 0  # events since the last ack
        self.nack_us = NEVER_US
        self.failed_nacks = 0  # nacks since the last arrival
        self.retry_us = NEVER_US
        self.timer: Timer | None = None  # created on first use

    @property
    def acked_through(self) -> int:
        """The cumulative acknowledgement: all up to it has arrived and is not held back."""
        return (
            next(iter(self.undelivered.values())) - 1 if self.undelivered else self.received_through
        )

    def restore(self, checkpoint: StreamCheckpoint) -> None:
        """Resume from a checkpoint: `ready` continues after it."""
        self._delivered_through = checkpoint.delivered_through
        self.received_through = min(self.received_through, checkpoint.delivered_through)
        self.was_member = checkpoint.was_member

    def checkpoint(self) -> StreamCheckpoint:
        return StreamCheckpoint(
            self.key, max(self.received_through, self._delivered_through), self.was_member
        )

    def end(self) -> None:
        """End the stream: buffered events become `ready` despite gaps before them."""
        self.update_window(self.last_sent + 1, self.last_sent)

    def update_window(self, window_base: int, last_sent: int) -> None:
        """Apply a received base and top; `ready` may change."""
        self.window_base = max(self.window_base, window_base)
        self.last_sent = max(
            self.last_sent, self.window_base - 1, min(last_sent, self.window_base + WINDOW - 1)
        )

    def put(self, number: int, kept: BufferedEvent, most_bytes: int = MAX_BYTES) -> bool:
        """Buffer an event; False if it is a duplicate, outside the window, or over the byte limit.

        One event is always accepted, whatever its size.
        """
        if (
            number <= self.received_through
            or number in self.events
            or number >= self.window_base + WINDOW
        ):
            return False
        size = size_of(kept.event)
        if self.events and self.bytes + size > most_bytes:
            return False
        self.failed_nacks = 0
        self.events[number] = kept
        self.bytes += size
        self.last_sent = max(self.last_sent, number)
        return True

    def ready(self, most: int = WINDOW) -> list[BufferedEvent]:
        """Return up to `most` events that are next, plus those that the source no longer waits for.

        Events do not wait for numbers that will never arrive.
        """
        found = []
        if self.received_through + 1 < self.window_base:
            since = max(self.received_through, self._delivered_through)
            passed = sorted(number for number in self.events if since < number < self.window_base)
            found += [self.events[number] for number in passed]
            self.skipped += max(0, self.window_base - 1 - since - len(passed))
            self.received_through = self.window_base - 1
        while (
            len(found) < most and (kept := self.events.get(self.received_through + 1)) is not None
        ):
            self.received_through += 1
            if self.received_through > self._delivered_through:
                found.append(kept)
        self._discard_confirmed()
        return found

    def advance_base(self, base: int) -> None:
        """Confirm all events below `window_base`, at the source."""
        self.window_base = max(self.window_base, base)
        self._discard_confirmed()

    def hold(self, now_us: int) -> None:
        """Schedule another delivery attempt if an event is waiting."""
        self.retry_us = now_us + RETRY_US if self.received_through + 1 in self.events else NEVER_US

    def is_incomplete(self) -> bool:
        return self.received_through < self.last_sent

    def is_idle(self) -> bool:
        """Whether all events have arrived here and beyond, and the parent knows it."""
        return not self.is_incomplete() and not self.events and self.next_due_us() == NEVER_US

    def missing(self) -> tuple[tuple[int, int], ...]:
        """Ranges of sequence numbers to nack."""
        ranges: list[tuple[int, int]] = []
        asked = 0
        for number in range(self.received_through + 1, self.last_sent + 1):
            if number in self.events:
                continue
            if asked >= MAX_NACKED:
                break
            asked += 1
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1] = (ranges[-1][0], number)
            elif len(ranges) < _RANGES:
                ranges.append((number, number))
            else:
                break
        return tuple(ranges)

    def schedule_nack(self, now_us: int) -> None:
        """Schedule a nack if events are missing."""
        if not self.is_incomplete():
            self.nack_us = NEVER_US
        elif self.nack_us == NEVER_US:
            self.nack_us = now_us + _FIRST_NACK_US

    def back_off_nack(self, pause_us: int, now_us: int) -> None:
        """Schedule the next nack, with backoff while nothing arrives."""
        self.failed_nacks += 1
        slower = min(self.failed_nacks // _NACKS, _MAX_DOUBLINGS)
        self.nack_us = now_us + max(_MIN_NACK_US << slower, pause_us)

    def merge_acks(self, acked_through: dict[str, int], nodes: Iterable[str]) -> bool:
        """Merge acknowledgements of `nodes`, those beyond a neighbour; False if nothing is new."""
        has_changed = False
        for node in nodes:
            number = min(
                acked_through.get(node, -1), self.last_sent
            )  # an ack beyond the top is capped
            if number > self.reports.get(node, -1):
                self.reports[node] = number
                has_changed = True
        return has_changed

    def next_due_us(self) -> int:
        due_us = min(self.ack_us, self.nack_us, self.retry_us)
        for pace in self.heartbeats.values():
            due_us = min(due_us, pace.due_us)
        return due_us

    def check_invariants(self) -> None:
        assert self.window_base - 1 <= self.received_through <= self.last_sent
        assert len(self.events) <= WINDOW
        assert self.bytes == sum(size_of(kept.event) for kept in self.events.values())
        assert all(self.window_base <= number <= self.last_sent for number in self.events)
        assert self.retry_us < NEVER_US or self.received_through + 1 not in self.events
        assert list(self.undelivered.values()) == sorted(self.undelivered.values())
        assert self.acked_through <= self.received_through

    def _discard_confirmed(self) -> None:
        if self._kept_from < self.window_base:
            self._kept_from = self.window_base
            for number in [each for each in self.events if each < self.window_base]:
                self.bytes -= size_of(self.events.pop(number).event)


def size_of(event: TransitEvent) -> int:
    return len(event.payload) + len(event.block) + _OVERHEAD
