"""What is due when: one heap for all that the broker must not forget to do.

Most timers are moved or cancelled before they fire, as a client that keeps talking moves its
keep-alive. Moving one to later only notes the new time: the heap is corrected when the old one
comes. Cancelled ones stay in the heap until they are half of it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

_FEW: Final = 1_000


class Timer:
    """Something to be done when `due_ms` comes; 0 while it is not wanted."""

    def __init__(self) -> None:
        self.due_ms = 0
        self.queued_ms = 0  # where it stands in the heap, 0 where it does not

    def fire(self, now_ms: int) -> None:
        raise NotImplementedError


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = 0
        self._stale = 0

    def set(self, timer: Timer, due_ms: int) -> None:
        """Let `timer` fire at `due_ms` and not when it was set to before."""
        timer.due_ms = due_ms
        if timer.queued_ms and timer.queued_ms <= due_ms:
            return
        if timer.queued_ms:
            self._stale += 1
        self._push(timer)

    def cancel(self, timer: Timer) -> None:
        if timer.queued_ms:
            timer.queued_ms = 0
            self._stale += 1
            if self._stale > _FEW and self._stale * 2 > len(self._heap):
                self._heap = [entry for entry in self._heap if entry[0] == entry[2].queued_ms]
                heapify(self._heap)
                self._stale = 0
        timer.due_ms = 0

    def next_deadline_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def advance(self, *, now_ms: int) -> None:
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, timer = heappop(self._heap)
            if queued_ms != timer.queued_ms:
                self._stale -= 1
            elif timer.due_ms > now_ms:
                self._push(timer)
            else:
                timer.queued_ms = 0
                timer.due_ms = 0
                timer.fire(now_ms)

    def _push(self, timer: Timer) -> None:
        self._order += 1
        timer.queued_ms = timer.due_ms
        heappush(self._heap, (timer.due_ms, self._order, timer))
