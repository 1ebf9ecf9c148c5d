"""The journal's binary format: segments of batches of records.

    segment = magic, version, kind, first offset, time of creation, CRC of these · batch*
    batch   = length and CRC of the body, first offset, count, time, CRC of these · body
    body    = the lengths of its records · the records, one after the other

All numbers are little-endian. A record's offset is its number in the journal. A batch is what one
group commit wrote, or a part of it if that was long. The lengths are stored together, not each
before its record: both sides then handle them all in one call (four times cheaper in Python), and
they are what a columnar reader needs to take the records over without touching each.

The header has its own checksum, so that a scan can trust it without reading the body, and skip a
damaged body. Bytes that are not a whole, undamaged batch are returned as `Torn`: the remains of a
crash, or a write the disk lost, are a fact to act on and not an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from
from typing import Final
from zlib import crc32

import msgspec

VERSION: Final = 1
LOG: Final = 1  # kinds of segments: the log itself,
SNAPSHOT: Final = 2  # and a snapshot that replaces everything before an offset
MAX_RECORD: Final = (1 << 28) + (1 << 20)  # the largest MQTT packet, and what we add
MAX_BODY: Final = 1 << 29
MAX_OFFSET: Final = (1 << 63) - 1

_MAGIC: Final = b"accord-j"
_SEGMENT: Final = Struct("<8sHHQQ")
_BATCH: Final = Struct("<IIQIQ")
_CRC: Final = Struct("<I")
SEGMENT_HEADER: Final = _SEGMENT.size + _CRC.size
BATCH_HEADER: Final = _BATCH.size + _CRC.size


class Torn(msgspec.Struct, frozen=True):
    """Position at which bytes stop being valid, and why."""

    position: int
    why: str
    other_version: int = 0  # format version of the bytes, if it is that of another Accord


class SegmentHeader(msgspec.Struct, frozen=True):
    kind: int
    first_offset: int
    created_ms: int


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    length: int
    crc: int
    first_offset: int
    count: int
    time_ms: int

    @property
    def end_offset(self) -> int:
        return self.first_offset + self.count

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return BATCH_HEADER + self.length


class Batch(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Consecutive records, as slices of the bytes they were read with."""

    first_offset: int
    time_ms: int
    lengths: tuple[int, ...]
    source: bytes
    start: int

    @property
    def count(self) -> int:
        return len(self.lengths)

    @property
    def end_offset(self) -> int:
        return self.first_offset + len(self.lengths)

    @property
    def data(self) -> memoryview:
        """The concatenated records, not copied."""
        return memoryview(self.source)[self.start : self.start + sum(self.lengths)]

    def records(self) -> list[bytes]:
        source = self.source
        ends = accumulate(self.lengths, initial=self.start)
        return [source[start:end] for start, end in pairwise(ends)]

    def views(self) -> list[memoryview]:
        """`records` without copying: one view keeps the whole read in memory."""
        source = memoryview(self.source)
        ends = accumulate(self.lengths, initial=self.start)
        return [source[start:end] for start, end in pairwise(ends)]

    def between(self, first_offset: int, end_offset: int) -> Batch:
        """The records of the batch that are in this range."""
        skipped = max(0, first_offset - self.first_offset)
        kept = max(skipped, min(self.count, end_offset - self.first_offset))
        if not skipped and kept == self.count:
            return self
        return Batch(
            self.first_offset + skipped,
            self.time_ms,
            self.lengths[skipped:kept],
            self.source,
            self.start + sum(self.lengths[:skipped]),
        )


def encode_segment_header(kind: int, first_offset: int, created_ms: int) -> bytes:
    fields = _SEGMENT.pack(_MAGIC, VERSION, kind, first_offset, created_ms)
    return fields + _CRC.pack(crc32(fields))


def decode_segment_header(data: bytes) -> SegmentHeader | Torn:
    """Decode the first bytes of a segment."""
    if len(data) < SEGMENT_HEADER:
        return Torn(0, f"header of {SEGMENT_HEADER} bytes cut short after {len(data)}")
    magic, version, kind, first_offset, created_ms = _SEGMENT.unpack_from(data)
    if magic != _MAGIC:
        return Torn(0, "not a segment of a journal")
    if _CRC.unpack_from(data, _SEGMENT.size)[0] != crc32(data[: _SEGMENT.size]):
        return Torn(0, "checksum of the segment's header is wrong")
    if version != VERSION:
        return Torn(0, f"format version {version}, expected {VERSION}", version)
    if kind not in (LOG, SNAPSHOT) or first_offset > MAX_OFFSET:
        return Torn(0, f"header with kind {kind} and first offset {first_offset}")
    return SegmentHeader(kind, first_offset, created_ms)


def encode_batch(records: Sequence[bytes], first_offset: int, time_ms: int) -> tuple[bytes, bytes]:
    """Encode a batch as header and body, to be written one after the other."""
    count = len(records)
    body = b"".join((pack(f"<{count}I", *map(len, records)), *records))
    if len(body) > MAX_BODY:
        raise ValueError(f"a batch of {len(body)} bytes, expected at most {MAX_BODY}")
    fields = _BATCH.pack(len(body), crc32(body), first_offset, count, time_ms)
    return fields + _CRC.pack(crc32(fields)), body


def encode_batches(
    records: Sequence[bytes], first_offset: int, time_ms: int, *, limit: int
) -> list[bytes]:
    """Encode as many batches of `limit` bytes as needed; longer only for a longer record."""
    if sum(map(len, records)) + 4 * len(records) <= limit:
        return list(encode_batch(records, first_offset, time_ms))
    parts: list[bytes] = []
    for group in split(records, limit):
        parts += encode_batch(group, first_offset, time_ms)
        first_offset += len(group)
    return parts


def split(records: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """Split into groups whose bodies have up to `limit` bytes, or one record."""
    group: list[bytes] = []
    size = 0
    for record in records:
        length = len(record) + 4
        if group and size + length > limit:
            yield group
            group, size = [], 0
        group.append(record)
        size += length
    if group:
        yield group


def decode_batch_header(data: bytes, position: int = 0) -> BatchHeader | Torn:
    """Decode the header of the batch at `position`."""
    if len(data) < position + BATCH_HEADER:
        return Torn(position, f"header of a batch cut short after {len(data) - position} bytes")
    header = BatchHeader(*_BATCH.unpack_from(data, position))
    crc = _CRC.unpack_from(data, position + _BATCH.size)[0]
    if crc != crc32(memoryview(data)[position : position + _BATCH.size]):
        return Torn(position, "checksum of a batch's header is wrong")
    if header.length > MAX_BODY or header.end_offset > MAX_OFFSET:
        return Torn(position, f"batch of {header.length} bytes at offset {header.first_offset}")
    return header


def decode_batch(data: bytes, position: int, header: BatchHeader) -> Batch | Torn:
    """Decode the batch at `position`, whose header has been read."""
    start = position + BATCH_HEADER
    end = start + header.length
    if len(data) < end:
        return Torn(
            position, f"batch of {header.size} bytes cut short after {len(data) - position}"
        )
    if header.crc != crc32(memoryview(data)[start:end]):
        return Torn(position, "checksum of a batch is wrong")
    first = start + 4 * header.count
    if first > end:
        return Torn(position, f"{header.count} records in {header.length} bytes")
    lengths: tuple[int, ...] = unpack_from(f"<{header.count}I", data, start)
    if first + sum(lengths) != end:
        return Torn(position, "lengths of records do not add up to the batch's")
    return Batch(header.first_offset, header.time_ms, lengths, data, first)
