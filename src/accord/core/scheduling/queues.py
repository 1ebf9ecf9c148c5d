"""Common base of outboxes and CPU tasks: bins, and a strategy that chooses among them.

Only bins that were ever used exist, highest first, and nearly always there is one. With a single
active bin no strategy is consulted.

Only laxity looks beyond the head of a lane: under it, lanes are kept in order of due time, so that
the first of the heads is the first of all. A change of strategy sorts the lanes once and loses
nothing. Equals always stay in order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.lanes import BINS, Bin
from accord.core.scheduling.queue_entries import QueueEntry, due_ms
from accord.core.scheduling.strategies import FIFO, LAXITY, Discipline


class Queues:
    __slots__ = (
        "_bins",
        "_by_due",
        "_last",
        "_version",
        "discipline",
    )

    def __init__(self, discipline: Discipline | None) -> None:
        self.discipline: Discipline = Discipline() if discipline is None else discipline
        self._version = self.discipline.version
        self._by_due = self.discipline.by_due
        self._bins: tuple[Bin, ...] = ()
        self._last: Bin | None = None  # the bin last added to

    def depth(self) -> list[int]:
        """The number of queued events, by importance."""
        depth = [0] * IMPORTANCES
        for each in self._bins:
            for lane in (each.untracked, each.tracked):
                for entry in lane.waiting():
                    depth[each.importance] += entry.count
        return depth

    def highest(self) -> int:
        """The highest importance queued, -1 if empty."""
        for each in self._bins:
            if not each.is_empty():
                return each.importance
        return -1

    def bytes_waiting(self) -> list[int]:
        """The queued bytes, by importance."""
        waiting = [0] * IMPORTANCES
        for each in self._bins:
            for lane in (each.untracked, each.tracked):
                for entry in lane.waiting():
                    waiting[each.importance] += entry.size
        return waiting

    def first_waiting(self, most: int) -> Iterator[QueueEntry]:
        """The first entries of each lane, `most` at most."""
        for each in self._bins:
            for lane in (each.untracked, each.tracked):
                yield from lane.first_waiting(most)

    def find(self, number: int) -> QueueEntry | None:
        """The entry with the event of that number; linear in the queue."""
        for each in self._bins:
            for lane in (each.untracked, each.tracked):
                for entry in lane.waiting():
                    if entry.has(number):
                        return entry
        return None

    def ahead_of(self, entry: QueueEntry) -> tuple[list[int], list[int]]:
        """The events to be sent before a queued entry and their bytes, by importance.

        Under weighted fair less important ones may be sent before it, too, within their share.
        """
        events = [0] * IMPORTANCES
        sizes = [0] * IMPORTANCES
        order = self._order(entry)
        for each in self._bins:
            for lane in (each.untracked, each.tracked):
                for other in lane.waiting():
                    if other is entry:
                        break
                    if self._order(other) <= order:
                        events[other.importance] += other.count
                        sizes[other.importance] += other.size
        return events, sizes

    def _order(self, entry: QueueEntry) -> tuple[int, int, int]:
        strategy = self.discipline.strategy
        due = due_ms(entry) if strategy == LAXITY else 0
        return (due, 0 if strategy == FIFO else -entry.bin, entry.queued_ms)

    def _bin(self, entry: QueueEntry) -> Bin:
        """The bin of an entry, created if necessary."""
        number = entry.bin
        position = 0
        for found in self._bins:
            if found.bin == number:
                self._last = found
                return found
            if found.bin < number:
                break
            position += 1
        assert number < BINS
        assert number >> 1 == entry.importance
        added = Bin(number)
        self._bins = (*self._bins[:position], added, *self._bins[position:])
        self._last = added
        return added

    def _active(self, window: int, wanted: int) -> list[Bin]:
        """The bins from which something may be sent now."""
        active: list[Bin] = []
        for each in self._bins:
            if each.refresh(window, self._by_due, wanted):
                active.append(each)
        return active

    def _next_bin(self, window: int, wanted: int) -> Bin | None:
        """The next bin, without side effects."""
        self._adapt()
        active = self._active(window, wanted)
        if not active:
            return None
        return active[0] if len(active) == 1 else self.discipline.current.choose(active)

    def _adapt(self) -> None:
        """Follow a change of the discipline."""
        if self._version == self.discipline.version:
            return
        self._version = self.discipline.version
        for each in self._bins:
            each.deficit = 0
        by_due = self.discipline.by_due
        if by_due != self._by_due:
            self._by_due = by_due
            for each in self._bins:
                each.untracked.sort(by_due)
                each.tracked.sort(by_due)

    def _check_bins(self) -> None:
        numbers = [each.bin for each in self._bins]
        assert numbers == sorted(set(numbers), reverse=True)
        for each in self._bins:
            for lane in (each.untracked, each.tracked):
                lane.check_invariants(self._by_due)
                assert all(entry.bin == each.bin for entry in lane.waiting())
            assert each.deficit == 0 or not each.is_empty()
