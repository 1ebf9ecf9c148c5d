"""What tests of the journal share."""

from __future__ import annotations

from accord.journal.disk import Disk
from accord.journal.faults import FaultDisk
from accord.journal.reader import Reader, ReadResult
from accord.journal.record import Batch
from accord.journal.segment_log import SegmentLog


def numbered(first: int, end: int, size: int = 0) -> list[bytes]:
    """Records that say which they are."""
    return [b"%d:" % number + b"x" * size for number in range(first, end)]


def records_in(disk: Disk, offset: int = 0) -> list[bytes]:
    """All that a reader finds, which must be undamaged and without gaps."""
    records: list[bytes] = []
    for found in Reader(disk).read(offset):
        assert isinstance(found, Batch), found
        assert found.first_offset == offset + len(records)
        records += found.records()
    return records


def found_in(disk: Disk, offset: int = 0) -> list[ReadResult | tuple[int, list[bytes]]]:
    """What a reader finds, batches as offset and records."""
    return [
        (found.first_offset, found.records()) if isinstance(found, Batch) else found
        for found in Reader(disk).read(offset)
    ]


def filled(disk: FaultDisk, commits: int = 3, *, segment_bytes: int = 1 << 20) -> FaultDisk:
    """A journal of so many commits of two records each, closed."""
    log = SegmentLog(disk, segment_bytes=segment_bytes)
    for number in range(commits):
        log.commit(numbered(2 * number, 2 * number + 2), now_ms=1_000 + number)
    log.close()
    return disk
