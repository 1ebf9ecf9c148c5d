from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.journal.disk import OsDisk
from accord.journal.errors import JournalError
from accord.journal.faults import FaultDisk, FaultFile
from accord.journal.reader import Extent, Reader, Retired, read
from accord.journal.record import SEGMENT_HEADER, Batch, encode_batch
from accord.journal.segment_log import SegmentLog
from accord.journal.segments import Damaged
from tests.journal.helpers import filled, found_in, numbered, records_in

FIRST = "0000000000000000.seg"


@given(
    commits=st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=5), max_size=10),
    offset=st.integers(0, 50),
    max_records=st.none() | st.integers(1, 20),
    max_bytes=st.none() | st.integers(1, 100),
    segment_bytes=st.integers(1, 500),
)
def test_reading_from_anywhere_within_any_limits(
    commits: list[list[bytes]],
    offset: int,
    max_records: int | None,
    max_bytes: int | None,
    segment_bytes: int,
) -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=segment_bytes, batch_bytes=60)
    for records in commits:
        log.commit(records, now_ms=1)
    expected = [record for records in commits for record in records][offset:]
    if offset > log.committed:
        with pytest.raises(JournalError, match=f"offset {offset} is not in it"):
            read(disk, offset)
        return
    found: list[bytes] = []
    for batch in read(disk, offset, max_records=max_records, max_bytes=max_bytes):
        assert isinstance(batch, Batch)
        assert batch.first_offset == offset + len(found)
        found += batch.records()
    assert found == expected[: len(found)]
    if max_records is None and max_bytes is None:
        assert found == expected
    if max_records is not None:
        assert len(found) <= max_records
    if max_bytes is not None:
        assert len(found) <= 1 or sum(map(len, found)) <= max_bytes
    if len(found) < len(expected):  # one more would have been too many
        more = expected[: len(found) + 1]
        is_over = max_bytes is not None and sum(map(len, more)) > max_bytes
        assert is_over or len(found) == max_records


@pytest.mark.parametrize(("name", "limit"), [("max_records", 0), ("max_bytes", -1)])
def test_limits_are_checked(name: str, limit: int) -> None:
    with pytest.raises(JournalError, match=f"{name}: expected a positive number, got {limit}"):
        Reader(FaultDisk()).read(0, **{name: limit})


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="nowhere: can't be read: No such file"):
        list(read(tmp_path / "nowhere", 0))


def test_an_empty_journal_has_nothing_to_read() -> None:
    disk = FaultDisk()
    SegmentLog(disk)
    assert found_in(disk) == []
    assert Reader(disk).extent() == Extent(0, 0)


def test_a_reader_follows_the_writer() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=200)
    reader = Reader(disk)
    offset = 0
    for number in range(20):
        log.commit(numbered(2 * number, 2 * number + 2), now_ms=1)
        for found in reader.read(offset):
            assert isinstance(found, Batch)
            assert found.records() == numbered(offset, offset + 2)
            offset = found.end_offset
        assert reader.extent() == Extent(0, offset) == Extent(0, 2 * number + 2)
    assert reader.segments() == [segment.first_offset for segment in log.segments]
    assert len(log.segments) > 5


def test_what_is_written_but_not_synced_is_not_read() -> None:
    disk = filled(FaultDisk())
    disk.sink(FIRST).append([b"".join(encode_batch([b"6:"], 6, 1))])
    assert records_in(disk) == numbered(0, 6)
    assert Reader(disk).extent() == Extent(0, 6)


@pytest.mark.parametrize("cut", range(50))
def test_a_copy_is_read_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    log = SegmentLog(OsDisk(tmp_path / "a"), segment_bytes=100)
    for number in range(3):
        log.commit(numbered(2 * number, 2 * number + 2), now_ms=1)
    log.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("committed"))
    last = tmp_path / "b" / log.segments[-1].name
    os.truncate(last, last.stat().st_size - cut)
    end = log.segments[-1].first_offset if cut else 6
    copy = OsDisk(tmp_path / "b")
    assert records_in(copy) == numbered(0, end)
    assert Reader(copy).extent() == Extent(0, end)


def test_a_retired_offset_says_what_is_left() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=1)
    for number in range(4):
        log.commit(numbered(number, number + 1), now_ms=1)
    log.retire(now_ms=1, before_offset=2)
    assert found_in(disk, 1) == [Retired(offset=1, first_available=2)]
    assert records_in(disk, 2) == numbered(2, 4)
    assert Reader(disk).extent() == Extent(2, 4)


def test_what_is_retired_while_reading_is_told() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=1)
    for number in range(4):
        log.commit(numbered(number, number + 1), now_ms=1)
    reading = read(disk, 0)
    first = next(reading)
    assert isinstance(first, Batch)
    log.retire(now_ms=1, before_offset=3)
    assert list(reading) == [Retired(offset=1, first_available=3)]


def test_a_segment_retired_between_looking_and_opening() -> None:
    class Slow(FaultDisk):
        def source(self, name: str) -> FaultFile:
            if name == FIRST and FIRST in self.names():
                log.retire(now_ms=1, before_offset=1)
            return super().source(name)

    disk = Slow()
    log = SegmentLog(disk, segment_bytes=1)
    for number in range(2):
        log.commit(numbered(number, number + 1), now_ms=1)
    assert list(read(disk, 0)) == [Retired(offset=0, first_available=1)]


def test_damage_in_the_segment_being_written_is_told() -> None:
    disk = filled(FaultDisk())
    disk.damage(FIRST, SEGMENT_HEADER)
    why = "checksum of a batch's header is wrong"
    assert found_in(disk, 1) == [Damaged(FIRST, SEGMENT_HEADER, why, 1, 6)]


def test_damage_is_told_only_to_whom_it_concerns() -> None:
    disk = filled(FaultDisk())
    disk.damage(FIRST, SEGMENT_HEADER + 40)
    damaged = Damaged(FIRST, SEGMENT_HEADER, "checksum of a batch is wrong", 1, 2)
    assert found_in(disk, 1) == [damaged, (2, numbered(2, 4)), (4, numbered(4, 6))]
    assert list(read(disk, 0, max_records=1)) == [Damaged(FIRST, SEGMENT_HEADER, damaged.why, 0, 1)]
    assert found_in(disk, 2) == [(2, numbered(2, 4)), (4, numbered(4, 6))]


def test_a_segment_that_can_not_be_read_is_damage() -> None:
    class Bad(FaultDisk):
        def source(self, name: str) -> FaultFile:
            file = super().source(name)
            if name == FIRST:
                file.read = refuse  # type: ignore[method-assign]
            return file

    def refuse(position: int, size: int) -> bytes:
        raise OSError(5, "Input/output error")

    disk = Bad()
    log = SegmentLog(disk, segment_bytes=1)
    for number in range(2):
        log.commit(numbered(number, number + 1), now_ms=1)
    expected = [Damaged(FIRST, SEGMENT_HEADER, "Input/output error", 0, 1), (1, [b"1:"])]
    assert found_in(disk) == expected


def test_a_mark_that_can_not_be_read_is_no_mark() -> None:
    disk = filled(FaultDisk())
    disk.damage("committed", 0)
    assert records_in(disk) == numbered(0, 6)
    assert Reader(disk).extent() == Extent(0, 6)
