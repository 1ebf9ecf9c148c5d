"""A log of changes to a state, compacted by snapshots.

Compaction starts a new segment, so that later changes come after the snapshot, and writes the
snapshot to a separate file, one batch between commits. Once that is durable it is renamed, which is
the moment it takes effect, and the records it replaces are removed. A crash before the rename
leaves the old log, followed by the new changes; a crash after it leaves the snapshot, followed by
the same changes.

A snapshot's records are numbered from 0, and an empty batch ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from accord.journal import record
from accord.journal.disk import Disk
from accord.journal.errors import JournalError, from_os
from accord.journal.options import JournalOptions
from accord.journal.reader import Reader
from accord.journal.record import SEGMENT_HEADER, Batch, Torn, encode_batch, split
from accord.journal.segment_log import SegmentLog
from accord.journal.segments import (
    SNAPSHOT,
    UNFINISHED,
    Damaged,
    FileWindow,
    create_segment,
    file_name,
)
from accord.journal.writer import AppendRefused, Journal, JournalSnapshot, ignore, now_ms

_SMALLEST: Final = 1 << 20


class StateLog:
    """Changes of a state, durable in order, and from time to time a snapshot that replaces them."""

    def __init__(
        self,
        journal: Journal,
        damaged: tuple[Damaged, ...],
        batch_bytes: int,
        clock: Callable[[], int],
    ) -> None:
        self.journal = journal
        self.damaged = damaged
        self._batch_bytes = batch_bytes
        self._clock = clock
        self._compaction: Future[int] | None = None

    @classmethod
    def open(
        cls,
        directory: Path | str | Disk,
        options: JournalOptions | None = None,
        *,
        on_commit: Callable[[int], object] = ignore,
        on_failure: Callable[[JournalError], object] = ignore,
        clock: Callable[[], int] = now_ms,
    ) -> tuple[Self, list[bytes]]:
        """Open the log; returns it and its records, the last snapshot's first, in order."""
        options = options or JournalOptions()
        if not options.retention.is_unlimited:
            raise ValueError("retention: a log of a state needs all of it, expected no limits")
        journal = Journal.open(
            directory,
            options,
            on_commit=on_commit,
            on_failure=on_failure,
            clock=clock,
        )
        try:
            records, damaged = _load(journal.log)
        except BaseException:
            journal.close()
            raise
        return cls(journal, damaged, options.batch_bytes, clock), records

    @property
    def is_compacting(self) -> bool:
        return self._compaction is not None and not self._compaction.done()

    def append(self, records: list[bytes]) -> int | AppendRefused:
        """Append changes, as `Journal.append`."""
        return self.journal.append(records)

    def is_worth_compacting(self, live_bytes_estimate: int) -> bool:
        """Whether a snapshot of so many bytes would be less than half of what is kept."""
        return not self.is_compacting and self.journal.log.size > max(
            _SMALLEST, 2 * live_bytes_estimate
        )

    def compact(self, snapshot_records: Iterable[bytes]) -> Future[int]:
        """Replace everything appended so far by `snapshot_records`; the result is their number.

        The writer thread takes them, a batch at a time: they must be the state at the time of the
        call, and must not change any more. If it fails, the log stays as it was.
        """
        if self.is_compacting:
            raise JournalError("is being compacted", location=self.journal.log.disk.location)

        def job(log: SegmentLog) -> Generator[None, None, int]:
            return _compact(log, snapshot_records, self._batch_bytes, self._clock())

        self._compaction = self.journal.run(job)
        return self._compaction

    def flush(self, timeout_s: float | None = None) -> int:
        return self.journal.flush(timeout_s)

    def close(self) -> None:
        self.journal.close()

    def status(self) -> JournalSnapshot:
        return self.journal.status()


def _compact(
    log: SegmentLog, records: Iterable[bytes], batch_bytes: int, now_ms: int
) -> Generator[None, None, int]:
    offset = log.committed
    log.roll(now_ms=now_ms)
    unfinished = file_name(offset, SNAPSHOT) + UNFINISHED
    try:
        count = yield from _write_snapshot(log.disk, offset, records, batch_bytes, now_ms)
    except BaseException as error:
        with suppress(OSError):
            log.disk.remove(unfinished)
        if isinstance(error, OSError):
            raise from_os(error, "can't write a snapshot", location=log.disk.location) from error
        raise
    log.replace(offset, unfinished)
    return count


def _write_snapshot(
    disk: Disk, offset: int, records: Iterable[bytes], batch_bytes: int, now_ms: int
) -> Generator[None, None, int]:
    name = file_name(offset, SNAPSHOT) + UNFINISHED
    with suppress(FileNotFoundError):
        disk.remove(name)
    sink = create_segment(disk, name, record.SNAPSHOT, offset, now_ms)
    count = 0
    try:
        for batch in split(records, batch_bytes):
            sink.append(list(encode_batch(batch, count, now_ms)))
            sink.sync()  # little by little: a large sync would delay the commits behind it
            count += len(batch)
            yield
        sink.append(list(encode_batch([], count, now_ms)))
        sink.sync()
    finally:
        sink.close()
    return count


def _load(log: SegmentLog) -> tuple[list[bytes], tuple[Damaged, ...]]:
    records: list[bytes] = []
    damaged: list[Damaged] = list(log.recovery.damaged)
    if log.snapshot is not None:
        _load_snapshot(log.disk, log.snapshot, records, damaged)
    for found in Reader(log.disk).read(log.first_offset):
        if isinstance(found, Batch):
            records += found.records()
        elif isinstance(found, Damaged) and found not in damaged:
            damaged.append(found)
    return records, tuple(damaged)


def _load_snapshot(disk: Disk, offset: int, records: list[bytes], damaged: list[Damaged]) -> None:
    name = file_name(offset, SNAPSHOT)
    window = FileWindow(disk.source(name))
    position, count, is_ended = SEGMENT_HEADER, 0, False
    try:
        for start, header, batch in window.batches(position, 0):
            if isinstance(batch, Torn):
                damaged.append(Damaged(name, start, batch.why, count, header.end_offset))
            else:
                records += batch.records()
                is_ended = not batch.lengths
            position, count = start + header.size, header.end_offset
    finally:
        window.close()
    if not is_ended:
        damaged.append(Damaged(name, position, "snapshot without its end", count, count))
