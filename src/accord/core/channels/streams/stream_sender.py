"""Sending side of streams: window, backlog, slow members, and response times of neighbours.

The window has a fixed size and advances with the slowest member. Events that do not fit wait in a
backlog, also bounded. A member that lacks events and does not advance for the timeout is dropped,
until it advances again; what it misses is known here. When the backlog is full, publishers are
paused, each after the event it has just published, so a hard limit above the backlog's bound
absorbs those; beyond it nothing is accepted. A burst does not make members slow: a member is
dropped only for making no progress, however much is queued.

Retransmission timers follow the response times of neighbours. Link latency is not enough: a busy
node, or one behind a slow link, replies late, and retransmitting faster would keep it from replying
at all. Each request carries its send time, which the reply echoes, so a sample is correct whatever
was lost (as with TCP timestamps). A request also carries the response time measured so far, and the
receiver uses it for requests of its own. Nothing is sent while all is well, so estimates decay with
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

from accord.core.channels.streams.messages import StreamHeader, StreamId
from accord.core.channels.streams.source_stream import WINDOW, BufferedEvent, SourceStream, size_of
from accord.core.overlay.signalling import TransitEvent

IDLE_US: Final = 60_000_000
MAX_BYTES: Final = 4 << 20
_BACKLOG: Final = 1_024
_MORE: Final = 8  # hard limit, for publishers that were not paused in time
_ANY: Final = 1 << 62  # bytes: `_fits` has decided before


class MemberProgress:
    """A member's acknowledged number, the time of its last progress, and whether it was dropped."""

    __slots__ = ("acked", "is_dropped", "since_us")

    def __init__(self, acked: int, now_us: int) -> None:
        self.acked = acked
        self.since_us = now_us
        self.is_dropped = False


class StreamSender:
    """Sender of one channel at this node."""

    def __init__(self, channel: str, key: StreamId, now_us: int) -> None:
        self.stream = SourceStream(channel, key, 1, now_us)
        self.members: dict[str, MemberProgress] = {}
        self.backlog: deque[tuple[TransitEvent, StreamHeader, int]] = deque()
        self.used_us = now_us
        self.versions = (-1, -1)  # versions of members and map it was last adapted to
        self.stall_timeout_us = 0  # from the channel's definition at that time
        self._bytes = 0  # in the window
        self._backlog_bytes = 0

    def load(self) -> tuple[int, int]:
        """Number and bytes of events that some member may lack."""
        return len(self.stream.events) + len(self.backlog), self._bytes + self._backlog_bytes

    def has_room(self) -> bool:
        return len(self.backlog) < _BACKLOG and self._backlog_bytes < MAX_BYTES

    def fitting(self, events: Iterable[TransitEvent]) -> int:
        """How many of the events fit into the window now."""
        return fitting(events, len(self.stream.events), self._bytes)

    def put(self, event: TransitEvent, header: StreamHeader, now_us: int) -> bool:
        """Queue an event; False at the hard limit."""
        self.used_us = now_us
        if self._is_overfull():
            return False
        self.backlog.append((event, header, now_us))
        self._backlog_bytes += size_of(event)
        return True

    def take(self, now_us: int) -> list[int]:
        """Move events from the backlog to the window while they fit; return their numbers."""
        stream = self.stream
        numbers = []
        while self.backlog and self._fits():
            event, note, came_us = self.backlog.popleft()
            self._backlog_bytes -= size_of(event)
            self._bytes += size_of(event)
            for progress in self.members.values():
                if progress.acked >= stream.last_sent:
                    progress.since_us = now_us
            number = stream.last_sent + 1
            stream.put(number, BufferedEvent(event, note, came_us), _ANY)
            if note.position is not None:
                stream.undelivered[note.position] = number  # until delivered at this node, too
            stream.ready()
            numbers.append(number)
        return numbers

    def set_members(self, members: tuple[str, ...], now_us: int) -> list[TransitEvent]:
        """Set the members to wait for; return events that dropped members miss."""
        base = self.stream.window_base
        wanted = dict.fromkeys(members, True)
        for gone in [each for each in self.members if each not in wanted]:
            del self.members[gone]
        for member in members:
            if member not in self.members:
                self.members[member] = MemberProgress(base - 1, now_us)
        return self.advance(now_us)

    def advance(self, now_us: int) -> list[TransitEvent]:
        """Advance the base to the slowest member; return events that dropped members miss."""
        stream = self.stream
        for member, progress in self.members.items():
            acked = stream.reports.get(member, -1)
            if acked > progress.acked:
                progress.acked = acked
                progress.since_us = now_us
                progress.is_dropped = False  # it misses what is below the base
        waited_for = [each.acked for each in self.members.values() if not each.is_dropped]
        base = max(stream.window_base, min([stream.acked_through, *waited_for]) + 1)
        given_up = [each.acked for each in self.members.values() if each.is_dropped]
        lacked = min(given_up, default=base) + 1  # first number that a dropped member lacks
        missed = []
        for number in range(stream.window_base, base):
            event = stream.events[number].event
            self._bytes -= size_of(event)
            if number >= lacked:
                missed.append(event)
        stream.advance_base(base)
        return missed

    def slow_members(
        self, timeout_us: int, unreachable: Mapping[str, int], now_us: int
    ) -> list[str]:
        """Members without progress for the timeout, including the time they were `unreachable`."""
        return [
            member
            for member, progress in self.members.items()
            if not progress.is_dropped
            and progress.acked < self.stream.last_sent
            and now_us - min(progress.since_us, unreachable.get(member, now_us)) >= timeout_us
        ]

    def drop(self, member: str, now_us: int) -> list[TransitEvent]:
        """Stop waiting for a member; return the events it may never get."""
        self.members[member].is_dropped = True
        return self.advance(now_us)

    def is_waiting(self) -> bool:
        """Whether any member is waited for."""
        return any(not each.is_dropped for each in self.members.values())

    def has_unacked(self) -> bool:
        """Whether some member has not acknowledged the top of the stream."""
        return any(each.acked < self.stream.last_sent for each in self.members.values())

    def headers_after(self, number: int) -> list[StreamHeader]:
        """Headers of all unconfirmed events after that number."""
        events = self.stream.events.items()
        window = [kept.header for each, kept in events if each > number]
        return window + [note for _, note, _ in self.backlog]

    def unconfirmed(self) -> list[int]:
        """The `event` numbers of events that some member may lack."""
        window = [kept.event.event for kept in self.stream.events.values()]
        return window + [event.event for event, _, _ in self.backlog]

    def is_confirmed(self) -> bool:
        """Whether all events are confirmed."""
        return not self.stream.events and not self.backlog

    def is_idle(self, now_us: int) -> bool:
        return self.is_confirmed() and now_us - self.used_us >= IDLE_US

    def check_invariants(self) -> None:
        self.stream.check_invariants()
        stream = self.stream
        assert stream.received_through == stream.last_sent
        assert len(self.backlog) <= _MORE * _BACKLOG
        assert len(stream.events) == stream.last_sent - stream.window_base + 1
        assert self._bytes == sum(size_of(kept.event) for kept in stream.events.values())
        assert self._backlog_bytes == sum(size_of(event) for event, _, _ in self.backlog)

    def _is_overfull(self) -> bool:
        return len(self.backlog) >= _MORE * _BACKLOG or self._backlog_bytes >= _MORE * MAX_BYTES

    def _fits(self) -> bool:
        return _fits(len(self.stream.events), self._bytes)


def fitting(events: Iterable[TransitEvent], count: int = 0, size: int = 0) -> int:
    """How many of the events fit into a window that holds `count` events of `size` bytes."""
    more = 0
    for event in events:
        if not _fits(count + more, size):
            break
        more += 1
        size += size_of(event)
    return more


def _fits(count: int, size: int) -> bool:
    return count < WINDOW and size < MAX_BYTES


_MAX_US: Final = 3_000_000
_SHARE: Final = 4  # weight of a new sample is 1 / _SHARE
_HALF_US: Final = 5_000_000  # half-life of an estimate


class _Learnt(NamedTuple):
    response_us: int
    at_us: int

    def now(self, now_us: int) -> int:
        return int(self.response_us * 0.5 ** (max(now_us - self.at_us, 0) / _HALF_US))


_NOTHING: Final = _Learnt(0, 0)


class ResponseTimes:
    """Estimates by neighbour: smoothed own samples, and the neighbour's reported ones."""

    def __init__(self) -> None:
        self._measured: dict[str, _Learnt] = {}
        self._reported: dict[str, _Learnt] = {}

    def on_reply(self, neighbour: str, sent_us: int, now_us: int) -> None:
        took_us = _within(now_us - sent_us)
        if neighbour in self._measured:
            usual_us = self.estimate_us(neighbour, now_us)
            took_us = usual_us + (took_us - usual_us) // _SHARE
        self._measured[neighbour] = _Learnt(took_us, now_us)

    def on_report(self, neighbour: str, response_us: int, now_us: int) -> None:
        """Store the response time that a neighbour has measured for its own requests."""
        self._reported[neighbour] = _Learnt(_within(response_us), now_us)

    def estimate_us(self, neighbour: str, now_us: int) -> int:
        """Current estimate of the response time."""
        return self._measured.get(neighbour, _NOTHING).now(now_us)

    def retransmit_us(self, neighbour: str, now_us: int) -> int:
        """Time to wait before a retransmission."""
        reported_us = self._reported.get(neighbour, _NOTHING).now(now_us)
        return max(self.estimate_us(neighbour, now_us), reported_us) * 3 // 2

    def prune(self, nodes: Container[str]) -> None:
        """Drop neighbours that are not in `nodes`."""
        for known in (self._measured, self._reported):
            for neighbour in [each for each in known if each not in nodes]:
                del known[neighbour]


def _within(us: int) -> int:
    return min(max(us, 0), _MAX_US)
