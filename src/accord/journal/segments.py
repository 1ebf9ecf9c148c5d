"""The files of a journal, and how they are read: names, headers, batches.

    0000000000000000.seg   a segment, named by its first offset
    0000000000001042.snap  a snapshot: replaces everything before that offset
    committed              watermark: the offset before which everything is durable
    NAME.reader            the offset before which this reader no longer needs the journal

A segment ends where the next one begins, even if it has more bytes: after a failed sync its end is
abandoned, and written again as the next segment.

Readers in other processes stop at `committed`: a batch that can be read but was not synced may be
replaced, after a crash, by another with the same offsets. The file is written after each sync and
not synced itself; it can lag after a crash, and is never ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from accord.journal.disk import AppendFile, Disk, ReadFile
from accord.journal.record import (
    BATCH_HEADER,
    MAX_OFFSET,
    SEGMENT_HEADER,
    Batch,
    BatchHeader,
    SegmentHeader,
    Torn,
    decode_batch,
    decode_batch_header,
    decode_segment_header,
    encode_segment_header,
)

SEGMENT: Final = ".seg"
SNAPSHOT: Final = ".snap"
UNFINISHED: Final = ".tmp"
SET_ASIDE: Final = ".bad"
COMMITTED: Final = "committed"
_DIGITS: Final = 16
_MARK: Final = Struct("<QI")
_PIECE: Final = 1 << 20


class Damaged(msgspec.Struct, frozen=True):
    """Records that existed and cannot be read: those from `offset` up to `next_offset`."""

    segment: str
    position: int
    why: str
    offset: int
    next_offset: int


class Segment(msgspec.Struct, frozen=True):
    """A segment as its writer knows it."""

    first_offset: int
    created_ms: int
    size: int

    @property
    def name(self) -> str:
        return file_name(self.first_offset, SEGMENT)

    @property
    def is_empty(self) -> bool:
        return self.size <= SEGMENT_HEADER

    def is_full(self, more: int, limit: int) -> bool:
        """Whether `more` bytes should go to another segment; one takes at least one commit."""
        return not self.is_empty and self.size + more > limit


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:0{_DIGITS}d}{suffix}"


def offsets(names: list[str], suffix: str) -> list[int]:
    """The offsets in the names of files with this suffix, in order; other names are ignored."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    numbers = ((int(stem), stem) for stem in stems if stem.isascii() and stem.isdigit())
    return sorted(n for n, stem in numbers if n <= MAX_OFFSET and file_name(n, "") == stem)


class FileWindow:
    """A file read in large pieces and accessed in small ones."""

    def __init__(self, source: ReadFile, piece: int = _PIECE) -> None:
        self._source = source
        self._piece = piece
        self._start = 0
        self._data = b""

    def at(self, position: int, size: int) -> tuple[bytes, int]:
        """Bytes, and the index of `position` in them; `size` from there on, or up to the end."""
        index = position - self._start
        if not 0 <= index <= index + size <= len(self._data):
            self._data = self._source.read(position, max(size, self._piece))
            self._start, index = position, 0
        return self._data, index

    def segment_header(self, kind: int, offset: int) -> SegmentHeader | Torn:
        """The segment header, which must be of this kind and have this first offset."""
        data, index = self.at(0, SEGMENT_HEADER)
        header = decode_segment_header(data[index : index + SEGMENT_HEADER])
        if not isinstance(header, Torn) and (header.kind, header.first_offset) != (kind, offset):
            return Torn(0, f"header of kind {header.kind} with offset {header.first_offset}")
        return header

    def header(self, position: int, offset: int) -> BatchHeader | Torn | None:
        """Header of the batch expected at `position` with `offset`; None at the end of the file."""
        data, index = self.at(position, BATCH_HEADER)
        if index == len(data):
            return None
        header = decode_batch_header(data, index)
        if isinstance(header, Torn):
            return Torn(position, header.why)
        if header.first_offset != offset:
            return Torn(position, f"batch at offset {header.first_offset}, expected {offset}")
        return header

    def batch(self, position: int, header: BatchHeader) -> Batch | Torn:
        data, index = self.at(position, header.size)
        batch = decode_batch(data, index, header)
        return Torn(position, batch.why) if isinstance(batch, Torn) else batch

    def batches(
        self, position: int, offset: int
    ) -> Iterator[tuple[int, BatchHeader, Batch | Torn]]:
        """Each batch from `position` on with its position, as long as headers can be read."""
        while isinstance(header := self.header(position, offset), BatchHeader):
            yield position, header, self.batch(position, header)
            position += header.size
            offset = header.end_offset

    def close(self) -> None:
        self._source.close()


def create_segment(disk: Disk, name: str, kind: int, first_offset: int, now_ms: int) -> AppendFile:
    """Create a file that begins with its header; not durable yet."""
    sink = disk.create(name)
    try:
        sink.append([encode_segment_header(kind, first_offset, now_ms)])
    except OSError:
        sink.close()
        raise
    return sink


def encode_committed(offset: int) -> bytes:
    fields = offset.to_bytes(8, "little")
    return _MARK.pack(offset, crc32(fields))


def read_committed(disk: Disk) -> int | None:
    """The offset before which the journal is durable; None if it is not recorded."""
    try:
        source = disk.source(COMMITTED)
    except FileNotFoundError:
        return None
    try:
        for _ in range(3):  # it may be written while we read
            data = source.read(0, _MARK.size)
            if len(data) == _MARK.size:
                offset, crc = _MARK.unpack(data)
                if crc == crc32(data[:8]):
                    return int(offset)
    finally:
        source.close()
    return None


def remove(disk: Disk, name: str) -> None:
    """Remove a file durably, even if an earlier attempt was interrupted half-way."""
    with suppress(FileNotFoundError):
        disk.remove(name)
    disk.sync_names()
