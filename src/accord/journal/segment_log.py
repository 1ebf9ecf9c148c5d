"""The journal without its thread: commits batches to segments, and applies retention.

`commit` appends to the last segment and syncs it. When it returns, the records are durable. When it
raises, none of them is, and the same records can be committed again:

- No space: the segment is truncated to its last committed batch. Retry later.
- A failed sync: the kernel may have dropped what it could not write and reports that once, so a
  second sync proves nothing. The segment is abandoned at its last committed batch, and the records
  are written once more, to a new segment. If that fails too, the disk has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise

import msgspec

from accord.journal.disk import AppendFile, Disk
from accord.journal.errors import JournalError, from_os, is_transient
from accord.journal.record import LOG, SEGMENT_HEADER, encode_batches
from accord.journal.recovery import Recovery, recover
from accord.journal.retention import Retention, RetiredCounts, choose, needed_from
from accord.journal.segments import (
    COMMITTED,
    SNAPSHOT,
    UNFINISHED,
    Segment,
    create_segment,
    encode_committed,
    file_name,
    offsets,
    remove,
)


class SegmentLog:
    """One directory of segments, open for writing. Not thread-safe."""

    def __init__(
        self,
        disk: Disk,
        *,
        segment_bytes: int = 64 << 20,
        batch_bytes: int = 1 << 20,
        retention: Retention | None = None,
    ) -> None:
        self.disk = disk
        self.fsyncs = 0
        self.retired = RetiredCounts()
        self.on_incident: Callable[[JournalError], None] = lambda _: None
        self._segment_bytes = segment_bytes
        self._batch_bytes = batch_bytes
        self._retention = retention or Retention()
        self._sink: AppendFile | None = None
        self._committed_file: AppendFile | None = None
        disk.lock()
        try:
            self._open()
        except OSError as error:
            self.close()
            raise from_os(error, "can't be recovered", location=disk.location) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        recovered = recover(self.disk)
        self._segments = recovered.segments
        self.snapshot = recovered.snapshot
        self._snapshot_size = self._measure_snapshot()
        self.recovery: Recovery = recovered.report
        self._last_ms = recovered.last_ms
        self.committed = recovered.next_offset
        if recovered.is_open:
            self._sink = self.disk.sink(self._segments[-1].name)
        if COMMITTED in self.disk.names():
            self._committed_file = self.disk.sink(COMMITTED)
        else:
            self._committed_file = self.disk.create(COMMITTED)
        self._mark_committed()

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    @property
    def first_offset(self) -> int:
        for segment in self._segments:
            return segment.first_offset
        return self.committed

    @property
    def size(self) -> int:
        """Size of segments and snapshot, in bytes."""
        return self._snapshot_size + sum(segment.size for segment in tuple(self._segments))

    def commit(self, records: Sequence[bytes], *, now_ms: int) -> int:
        """Make `records` durable, or none of them (JournalError); returns the offset after them."""
        if not records:
            return self.committed
        parts = encode_batches(records, self.committed, now_ms, limit=self._batch_bytes)
        size = sum(map(len, parts))
        if self._segments and self._segments[-1].is_full(size, self._segment_bytes):
            self._seal()
        try:
            self._write(parts, now_ms)
        except OSError as error:
            if self._sink is not None:  # truncated, as it was before
                raise from_os(error, "can't append", location=self.disk.location) from error
            self._retry_write(parts, now_ms, error)
        last = self._segments[-1]
        self._segments[-1] = msgspec.structs.replace(last, size=last.size + size)
        self._last_ms = now_ms
        self.committed += len(records)
        self._mark_committed()
        return self.committed

    def roll(self, *, now_ms: int) -> None:
        """Start a new segment for the next records."""
        if self._segments and self._segments[-1].is_empty and self._sink is not None:
            return
        self._seal()
        try:
            self._start_segment(now_ms)
        except OSError as error:
            raise from_os(error, "can't begin a segment", location=self.disk.location) from error

    def retire(self, *, now_ms: int, before_offset: int = 0) -> RetiredCounts:
        """Apply retention, and remove all before `before_offset` that no reader needs."""
        age_ms = self._retention.max_age_ms
        if age_ms is not None and self._segments and self._last_ms <= now_ms - age_ms:
            self.roll(now_ms=now_ms)  # else an idle journal would keep its last segment forever
        try:
            needed = needed_from(self.disk)
        except OSError as error:
            raise from_os(error, "can't list its readers", location=self.disk.location) from error
        count = choose(
            self._segments,
            self._retention,
            needed_from=needed,
            before_offset=before_offset,
            now_ms=now_ms,
        )
        retired = RetiredCounts()
        for segment, following in list(pairwise(self._segments[: count + 1])):
            self._drop(segment)
            end = following.first_offset
            unread = max(0, end - max(needed, segment.first_offset))
            retired += RetiredCounts(1, end - segment.first_offset, unread)
        self.retired += retired
        return retired

    def replace(self, offset: int, unfinished: str) -> None:
        """Make the finished file `unfinished` the snapshot of everything before `offset`."""
        try:
            self.disk.rename(unfinished, file_name(offset, SNAPSHOT))
            self.disk.sync_names()
            self.snapshot = offset
            self._snapshot_size = self._measure_snapshot()
            for replaced in offsets(self.disk.names(), SNAPSHOT):
                if replaced < offset:
                    remove(self.disk, file_name(replaced, SNAPSHOT))
            while len(self._segments) > 1 and self._segments[1].first_offset <= offset:
                self._drop(self._segments[0])
        except OSError as error:
            raise from_os(error, "can't be replaced", location=self.disk.location) from error

    def close(self) -> None:
        for sink in (self._sink, self._committed_file):
            if sink is not None:
                with suppress(OSError):
                    sink.close()
        self._sink = self._committed_file = None
        self.disk.unlock()

    def _write(self, parts: list[bytes], now_ms: int) -> None:
        """Write and sync; after OSError there is a sink only if the segment is as it was before."""
        sink = self._sink or self._start_segment(now_ms)
        try:
            sink.append(parts)
        except OSError as error:
            if not is_transient(error):
                self._abandon()
                raise
            try:
                sink.truncate(self._segments[-1].size)
            except OSError:
                self._abandon()
            raise
        try:
            self._sync(sink)
        except OSError:
            self._abandon()
            raise

    def _retry_write(self, parts: list[bytes], now_ms: int, first: OSError) -> None:
        try:
            self._write(parts, now_ms)
        except OSError as error:
            raise from_os(error, "can't append", location=self.disk.location) from error
        problem = f"{first.strerror}; rewritten to a new segment"
        self.on_incident(JournalError(problem, location=self.disk.location, is_final=False))

    def _start_segment(self, now_ms: int) -> AppendFile:
        """Start a new segment, durable before anything is in it.

        It gets its name when it is whole, by a rename that also replaces an abandoned segment of
        that name: at any time some name shows how far the journal has come.
        """
        segment = Segment(self.committed, now_ms, SEGMENT_HEADER)
        unfinished = segment.name + UNFINISHED
        with suppress(FileNotFoundError):
            self.disk.remove(unfinished)
        sink = create_segment(self.disk, unfinished, LOG, self.committed, now_ms)
        try:
            self._sync(sink)
            self.disk.rename(unfinished, segment.name)
            self.disk.sync_names()
        except OSError:
            sink.close()
            raise
        self._segments.append(segment)
        self._sink = sink
        return sink

    def _sync(self, sink: AppendFile) -> None:
        self.fsyncs += 1
        sink.sync()

    def _seal(self) -> None:
        if self._sink is not None:
            with suppress(OSError):  # everything in it has been synced
                self._sink.close()
            self._sink = None

    def _abandon(self) -> None:
        """Abandon the segment at the end of its last committed batch; bytes after that are void."""
        assert self._sink is not None
        segment = self._segments[-1]
        with suppress(OSError):
            self._sink.truncate(segment.size)
        self._seal()
        if segment.is_empty:
            self._segments.pop()  # the next one will have its name

    def _measure_snapshot(self) -> int:
        if self.snapshot is None:
            return 0
        return self.disk.size(file_name(self.snapshot, SNAPSHOT))

    def _drop(self, segment: Segment) -> None:
        """Remove the oldest segment: durably one by one, as a crash could otherwise leave holes."""
        assert segment is self._segments[0]
        try:
            remove(self.disk, segment.name)
        except OSError as error:
            raise from_os(error, "can't remove a segment", location=self.disk.location) from error
        self._segments.pop(0)

    def _mark_committed(self) -> None:
        assert self._committed_file is not None
        try:
            self._committed_file.overwrite(encode_committed(self.committed))
        except OSError as error:  # readers wait longer; nothing is less durable
            problem = from_os(error, "can't update its readers", location=self.disk.location)
            self.on_incident(problem)
