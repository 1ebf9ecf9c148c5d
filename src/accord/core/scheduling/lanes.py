"""Lanes of queue entries, and priority bins of two lanes each.

Adding, taking and removing an entry takes constant time. A lane is a list with a moving head, so
that it can be searched and is small when idle. An entry removed from the middle stays in the list
as void until one of the ends reaches it, or until half of the lane is void. The first and the last
entry are never void.

Each importance has two bins, the higher one for light entries. Among equals, these go before heavy
ones: they hardly delay them. Whether a channel is light is learned from its mean cost, with
hysteresis, so that a channel near the limit does not change bins (and reorder its own events) with
every event.
"""

from __future__ import annotations

from typing import Final

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.queue_entries import ANY_NUMBER, EventRun, QueueEntry, due_ms

_COMPACT_AFTER: Final = 64
_COUNTED: Final = 1_000
_GONE_SHARE: Final = 8  # entries already taken are at most an eighth of the list


class Lane:
    """Entries in sending order: of arrival, or of due time if always inserted."""

    __slots__ = (
        "head",
        "items",
        "void",
    )

    def __init__(self) -> None:
        self.items: list[QueueEntry] = []
        self.head = 0
        self.void: set[QueueEntry] | None = None

    def is_empty(self) -> bool:
        return self.head == len(self.items)

    def first(self) -> QueueEntry:
        return self.items[self.head]

    def waiting(self) -> list[QueueEntry]:
        void = self.void
        if void is None:
            return self.items[self.head :]
        return [entry for entry in self.items[self.head :] if entry not in void]

    def first_waiting(self, most: int) -> list[QueueEntry]:
        """The first entries, `most` at most."""
        void = self.void or ()
        part = self.items[self.head : self.head + most]
        return [entry for entry in part if entry not in void]

    def events(self, size: int) -> int:
        """Number of events in `size` queued bytes; approximate if there are many entries."""
        if len(self.items) - self.head <= _COUNTED or self.void is not None:
            return sum([entry.count for entry in self.waiting()])
        events = 0
        looked_at = 0
        for position in range(self.head, self.head + _COUNTED):
            entry = self.items[position]
            events += entry.count
            looked_at += entry.size
        return events * size // max(looked_at, 1)

    def insert(self, entry: QueueEntry) -> None:
        """Add an entry in order of due time, after those due at the same time."""
        items = self.items
        low = self.head
        high = len(items)
        due = due_ms(entry)
        if low == high or due_ms(items[high - 1]) <= due:
            items.append(entry)
            return
        while low < high:
            middle = (low + high) // 2
            if due < due_ms(items[middle]):
                high = middle
            else:
                low = middle + 1
        items.insert(low, entry)

    def sort(self, by_due: bool) -> None:
        """Sort by due time, or back by arrival."""
        items = self.waiting()
        items.sort(key=due_ms if by_due else _arrival)
        self._restart(items)

    def move(self, bytes_wanted: int, most: int, taken: list[QueueEntry]) -> tuple[int, int]:
        """Append the first entries to `taken`, up to enough bytes or `most` events.

        Returns their bytes and events.
        """
        got = events = 0
        head = self.head
        items = self.items
        if self.void is None:
            while got < bytes_wanted and events < most and head < len(items):
                entry = items[head]
                count = entry.count
                if count > 1 and (entry.size > bytes_wanted - got or count > most - events):
                    break
                head += 1
                got += entry.size
                events += count
                taken.append(entry)
            self.head = head
            self._compact()
        while got < bytes_wanted and events < most and self.head < len(self.items):
            entry = self.pop(bytes_wanted - got, most - events)
            got += entry.size
            events += entry.count
            taken.append(entry)
        return got, events

    def pop(self, bytes_wanted: int, most: int = ANY_NUMBER) -> QueueEntry:
        """Remove the first entry, or as many of its events as are wanted."""
        entry = self.items[self.head]
        if (
            entry.count > 1
            and (entry.size > bytes_wanted or entry.count > most)
            and isinstance(entry, EventRun)
        ):
            parts = entry.split(bytes_wanted, most)
            if parts is not None:
                first, rest = parts
                assert first.size + rest.size == entry.size
                self.items[self.head] = rest
                return first
        self.head += 1
        self._skip()
        return entry

    def pop_first(self) -> QueueEntry:
        entry = self.items[self.head]
        self.head += 1
        self._skip()
        return entry

    def put_first(self, entry: QueueEntry) -> None:
        if self.head:
            self.head -= 1
            self.items[self.head] = entry
        else:
            self.items.insert(0, entry)

    def pop_last(self) -> QueueEntry:
        items = self.items
        entry = items.pop()
        void = self.void
        while void is not None and items and items[-1] in void:
            void.discard(items.pop())
        self._skip()
        return entry

    def shed(self, by_due: bool) -> QueueEntry:
        """Remove the entry to shed: the oldest, or in order of due time one without, if any."""
        if by_due and self.items[-1].expires_ms <= 0:
            return self.pop_last()
        return self.pop_first()

    def remove(self, entry: QueueEntry) -> None:
        """Remove an entry at any position."""
        if entry is self.items[self.head]:
            self.pop_first()
            return
        if entry is self.items[-1]:
            self.pop_last()
            return
        void = self.void
        if void is None:
            void = self.void = set()
        void.add(entry)
        if len(void) >= _COMPACT_AFTER and len(void) * 2 >= len(self.items) - self.head:
            self._restart(self.waiting())

    def relocate(self, entry: QueueEntry, was_due_ms: int) -> None:
        """Move an entry whose due time has changed."""
        items = self.items
        low = self.head
        high = len(items)
        while low < high:
            middle = (low + high) // 2
            due = was_due_ms if items[middle] is entry else due_ms(items[middle])
            if due < was_due_ms:
                low = middle + 1
            else:
                high = middle
        while items[low] is not entry:
            low += 1
        del items[low]
        # It may have stood between an end and void entries.
        self._restart(self.waiting())
        self.insert(entry)

    def clear(self) -> list[QueueEntry]:
        waiting = self.waiting()
        self._restart([])
        return waiting

    def expire(self, now_ms: int) -> list[QueueEntry]:
        """Remove expired entries."""
        expired: list[QueueEntry] = []
        left: list[QueueEntry] = []
        for entry in self.waiting():
            if 0 < entry.expires_ms <= now_ms:
                expired.append(entry)
            else:
                left.append(entry)
        if expired:
            self._restart(left)
        return expired

    def check_invariants(self, by_due: bool) -> None:
        assert 0 <= self.head <= len(self.items)
        waiting = self.waiting()
        void = self.void or set()
        assert len(void) + len(waiting) == len(self.items) - self.head
        assert self.is_empty() or not {self.items[self.head], self.items[-1]} & void
        if by_due:
            due = [due_ms(entry) for entry in waiting]
            assert due == sorted(due)

    def _restart(self, items: list[QueueEntry]) -> None:
        self.items = items
        self.head = 0
        self.void = None

    def _skip(self) -> None:
        void = self.void
        if void is not None:
            items = self.items
            while self.head < len(items) and items[self.head] in void:
                void.discard(items[self.head])
                self.head += 1
            if not void:
                self.void = None
        self._compact()

    def _compact(self) -> None:
        head = self.head
        if head == len(self.items):
            if head > 0:
                self.items = []
                self.head = 0
        elif head >= _COMPACT_AFTER and head * _GONE_SHARE >= len(self.items):
            del self.items[:head]
            self.head = 0


class Bin:
    """The entries of one priority, with what strategies compare of the next one.

    Tracked entries wait for acknowledgements and have a lane of their own, which is closed while
    the window is used up.
    """

    __slots__ = (
        "bin",
        "bytes",
        "cost",
        "deficit",
        "due_ms",
        "importance",
        "queued_ms",
        "tracked",
        "tracked_bytes",
        "untracked",
    )

    def __init__(self, number: int) -> None:
        self.bin = number
        self.importance = number >> 1
        self.untracked = Lane()
        self.tracked = Lane()
        # Bytes in the two lanes, maintained by the callers of put and take.
        self.bytes = 0
        self.tracked_bytes = 0
        self.cost = 0
        self.due_ms = 0
        self.queued_ms = 0
        self.deficit = 0  # what it may still send this round; negative after an excess

    def is_empty(self) -> bool:
        return self.untracked.is_empty() and self.tracked.is_empty()

    def open_lane(self, window: int, by_due: bool) -> Lane | None:
        """The lane of the next entry: of two heads the one queued earlier, or due sooner."""
        untracked = self.untracked
        tracked = self.tracked
        if window <= 0 or tracked.is_empty():
            return None if untracked.is_empty() else untracked
        if untracked.is_empty():
            return tracked
        promised = tracked.first()
        plain = untracked.first()
        if by_due:
            difference = due_ms(plain) - due_ms(promised)
            if difference != 0:
                return untracked if difference < 0 else tracked
        return untracked if plain.queued_ms < promised.queued_ms else tracked

    def refresh(self, window: int, by_due: bool, wanted: int) -> bool:
        """Update what strategies compare; False if nothing may be sent."""
        lane = self.open_lane(window, by_due)
        if lane is None:
            return False
        entry = lane.first()
        self.cost = entry.cost(wanted)
        self.due_ms = due_ms(entry)
        self.queued_ms = entry.queued_ms
        return True

    def clear_deficit(self) -> None:
        """Clear the deficit of an empty bin: it saves nothing up."""
        if self.is_empty():
            self.deficit = 0


def _arrival(entry: QueueEntry) -> tuple[int, int]:
    return (entry.queued_ms, entry.number)


BINS: Final = 2 * IMPORTANCES

LIGHT_US: Final = 1_000  # of CPU time

_SHARE: Final = 0.125  # weight of a new value in the mean
_HEAVY_FROM: Final = 1.25  # times the limit, to become heavy
_LIGHT_FROM: Final = 0.75  # times the limit, to become light


def bin_of(importance: int, mean: float, light_below: float) -> int:
    """The bin for a mean cost."""
    return 2 * importance + (1 if mean < light_below else 0)


class CostEstimate:
    """Exponential mean of a cost, classified as light or heavy."""

    def __init__(self, light_below: float) -> None:
        self.light_below: float = light_below
        self.mean: float = 0.0
        self.is_light: bool = True
        self.is_known: bool = False

    def add(self, value: float) -> None:
        if not self.is_known:
            self.is_known = True
            self.mean = value
            self.is_light = value < self.light_below
            return
        self.mean += _SHARE * (value - self.mean)
        if self.is_light:
            self.is_light = self.mean < _HEAVY_FROM * self.light_below
        else:
            self.is_light = self.mean < _LIGHT_FROM * self.light_below

    def bin(self, importance: int) -> int:
        return 2 * importance + 1 if self.is_light else 2 * importance
