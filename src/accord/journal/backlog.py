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
        self._has_work = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._is_idle = False
        self._newest = CommitGroup([], 0)
        self._queue: deque[CommitGroup] = deque()
        self._taken: CommitGroup | None = None

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
                self._has_work.notify()
            return self.next_offset

    def put_job(self, job: WriterJob) -> bool:
        """Queue `job` to run right after everything before it is committed; False if refused."""
        with self._lock:
            if self.failure is not None or self.is_closing:
                return False
            self._newest.job = job
            self._queue.append(self._newest)
            self._newest = CommitGroup([], 0)
            self._has_work.notify()
            return True

    @property
    def is_empty(self) -> bool:
        return not (self._newest.records or self._queue or self._taken)

    def wait(self, timeout_s: float | None) -> None:
        """Wait until there is something to take, or the journal is closing."""
        with self._lock:
            if self.is_empty and not self.is_closing:
                self._is_idle = True
                self._has_work.wait(timeout_s)
                self._is_idle = False

    def pause(self, timeout_s: float) -> None:
        """Wait regardless of new records, but no longer than the journal is open."""
        with self._lock:
            self._has_work.wait_for(lambda: self.is_closing, timeout_s)

    def take(self) -> CommitGroup | None:
        """The group to commit next; the same one until it is settled."""
        with self._lock:
            if self._taken is None:
                if self._queue:
                    self._taken = self._queue.popleft()
                elif self._newest.records:
                    self._taken, self._newest = self._newest, CommitGroup([], 0)
            return self._taken

    def confirm(self, committed: int) -> None:
        """Mark the taken group, and everything before `committed`, as durable."""
        with self._lock:
            assert self._taken is not None
            self.waiting_bytes -= self._taken.size
            self._taken = None
            self.committed = committed
            self._progress.notify_all()

    def abandon(self, failure: JournalError | None) -> list[WriterJob]:
        """Drop all that is queued, and refuse more after a `failure`; returns the dropped jobs."""
        with self._lock:
            self.failure = self.failure or failure
            groups = [self._newest, *self._queue, *([self._taken] if self._taken else [])]
            self._newest = CommitGroup([], 0)
            self._queue.clear()
            self._taken = None
            self.waiting_bytes = 0
            self._progress.notify_all()
        return [group.job for group in groups if group.job is not None]

    def close(self) -> None:
        """Refuse more records and jobs."""
        with self._lock:
            self.is_closing = True
            self._has_work.notify()

    def wait_until(self, offset: int, timeout_s: float | None) -> bool:
        """Wait; returns whether everything before `offset` became durable in time."""
        with self._lock:
            self._progress.wait_for(lambda: self.committed >= offset or self._is_over, timeout_s)
            return self.committed >= offset

    @property
    def _is_over(self) -> bool:
        """Whether nothing more will be settled."""
        return self.failure is not None or (self.is_closing and self.is_empty)
