"""The journal as a node uses it: cheap appends, made durable by one thread with group commit.

`append` only queues records and assigns their offsets. The writer thread takes all that is queued,
commits it, and reports the offset before which everything is durable: whatever was appended during
one sync is the next commit. Under load commits become larger, not more frequent.

The thread holds the GIL only briefly: writing, syncing and checksums release it.

A user that needs no thread, such as a simulation, sets `is_threaded` to false and calls `work`.

Queue of appended records that are not durable yet, between appenders and the writer.

The only part of the journal that two threads touch. Its lock is held for a few operations on lists
and numbers, never during I/O.

Status of a journal, and the reason for a refused append.

Entries of the writer's queue: records to commit, and jobs that run between commits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from accord.journal.disk import Disk, OsDisk
from accord.journal.errors import JournalError
from accord.journal.options import JournalOptions
from accord.journal.record import MAX_RECORD
from accord.journal.recovery import Recovery
from accord.journal.retention import RetiredCounts
from accord.journal.segment_log import SegmentLog


class WriterJob:
    """A job that the writer runs one step at a time, between commits."""

    def __init__(self, start: Callable[[SegmentLog], Generator[None, None, Any]]) -> None:
        self.future: Future[Any] = Future()
        self._start = start
        self._steps: Generator[None, None, Any] | None = None

    @property
    def error(self) -> BaseException | None:
        """Why the job failed, if it did."""
        is_over = self.future.done() and not self.future.cancelled()
        return self.future.exception() if is_over else None

    def step(self, log: SegmentLog) -> bool:
        """Run one step; returns whether there is more to do."""
        try:
            if self._steps is None:
                if not self.future.set_running_or_notify_cancel():
                    return False
                self._steps = self._start(log)
            next(self._steps)
        except StopIteration as end:
            self.future.set_result(end.value)
            return False
        except Exception as error:
            self.future.set_exception(error)
            return False
        return True

    def abandon(self, error: JournalError) -> None:
        if self._steps is not None:
            self._steps.close()
            self.future.set_exception(error)
        elif self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class CommitGroup(msgspec.Struct):
    """Records to be committed together, and the job to start after them."""

    records: list[bytes]
    size: int
    job: WriterJob | None = None


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


class AppendRefused(msgspec.Struct, frozen=True):
    """Why records were refused."""

    why: str
    waiting_bytes: int
    limit_bytes: int


class JournalSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a journal; records between `committed_offset` and `next_offset` are queued."""

    segments: int
    bytes: int
    first_offset: int
    next_offset: int
    committed_offset: int
    waiting_bytes: int
    retired: RetiredCounts
    commits: int
    fsyncs: int
    last_error: str
    is_failing: bool
    is_failed: bool
    recovery: Recovery


_T = TypeVar("_T")


def ignore(_: object) -> None:
    pass


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Journal:
    """An append-only log of records in one directory. `append` is for one thread at a time."""

    def __init__(
        self,
        log: SegmentLog,
        options: JournalOptions,
        *,
        on_commit: Callable[[int], object] = ignore,
        on_failure: Callable[[JournalError], object] = ignore,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.log = log
        self._options = options
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._backlog = Backlog(log.committed, options.backlog_bytes)
        self._jobs: deque[WriterJob] = deque()
        self._is_closed = False
        self._failing = ""
        self._last_error = ""
        self._reported = ("", 0)
        self._pause_ms = 0
        self._commits = 0
        self._retention_ms = clock()
        self._retention_segments = 0
        log.on_incident = self._report

    @classmethod
    def open(
        cls,
        directory: Path | str | Disk,
        options: JournalOptions | None = None,
        *,
        on_commit: Callable[[int], object] = ignore,
        on_failure: Callable[[JournalError], object] = ignore,
        clock: Callable[[], int] = now_ms,
    ) -> Self:
        """Recover the journal, and open it for appending. The writer calls both callbacks."""
        options = options or JournalOptions()
        log = SegmentLog(
            OsDisk(directory) if isinstance(directory, Path | str) else directory,
            segment_bytes=options.segment_bytes,
            batch_bytes=options.batch_bytes,
            retention=options.retention,
        )
        journal = cls(log, options, on_commit=on_commit, on_failure=on_failure, clock=clock)
        if options.is_threaded:
            journal._start()
        return journal

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def next_offset(self) -> int:
        return self._backlog.next_offset

    def append(self, records: list[bytes]) -> int | AppendRefused:
        """Queue `records`; returns the offset after them, which `on_commit` reaches or passes."""
        size = sum(map(len, records))
        if size > MAX_RECORD and max(map(len, records)) > MAX_RECORD:
            raise self._error(f"a record of more than {MAX_RECORD} bytes")
        offset = self._backlog.put(records, size)
        return self._refuse() if offset is None else offset

    def run(self, job: Callable[[SegmentLog], Generator[None, None, _T]]) -> Future[_T]:
        """Have the writer run `job` as soon as exactly what was appended so far is committed."""
        task = WriterJob(job)
        if not self._backlog.put_job(task):
            task.abandon(self._backlog.failure or self._error("is closed"))
        return task.future

    def retire(self, before_offset: int = 0) -> Future[RetiredCounts]:
        """Apply retention now; also remove what ends before `before_offset` and no reader needs."""

        def job(log: SegmentLog) -> Generator[None, None, RetiredCounts]:
            yield from ()
            return log.retire(now_ms=self._clock(), before_offset=before_offset)

        return self.run(job)

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all that has been appended is durable; returns the offset after it."""
        assert threading.current_thread() is not self._thread, "the writer can't wait for itself"
        backlog = self._backlog
        target = backlog.next_offset
        if self._thread is None:
            timeout_s = 0
            while backlog.committed < target and not backlog.failure and not self.work():
                pass
        if not backlog.wait_until(target, timeout_s):
            problem = self._failing or f"not durable within {timeout_s} s"
            raise backlog.failure or self._error(problem, is_final=False)
        return target

    def close(self) -> None:
        """Commit what is queued, with one more attempt if the disk fails, and unlock."""
        if self._is_closed:
            return
        self._backlog.close()
        if self._thread is not None:
            self._thread.join()
        else:
            self._finish()
        self.log.close()
        self._is_closed = True
        if lost := self._backlog.next_offset - self._backlog.committed:
            why = self._failing or self._last_error
            raise self._error(f"closed without the last {lost} records: {why}")

    def status(self) -> JournalSnapshot:
        log, backlog = self.log, self._backlog
        return JournalSnapshot(
            segments=len(log.segments),
            bytes=log.size,
            first_offset=log.first_offset,
            next_offset=backlog.next_offset,
            committed_offset=backlog.committed,
            waiting_bytes=backlog.waiting_bytes,
            retired=log.retired,
            commits=self._commits,
            fsyncs=log.fsyncs,
            last_error=self._last_error,
            is_failing=bool(self._failing),
            is_failed=backlog.failure is not None,
            recovery=log.recovery,
        )

    def work(self) -> int:
        """Run one turn of the writer: a commit and a step of each job; returns the pause."""
        group = self._backlog.take()
        if group is not None:
            try:
                committed = self.log.commit(group.records, now_ms=self._clock())
            except JournalError as error:
                return self._fail(error)
            self._succeed(group, committed)
        for _ in range(len(self._jobs)):
            self._step(self._jobs.popleft())
        self._apply_retention()
        return 0

    def _succeed(self, group: CommitGroup, committed: int) -> None:
        self._failing = ""
        self._pause_ms = 0
        self._backlog.confirm(committed)
        if group.records:
            self._commits += 1
            self._call(self._on_commit, committed)
        if group.job is not None:
            self._step(group.job)

    def _step(self, job: WriterJob) -> None:
        if job.step(self.log):
            self._jobs.append(job)
        elif isinstance(error := job.error, JournalError):
            self._report(error)
        elif error is not None:
            self._report(self._error(f"work on it failed: {error!r}", is_final=False))

    def _run(self) -> None:
        timeout_s = None
        if not self._options.retention.is_unlimited:
            timeout_s = self._options.retention_every_ms / 1000
        try:
            while not self._backlog.is_closing:
                if pause_ms := self.work():
                    self._backlog.pause(pause_ms / 1000)
                elif not self._jobs:
                    self._backlog.wait(timeout_s)
            self._finish()
        except Exception as error:  # a bug: waiters must not wait forever
            self._fail(self._error(f"stopped: {error!r}"))

    def _finish(self) -> None:
        """Commit what is left, without waiting for a failing disk."""
        while not self._backlog.is_empty:
            if self.work():
                break
        self._abandon(self._error("was closed before this was done"), None)

    def _fail(self, error: JournalError) -> int:
        """Record a failed commit; returns the backoff before the next attempt."""
        is_new = self._failing != str(error)
        self._failing = self._last_error = str(error)
        if error.is_final:
            self._abandon(error, error)
        if is_new:
            self._call(self._on_failure, error)
        options = self._options
        doubled = self._pause_ms * 2 or options.retry_first_ms
        self._pause_ms = min(doubled, options.retry_last_ms)
        self._retention_segments = -1  # retention may free the space that is missing
        self._apply_retention()
        return self._pause_ms

    def _abandon(self, error: JournalError, failure: JournalError | None) -> None:
        jobs = (*self._jobs, *self._backlog.abandon(failure))
        self._jobs.clear()
        for job in jobs:
            job.abandon(error)

    def _apply_retention(self) -> None:
        """Apply retention when there is a new segment, and periodically."""
        if self._options.retention.is_unlimited or self._backlog.failure:
            return
        now_ms = self._clock()
        is_due = not 0 <= now_ms - self._retention_ms < self._options.retention_every_ms
        if is_due or len(self.log.segments) != self._retention_segments:
            try:
                self.log.retire(now_ms=now_ms)
            except JournalError as error:
                self._report(error)
            self._retention_ms = now_ms
            self._retention_segments = len(self.log.segments)

    def _report(self, error: JournalError) -> None:
        """Report a failure outside commits; the same one again only after a while."""
        now_ms = self._clock()
        text, reported_ms = self._reported
        self._last_error = str(error)
        if text != str(error) or not 0 <= now_ms - reported_ms < self._options.retry_last_ms:
            self._reported = (str(error), now_ms)
            self._call(self._on_failure, error)

    def _call(self, callback: Callable[[_T], object], value: _T) -> None:
        try:
            callback(value)
        except Exception as error:  # an error of the caller must not end the writer
            self._last_error = f"{callback!r} raised {error!r}"

    def _refuse(self) -> AppendRefused:
        backlog = self._backlog
        if backlog.failure is not None:
            why = str(backlog.failure)
        elif backlog.is_closing:
            why = "the journal is closed"
        else:
            why = self._failing or "disk too slow for the publication rate"
        return AppendRefused(why, backlog.waiting_bytes, backlog.limit_bytes)

    def _error(self, problem: str, *, is_final: bool = True) -> JournalError:
        return JournalError(problem, location=self.log.disk.location, is_final=is_final)
