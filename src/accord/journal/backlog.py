"""Queue of appended records that are not durable yet, between appenders and the writer.

The only part of the journal that two threads touch. Its lock is held for a few operations on lists
and numbers, never during I/O.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from accord.journal.errors import JournalError
from accord.journal.writer_jobs import CommitGroup, WriterJob

_RECORD_OVERHEAD: Final = 64  # memory of a small queued record beyond its bytes


class Backlog:
    """FIFO of records and jobs, at most `limit_bytes` of them."""

    def __init__(self, next_offset: int, limit_bytes: int) -> None:
        self.next_offset = next_offset
        self.committed = next_offset
        self.waiting_bytes = 0
        self.limit_bytes = limit_bytes
        self.failure: JournalError | None = None
        self.is_closing = False
        self._lock = threading.Lock()
        self._to_do = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._is_idle = False
        self._newest = CommitGroup([], 0)
        self._queue: deque[CommitGroup] = deque()
        self._in_hand: CommitGroup | None = None

    def put(self, records: list[bytes], size: int) -> int | None:
        """Queue `records` of `size` bytes; returns the offset after them, None if they don't fit.

        Records larger than the limit fit when the queue is empty: otherwise they never would.
        """
        size += _RECORD_OVERHEAD * len(records)
        with self._lock:
            waiting = self.waiting_bytes + size
            is_full = self.waiting_bytes > 0 and waiting > self.limit_bytes
            if is_full or self.failure is not None or self.is_closing:
                return None
            self.waiting_bytes = waiting
            newest = self._newest
            newest.records += records
            newest.size += size
            self.next_offset += len(records)
            if self._is_idle:
                self._is_idle = False
                self._to_do.notify()
            return self.next_offset

    def put_job(self, job: WriterJob) -> bool:
        """Queue `job` to run right after everything before it is committed; False if refused."""
        with self._lock:
            if self.failure is not None or self.is_closing:
                return False
            self._newest.job = job
            self._queue.append(self._newest)
            self._newest = CommitGroup([], 0)
            self._to_do.notify()
            return True

    @property
    def is_empty(self) -> bool:
        return not (self._newest.records or self._queue or self._in_hand)

    def wait(self, timeout_s: float | None) -> None:
        """Wait until there is something to take, or the journal is closing."""
        with self._lock:
            if self.is_empty and not self.is_closing:
                self._is_idle = True
                self._to_do.wait(timeout_s)
                self._is_idle = False

    def pause(self, timeout_s: float) -> None:
        """Wait regardless of new records, but no longer than the journal is open."""
        with self._lock:
            self._to_do.wait_for(lambda: self.is_closing, timeout_s)

    def take(self) -> CommitGroup | None:
        """The group to commit next; the same one until it is settled."""
        with self._lock:
            if self._in_hand is None:
                if self._queue:
                    self._in_hand = self._queue.popleft()
                elif self._newest.records:
                    self._in_hand, self._newest = self._newest, CommitGroup([], 0)
            return self._in_hand

    def settle(self, committed: int) -> None:
        """Mark the taken group, and everything before `committed`, as durable."""
        with self._lock:
            assert self._in_hand is not None
            self.waiting_bytes -= self._in_hand.size
            self._in_hand = None
            self.committed = committed
            self._settled.notify_all()

    def give_up(self, failure: JournalError | None) -> list[WriterJob]:
        """Drop all that is queued, and refuse more after a `failure`; returns the dropped jobs."""
        with self._lock:
            self.failure = self.failure or failure
            groups = [self._newest, *self._queue, *([self._in_hand] if self._in_hand else [])]
            self._newest = CommitGroup([], 0)
            self._queue.clear()
            self._in_hand = None
            self.waiting_bytes = 0
            self._settled.notify_all()
        return [group.job for group in groups if group.job is not None]

    def close(self) -> None:
        """Refuse more records and jobs."""
        with self._lock:
            self.is_closing = True
            self._to_do.notify()

    def wait_until(self, offset: int, timeout_s: float | None) -> bool:
        """Wait; returns whether everything before `offset` became durable in time."""
        with self._lock:
            self._settled.wait_for(lambda: self.committed >= offset or self._is_over, timeout_s)
            return self.committed >= offset

    @property
    def _is_over(self) -> bool:
        """Whether nothing more will be settled."""
        return self.failure is not None or (self.is_closing and self.is_empty)
