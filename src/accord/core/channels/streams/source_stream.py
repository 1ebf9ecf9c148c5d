"""A stream at one node of its tree: what it has of it, what it lacks, and who else has what.

All nodes of the tree keep the events from `base` on, so that each can ask the one before it for
what it lacks: the source lets `base` follow only when every member has an event. A node that hears
of a base beyond what it has was given up by the source; it has missed something, and knows it. When
nothing was heard of a stream for long its events are forgotten, but not how far it had come: if it
goes on, so does the node, and neither hands anything over again nor misses anything in silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from accord.core.channels.streams.messages import Stamp, StreamHeader, StreamId
from accord.core.channels.trees.tree import Digest
from accord.core.overlay.signalling import Carried
from accord.core.scheduling.timers import Timer

WINDOW: Final = 1_024  # events from the base on
# Of a stream of another node: its source has 4 MiB on their way, and one event as large as may be.
MAX_BYTES: Final = 32 << 20
_OVERHEAD: Final = 200
_RANGES: Final = 16
MAX_ASKED: Final = 64  # in one message
HELD_US: Final = 20_000  # until it is asked again whether this node has room
_FIRST_NACK_US: Final = 5_000
_MIN_NACK_US: Final = 60_000
_NACKS: Final = 4  # after so many in vain, twice as long passes before the next
_SLOWEST: Final = 2  # and at most so often twice as long
_MAX_SYNC_US: Final = 600_000
NEVER: Final = 1 << 62


class BufferedEvent:
    """An event as it came, and when."""

    __slots__ = ("at_us", "event", "note")

    def __init__(self, event: Carried, note: StreamHeader, at_us: int) -> None:
        self.event = event
        self.note = note
        self.at_us = at_us


class HeartbeatBackoff:
    """When a neighbour is to hear again how much there is: less often the longer it is silent."""

    __slots__ = ("due_us", "pause_us", "said_us")

    def __init__(self, due_us: int, pause_us: int, said_us: int = -NEVER) -> None:
        self.due_us = due_us
        self.pause_us = pause_us
        self.said_us = said_us  # when it heard that last

    def slow_down(self, now_us: int) -> None:
        self.due_us = now_us + self.pause_us
        self.pause_us = max(self.pause_us, min(self.pause_us * 3 // 2, _MAX_SYNC_US))


class StreamCheckpoint(NamedTuple):
    """Of a stream that was forgotten: what was handed over, and whether this node was a member."""

    key: StreamId
    through: int
    is_wanted: bool


class SourceStream:
    """`through`: all up to it has come, and was taken. `parent` is the one towards the source.

    `held_us` is when to ask again whether what has come is taken.
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
        self.bytes = 0  # of all of them
        self.held_back: dict[Stamp, int] = {}  # numbers whose turn has not come in another order
        self.reports: dict[str, int] = {}  # of nodes beyond this one
        self.bases: dict[str, int] = {}  # of neighbours
        self.paces: dict[str, HeartbeatBackoff] = {}  # of neighbours that may lack something
        self.heard_us = now_us
        self.is_wanted = False  # this node is a member, since something was handed over
        self._handed = 0  # through which number, when it was known before
        self.skipped = 0  # numbers that will never come
        self.ack_us = NEVER
        # When the one before this one has asked, by its clock, if that is to be answered.
        self.asked_us = 0
        self.unacked = 0  # events since the last acknowledgement
        self.nack_us = NEVER
        self.in_vain = 0  # how often something was asked for since anything came
        self.held_us = NEVER
        self.timer: Timer | None = None  # of what is due, once anything was

    @property
    def done(self) -> int:
        """All up to it has come, and is not held back: what is acknowledged."""
        return next(iter(self.held_back.values())) - 1 if self.held_back else self.through

    def go_on(self, past: StreamCheckpoint) -> None:
        """It was known before: what is `ready` follows on that."""
        self._handed = past.through
        self.through = min(self.through, past.through)
        self.is_wanted = past.is_wanted

    def past(self) -> StreamCheckpoint:
        return StreamCheckpoint(self.key, max(self.through, self._handed), self.is_wanted)

    def end(self) -> None:
        """Nothing more will come of it; what it has is `ready`, whatever is missing before."""
        self.hear(self.top + 1, self.top)

    def hear(self, base: int, top: int) -> None:
        """What the node before this one says of it; what is `ready` may change."""
        self.base = max(self.base, base)
        self.top = max(self.top, self.base - 1, min(top, self.base + WINDOW - 1))

    def put(self, number: int, kept: BufferedEvent, most_bytes: int = MAX_BYTES) -> bool:
        """Keep an event; False where it is known, or not to be kept, or more than any source has.

        One is always kept, however large it is.
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
        """Events whose turn it is, so many and those that the source has given up to wait for.

        They don't wait for what will never come.
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
        """All below is done with, at the source."""
        self.base = max(self.base, base)
        self._forget()

    def hold(self, now_us: int) -> None:
        """Look again later, if there is something."""
        self.held_us = now_us + HELD_US if self.through + 1 in self.events else NEVER

    def lacks(self) -> bool:
        return self.through < self.top

    def has_nothing_to_do(self) -> bool:
        """All has come, nobody beyond lacks anything, and the one before this one knows it."""
        return not self.lacks() and not self.events and self.next_due_us() == NEVER

    def missing(self) -> tuple[tuple[int, int], ...]:
        """Ranges of numbers to ask for."""
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
        """Ask soon for what is missing, if anything is."""
        if not self.lacks():
            self.nack_us = NEVER
        elif self.nack_us == NEVER:
            self.nack_us = now_us + _FIRST_NACK_US

    def sought(self, pause_us: int, now_us: int) -> None:
        """It was asked for: again after a while, and less often where that does not help."""
        self.in_vain += 1
        slower = min(self.in_vain // _NACKS, _SLOWEST)
        self.nack_us = now_us + max(_MIN_NACK_US << slower, pause_us)

    def report(self, through: dict[str, int], nodes: Iterable[str]) -> bool:
        """What of `nodes` have, which are those beyond; False where that is known."""
        is_news = False
        for node in nodes:
            number = min(through.get(node, -1), self.top)  # more than there is nobody has
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
        assert self.held_us < NEVER or self.through + 1 not in self.events
        assert list(self.held_back.values()) == sorted(self.held_back.values())
        assert self.done <= self.through

    def _forget(self) -> None:
        if self._kept_from < self.base:
            self._kept_from = self.base
            for number in [each for each in self.events if each < self.base]:
                self.bytes -= size_of(self.events.pop(number).event)


def size_of(event: Carried) -> int:
    return len(event.payload) + len(event.block) + _OVERHEAD
