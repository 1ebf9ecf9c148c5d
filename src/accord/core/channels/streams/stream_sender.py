"""A stream at its source: which members it waits for, and what has to wait itself.

The window of a stream has a fixed size, and moves on with the slowest member. What does not fit
waits in a backlog of a fixed size, too. A member that has something to get and does not advance for
too long is not waited for any more, until it goes on; what it does not get is known here. When the
backlog is full there is no room for more, and publishers are held back, each behind the event that
it has just published. So some more is taken, up to a limit; beyond it nothing is. A burst makes no
laggards: who is given up had time, however much there is to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from accord.core.channels.streams.messages import StreamHeader, StreamId
from accord.core.channels.streams.source_stream import WINDOW, BufferedEvent, SourceStream, size_of
from accord.core.overlay.signalling import Carried

IDLE_US: Final = 60_000_000
MAX_BYTES: Final = 4 << 20
_BACKLOG: Final = 1_024
_MORE: Final = 8  # times as much is taken of those that could not be held back in time
_ANY: Final = 1 << 62  # bytes: what fits is decided before


class MemberProgress:
    """Of a member: since when it has not advanced, and whether it was given up."""

    __slots__ = ("acked", "is_dropped", "since_us")

    def __init__(self, acked: int, now_us: int) -> None:
        self.acked = acked
        self.since_us = now_us
        self.is_dropped = False


class StreamSender:
    def __init__(self, channel: str, key: StreamId, now_us: int) -> None:
        self.stream = SourceStream(channel, key, 1, now_us)
        self.members: dict[str, MemberProgress] = {}
        self.backlog: deque[tuple[Carried, StreamHeader, int]] = deque()
        self.used_us = now_us
        self.seen = (-1, -1)  # which members and which map it was last made to fit
        self.patience_us = 0  # as its channel said then
        self._bytes = 0  # in the window
        self._backlog_bytes = 0

    def load(self) -> tuple[int, int]:
        """How many events somebody may lack, and their size."""
        return len(self.stream.events) + len(self.backlog), self._bytes + self._backlog_bytes

    def has_room(self) -> bool:
        return len(self.backlog) < _BACKLOG and self._backlog_bytes < MAX_BYTES

    def fitting(self, events: Iterable[Carried]) -> int:
        """How many of them could be sent at once."""
        return fitting(events, len(self.stream.events), self._bytes)

    def put(self, event: Carried, note: StreamHeader, now_us: int) -> bool:
        """Take an event to be sent; False where there is no room."""
        self.used_us = now_us
        if self._is_overfull():
            return False
        self.backlog.append((event, note, now_us))
        self._backlog_bytes += size_of(event)
        return True

    def take(self, now_us: int) -> list[int]:
        """Move what fits from the backlog to the window; gives the numbers."""
        stream = self.stream
        numbers = []
        while self.backlog and self._fits():
            event, note, came_us = self.backlog.popleft()
            self._backlog_bytes -= size_of(event)
            self._bytes += size_of(event)
            for progress in self.members.values():
                if progress.acked >= stream.top:
                    progress.since_us = now_us
            number = stream.top + 1
            stream.put(number, BufferedEvent(event, note, came_us), _ANY)
            if note.stamp is not None:
                stream.held_back[note.stamp] = number  # until it is handed out at this node, too
            stream.ready()
            numbers.append(number)
        return numbers

    def set_members(self, members: tuple[str, ...], now_us: int) -> list[Carried]:
        """Wait for these; gives what others that were given up do not get."""
        base = self.stream.base
        wanted = dict.fromkeys(members, True)
        for gone in [each for each in self.members if each not in wanted]:
            del self.members[gone]
        for member in members:
            if member not in self.members:
                self.members[member] = MemberProgress(base - 1, now_us)
        return self.advance(now_us)

    def advance(self, now_us: int) -> list[Carried]:
        """Move on as far as all members have come; gives what those that were given up lack."""
        stream = self.stream
        for member, progress in self.members.items():
            acked = stream.reports.get(member, -1)
            if acked > progress.acked:
                progress.acked = acked
                progress.since_us = now_us
                progress.is_dropped = False  # what it lacks below the base is lost for it
        waited_for = [each.acked for each in self.members.values() if not each.is_dropped]
        base = max(stream.base, min([stream.done, *waited_for]) + 1)
        given_up = [each.acked for each in self.members.values() if each.is_dropped]
        lacked = min(given_up, default=base) + 1  # from there on, by one of them at least
        missed = []
        for number in range(stream.base, base):
            event = stream.events[number].event
            self._bytes -= size_of(event)
            if number >= lacked:
                missed.append(event)
        stream.advance_base(base)
        return missed

    def laggards(self, patience_us: int, away: Mapping[str, int], now_us: int) -> list[str]:
        """Members that have not advanced for too long, or were `away` for so long already."""
        return [
            member
            for member, progress in self.members.items()
            if not progress.is_dropped
            and progress.acked < self.stream.top
            and now_us - min(progress.since_us, away.get(member, now_us)) >= patience_us
        ]

    def drop(self, member: str, now_us: int) -> list[Carried]:
        """Wait for it no more; gives what it may never get."""
        self.members[member].is_dropped = True
        return self.advance(now_us)

    def waits(self) -> bool:
        """Whether for anybody."""
        return any(not each.is_dropped for each in self.members.values())

    def is_to_tell(self) -> bool:
        """Whether a member does not know yet how far the stream has come."""
        return any(each.acked < self.stream.top for each in self.members.values())

    def notes_after(self, number: int) -> list[StreamHeader]:
        """Of all events that are to follow on that number."""
        events = self.stream.events.items()
        window = [kept.note for each, kept in events if each > number]
        return window + [note for _, note, _ in self.backlog]

    def waiting(self) -> list[int]:
        """What somebody may lack, by what it is called at its node."""
        window = [kept.event.event for kept in self.stream.events.values()]
        return window + [event.event for event, _, _ in self.backlog]

    def is_done(self) -> bool:
        """Whether everybody has everything."""
        return not self.stream.events and not self.backlog

    def is_idle(self, now_us: int) -> bool:
        return self.is_done() and now_us - self.used_us >= IDLE_US

    def check_invariants(self) -> None:
        self.stream.check_invariants()
        stream = self.stream
        assert stream.through == stream.top
        assert len(self.backlog) <= _MORE * _BACKLOG
        assert len(stream.events) == stream.top - stream.base + 1
        assert self._bytes == sum(size_of(kept.event) for kept in stream.events.values())
        assert self._backlog_bytes == sum(size_of(event) for event, _, _ in self.backlog)

    def _is_overfull(self) -> bool:
        return len(self.backlog) >= _MORE * _BACKLOG or self._backlog_bytes >= _MORE * MAX_BYTES

    def _fits(self) -> bool:
        return _fits(len(self.stream.events), self._bytes)


def fitting(events: Iterable[Carried], count: int = 0, size: int = 0) -> int:
    """How many of them fit into the window of a stream that has some already."""
    more = 0
    for event in events:
        if not _fits(count + more, size):
            break
        more += 1
        size += size_of(event)
    return more


def _fits(count: int, size: int) -> bool:
    return count < WINDOW and size < MAX_BYTES
