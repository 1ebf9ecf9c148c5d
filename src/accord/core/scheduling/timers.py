"""Timers in one heap.

Most timers are moved or cancelled before they fire: each packet of a client moves its keep-alive.
Moving a timer to later only stores the new time; the heap is corrected when the old one comes.
Cancelled timers stay in the heap until they are half of it. Times are in any unit, and greater than
0.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

_FEW: Final = 1_000
_ALL: Final = 1 << 62


class Timer:
    """An action due at `due`; 0 while not set."""

    __slots__ = (
        "due",
        "queued",
    )

    def __init__(self) -> None:
        self.due = 0
        self.queued = 0  # its time in the heap, 0 if it is not there

    def fire(self, now: int) -> None:
        raise NotImplementedError


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = 0
        self._stale = 0

    def set(self, timer: Timer, due: int) -> None:
        """Set or move `timer` to fire at `due`."""
        timer.due = due
        if timer.queued and timer.queued <= due:
            return
        if timer.queued:
            self._stale += 1
        self._push(timer)

    def cancel(self, timer: Timer) -> None:
        if timer.queued:
            timer.queued = 0
            self._stale += 1
            if self._stale > _FEW and self._stale * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[0] == entry[2].queued]
                heapify(self._heap)
                self._stale = 0
        timer.due = 0

    def next_due(self) -> int | None:
        """The latest time for the next `advance`."""
        return self._heap[0][0] if self._heap else None

    def advance(self, now: int, most: int = _ALL) -> None:
        """Fire due timers, at most `most`; the others stay due."""
        while most > 0 and self._heap and self._heap[0][0] <= now:
            queued, _, timer = heappop(self._heap)
            if queued != timer.queued:
                self._stale -= 1
            elif timer.due > now:
                self._push(timer)
            else:
                timer.queued = 0
                timer.due = 0
                timer.fire(now)
                most -= 1

    def _push(self, timer: Timer) -> None:
        self._order += 1
        timer.queued = timer.due
        heappush(self._heap, (timer.due, self._order, timer))
