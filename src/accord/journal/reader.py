"""Reads a journal by offset, also from another process while it is being written.

A reader stops at the `committed` watermark as it is when reading begins. Everything before it is in
the files and no longer changes; only retention may remove it. A directory without the watermark,
such as a copy, is read as far as there are whole batches.

To find an offset, the batch headers of one segment are read and the bodies skipped. A reader that
continues where it stopped needs no search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from accord.journal.disk import Disk, OsDisk, ReadFile
from accord.journal.errors import JournalError, from_os
from accord.journal.record import LOG, MAX_OFFSET, SEGMENT_HEADER, Batch, BatchHeader, Torn
from accord.journal.segments import SEGMENT, Damaged, FileWindow, file_name, offsets, read_committed

_SEEK_PIECE: Final = 16 << 10


class Retired(msgspec.Struct, frozen=True):
    """The requested offset is no longer kept; the journal begins at `first_available`."""

    offset: int
    first_available: int


class Extent(msgspec.Struct, frozen=True):
    """The readable range: from `first_offset` up to `next_offset`."""

    first_offset: int
    next_offset: int


ReadResult = Batch | Damaged | Retired


def read(
    directory: Path | str | Disk,
    offset: int,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
) -> Iterator[ReadResult]:
    """Read what there is from `offset` on, in order: see `Reader.read`."""
    return Reader(directory).read(offset, max_records=max_records, max_bytes=max_bytes)


class _Place(msgspec.Struct, frozen=True):
    """Segment and file position at which the batch with this offset begins."""

    first_offset: int
    offset: int
    position: int

    def after(self, header: BatchHeader) -> _Place:
        return _Place(self.first_offset, header.end_offset, self.position + header.size)


class Reader:
    """A reusable reader of one journal."""

    def __init__(self, directory: Path | str | Disk) -> None:
        self._disk = OsDisk(directory) if isinstance(directory, Path | str) else directory
        self._cursor = _Place(0, 0, SEGMENT_HEADER)

    def segments(self) -> list[int]:
        """The first offset of each segment: reading from there needs no search."""
        try:
            return offsets(self._disk.names(), SEGMENT)
        except OSError as error:
            raise from_os(error, "can't be read", location=self._disk.location) from error

    def extent(self) -> Extent:
        """The range that can be read now."""
        committed = self._committed()
        segments = self.segments()
        if committed is None:
            committed = segments[-1] if segments else 0
            for found in self._find(committed, MAX_OFFSET):
                if isinstance(found, Batch):
                    committed = found.end_offset
        return Extent(segments[0] if segments else committed, committed)

    def read(
        self, offset: int, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Iterator[ReadResult]:
        """Batches from exactly `offset` on, up to what is committed now or to one of the limits.

        At least one record is read, however long. Damage is reported between batches; `Retired` is
        reported alone.
        """
        for name, limit in (("max_records", max_records), ("max_bytes", max_bytes)):
            if limit is not None and limit <= 0:
                raise self._error(f"{name}: expected a positive number, got {limit}")
        committed = self._committed()
        end = MAX_OFFSET if committed is None else committed
        if not 0 <= offset <= end:
            raise self._error(
                f"offset {offset} is not in it, expected 0 to {end}: was it counted elsewhere?"
            )
        if max_records is not None:
            end = min(end, offset + max_records)
        return self._limit(self._find(offset, end), offset, end, max_bytes)

    def _limit(
        self, items: Iterator[ReadResult], offset: int, end: int, max_bytes: int | None
    ) -> Iterator[ReadResult]:
        left = max_bytes
        for item in items:
            if not isinstance(item, Batch):
                yield item
                continue
            batch = item.between(offset, end)
            if left is not None:
                fitting = bisect_right(list(accumulate(batch.lengths)), left)
                if fitting < batch.count:
                    if fitting or left == max_bytes:
                        yield batch.between(offset, batch.first_offset + max(1, fitting))
                    return
                left -= sum(batch.lengths)
            yield batch

    def _find(self, offset: int, end: int) -> Iterator[ReadResult]:
        """Whole batches, the first of them the one that contains `offset`."""
        while offset < end:
            segments = self.segments()
            index = bisect_right(segments, offset) - 1
            if index < 0:
                if segments or end < MAX_OFFSET:
                    yield Retired(offset, segments[0] if segments else end)
                return
            is_last = index + 1 == len(segments)
            segment_end = end if is_last else min(end, segments[index + 1])
            try:
                reached = yield from self._find_in(segments[index], offset, segment_end)
            except FileNotFoundError:
                continue  # retired since it was listed
            if isinstance(reached, Damaged):
                if is_last and end == MAX_OFFSET:
                    return  # being written, now or when the copy was made
                yield reached
            offset = segment_end

    def _find_in(
        self, first_offset: int, offset: int, end: int
    ) -> Generator[ReadResult, None, Damaged | None]:
        """The batches of one segment up to `end`; returns why it stopped earlier, if it did."""
        name = file_name(first_offset, SEGMENT)
        place = self._cursor
        if place.first_offset != first_offset or place.offset > offset:
            place = _Place(first_offset, first_offset, SEGMENT_HEADER)
        source = self._disk.source(name)
        try:
            start = FileWindow(source, SEGMENT_HEADER).segment_header(LOG, first_offset)
            if isinstance(start, Torn):
                return Damaged(name, 0, start.why, offset, end)
            place = _seek(source, place, offset)
            window = FileWindow(source)
            while place.offset < end:
                header = window.header(place.position, place.offset)
                if header is None or isinstance(header, Torn):
                    why = header.why if header else "ends before the next segment begins"
                    return Damaged(name, place.position, why, max(offset, place.offset), end)
                batch = window.batch(place.position, header)
                if isinstance(batch, Torn):
                    lost = max(offset, place.offset), min(end, header.end_offset)
                    damaged = Damaged(name, place.position, batch.why, *lost)
                    if end == MAX_OFFSET:
                        return damaged
                    yield damaged
                else:
                    yield batch
                place = place.after(header)
                self._cursor = place
        except OSError as error:
            why = error.strerror or "can't be read"
            return Damaged(name, place.position, why, max(offset, place.offset), end)
        finally:
            source.close()
        return None

    def _committed(self) -> int | None:
        return read_committed(self._disk)

    def _error(self, problem: str) -> JournalError:
        return JournalError(problem, location=self._disk.location)


def _seek(source: ReadFile, place: _Place, offset: int) -> _Place:
    """The batch that contains `offset`, or the first that cannot be skipped."""
    window = FileWindow(source, _SEEK_PIECE)
    while place.offset < offset:
        header = window.header(place.position, place.offset)
        if not isinstance(header, BatchHeader) or header.end_offset > offset:
            break
        place = place.after(header)
    return place
