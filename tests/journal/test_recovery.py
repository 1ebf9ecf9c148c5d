from __future__ import annotations

import errno
from pathlib import Path
from zlib import crc32

import pytest

from accord.journal.errors import JournalError
from accord.journal.faults import FaultDisk
from accord.journal.record import LOG, SEGMENT_HEADER, encode_batch, encode_segment_header
from accord.journal.recovery import Recovery
from accord.journal.segment_log import SegmentLog
from accord.journal.segments import Damaged
from tests.journal.helpers import filled, found_in, numbered, records_in

FIRST = "0000000000000000.seg"
BATCH = 32 + 2 * 4 + 2 * 2  # header, lengths, records "0:" and "1:"


def forget_mark(disk: FaultDisk) -> None:
    disk.remove("committed")


def append(disk: FaultDisk, data: bytes) -> None:
    disk.sink(FIRST).append([data])


def test_an_empty_folder_is_an_empty_journal() -> None:
    log = SegmentLog(FaultDisk())
    assert (log.committed, log.first_offset, log.recovery) == (0, 0, Recovery())


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b"\0" * 100, "checksum of a batch's header is wrong"),
        (b"x", "header of a batch cut short after 1 bytes"),
        (b"".join(encode_batch([b"y" * 50], 6, 1))[:-1], "batch of 86 bytes cut short after 85"),
        (b"".join(encode_batch([b"y"], 7, 1)), "batch at offset 7, expected 6"),
        (encode_batch([b"y"], 6, 1)[0] + b"\1\0\0\0z", "checksum of a batch is wrong"),
    ],
)
def test_a_torn_tail_is_cut_and_reported(tail: bytes, why: str) -> None:
    disk = filled(FaultDisk())
    size = disk.size(FIRST)
    append(disk, tail)
    log = SegmentLog(disk)
    assert log.recovery == Recovery(cut_bytes=len(tail), cut_why=why)
    assert disk.size(FIRST) == size
    assert log.commit([b"new"], now_ms=1) == 7
    assert records_in(disk.crash()) == [*numbered(0, 6), b"new"]


def test_a_whole_batch_that_was_not_acknowledged_is_kept_and_made_durable() -> None:
    disk = filled(FaultDisk())
    append(disk, b"".join(encode_batch([b"6:"], 6, 1)))
    log = SegmentLog(disk)
    assert log.committed == 7
    assert records_in(disk.crash()) == numbered(0, 7)


@pytest.mark.parametrize("size", [0, 1, SEGMENT_HEADER])
def test_a_segment_that_was_not_begun_properly_goes(size: int) -> None:
    disk = filled(FaultDisk())
    disk.create("0000000000000006.seg").append([bytes(size)])
    log = SegmentLog(disk)
    assert log.recovery.cut_bytes == size
    assert "0000000000000006.seg" not in disk.names()
    assert log.commit([b"6:"], now_ms=1) == 7
    assert records_in(disk) == numbered(0, 7)


def test_a_segment_with_something_in_it_is_set_aside_instead() -> None:
    disk = filled(FaultDisk())
    for _ in range(2):
        disk.create("0000000000000006.seg").append([bytes(SEGMENT_HEADER + 1)])
        log = SegmentLog(disk)
        log.close()
    assert log.recovery.set_aside == ("0000000000000006.seg.bad.bad",)
    assert "0000000000000006.seg.bad" in disk.names()
    assert records_in(disk) == numbered(0, 6)


@pytest.mark.parametrize("position", [SEGMENT_HEADER + BATCH, SEGMENT_HEADER + BATCH + 10])
def test_a_damaged_header_below_the_mark_is_no_torn_write(position: int) -> None:
    """It can't be passed over; but nothing is cut, and no offset is used twice."""
    disk = filled(FaultDisk())
    disk.damage(FIRST, position)
    size = disk.size(FIRST)
    log = SegmentLog(disk)
    why = "checksum of a batch's header is wrong"
    damaged = Damaged(FIRST, SEGMENT_HEADER + BATCH, why, 2, 6)
    assert log.recovery == Recovery(damaged=(damaged,))
    assert log.commit([b"6:"], now_ms=1) == 7
    assert disk.size(FIRST) == size
    assert found_in(disk) == [(0, numbered(0, 2)), damaged, (6, [b"6:"])]


def test_a_damaged_body_below_the_mark_is_passed_over() -> None:
    disk = filled(FaultDisk())
    disk.damage(FIRST, SEGMENT_HEADER + 2 * BATCH - 1)
    log = SegmentLog(disk)
    damaged = Damaged(FIRST, SEGMENT_HEADER + BATCH, "checksum of a batch is wrong", 2, 4)
    assert log.recovery == Recovery(damaged=(damaged,))
    assert log.commit([b"6:"], now_ms=1) == 7
    expected = [(0, numbered(0, 2)), damaged, (4, numbered(4, 6)), (6, [b"6:"])]
    assert found_in(disk) == expected


def test_without_a_mark_damage_looks_like_a_torn_tail() -> None:
    disk = filled(FaultDisk())
    forget_mark(disk)
    disk.damage(FIRST, SEGMENT_HEADER + BATCH)
    log = SegmentLog(disk)
    assert log.recovery.cut_bytes == 2 * BATCH
    assert records_in(disk) == numbered(0, 2)


def test_a_damaged_older_segment_is_reported_and_left() -> None:
    disk = filled(FaultDisk(), 3, segment_bytes=1)
    disk.damage(FIRST, 0)
    disk.damage("0000000000000002.seg", SEGMENT_HEADER)
    log = SegmentLog(disk)
    headless = Damaged(FIRST, 0, "not a segment of a journal", 0, 2)
    assert log.recovery == Recovery(damaged=(headless,))
    why = "checksum of a batch's header is wrong"
    second = Damaged("0000000000000002.seg", SEGMENT_HEADER, why, 2, 4)
    assert found_in(disk) == [headless, second, (4, numbered(4, 6))]
    assert len([name for name in disk.names() if name.endswith(".seg")]) == 3


def test_a_last_segment_without_header_below_the_mark_is_set_aside() -> None:
    disk = filled(FaultDisk(), 2, segment_bytes=1)
    disk.damage("0000000000000002.seg", 0)
    log = SegmentLog(disk)
    assert log.recovery.set_aside == ("0000000000000002.seg.bad",)
    assert log.recovery.damaged[0].offset == 2
    assert log.recovery.damaged[0].next_offset == 4
    assert log.commit([b"4:"], now_ms=1) == 5
    assert records_in(disk, 4) == [b"4:"]


def test_offsets_of_lost_segments_are_not_used_again() -> None:
    disk = filled(FaultDisk(), 2, segment_bytes=1)
    disk.remove("0000000000000002.seg")
    log = SegmentLog(disk)
    assert log.recovery.damaged == (Damaged("", 0, "segments are missing", 2, 4),)
    assert log.commit([b"4:"], now_ms=1) == 5


def test_a_segment_of_another_version_is_neither_read_nor_removed() -> None:
    disk = filled(FaultDisk())
    header = encode_segment_header(LOG, 0, 0)[:8] + b"\x02\0" + bytes(18)
    disk.sink(FIRST).overwrite(header + crc32(header).to_bytes(4, "little"), 0)
    size = disk.size(FIRST)
    with pytest.raises(JournalError, match=r"by another version of accord .* start that version"):
        SegmentLog(disk)
    assert disk.size(FIRST) == size


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    disk = filled(FaultDisk())
    for name in ("notes.txt", "x.seg", "12.seg", "٣.seg", "99999999999999999999.seg"):
        disk.create(name).append([b"mine"])
    assert SegmentLog(disk).committed == 6
    assert {"notes.txt", "x.seg", "12.seg"} < set(disk.names())


def test_a_disk_that_fails_while_recovering_is_named_and_unlocked() -> None:
    disk = filled(FaultDisk())
    disk.fail("sync", errno.EIO)
    with pytest.raises(JournalError, match="can't be recovered: Input/output error"):
        SegmentLog(disk)
    assert SegmentLog(disk).committed == 6


def test_what_the_last_writer_failed_to_sync_is_not_taken_for_durable() -> None:
    """The kernel still shows it after a failed sync, and a further sync writes nothing."""
    disk = FaultDisk()
    log = SegmentLog(disk)
    log.commit(numbered(0, 2), now_ms=1)
    disk.fail("sync", errno.EIO, times=9)
    disk.fail("truncate", errno.EIO, times=9)
    with pytest.raises(JournalError):
        log.commit(numbered(2, 4), now_ms=2)
    disk.kill()
    again = SegmentLog(disk)
    assert again.committed == 4
    assert records_in(disk.crash()) == numbered(0, 4)


def test_the_header_too_is_written_again_where_nothing_was_committed() -> None:
    disk = FaultDisk()
    disk.create(FIRST).append([encode_segment_header(LOG, 0, 1)])
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        disk.sink(FIRST).sync()
    log = SegmentLog(disk)
    log.commit([b"0:"], now_ms=1)
    assert records_in(disk.crash()) == [b"0:"]


def test_how_far_a_journal_came_is_known_by_a_name() -> None:
    """All is retired, the mark is lost and the last segment torn: still no offset comes twice."""
    disk = FaultDisk()
    disk.create("0000000000000042.seg").append([b"accord"])
    assert SegmentLog(disk).commit([b"42:"], now_ms=1) == 43
    assert records_in(disk, 42) == [b"42:"]
