from __future__ import annotations

import errno

import pytest

from accord.journal.errors import JournalError, LockedError
from accord.journal.faults import FaultDisk
from accord.journal.retention import Retention
from accord.journal.segment_log import SegmentLog
from tests.journal.helpers import filled, numbered, records_in


def test_commits_are_numbered_and_survive_a_crash() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk)
    assert log.commit([b"a", b"b"], now_ms=1) == 2
    assert log.commit([b"c"], now_ms=2) == 3
    assert log.commit([], now_ms=3) == 3
    again = SegmentLog(disk.crash())
    assert again.committed == 3
    assert records_in(again.disk) == [b"a", b"b", b"c"]
    assert again.commit([b"d"], now_ms=4) == 4
    assert records_in(again.disk) == [b"a", b"b", b"c", b"d"]


def test_segments_are_named_by_their_first_offset() -> None:
    disk = filled(FaultDisk(), 4, segment_bytes=150)
    assert [name for name in disk.names() if name.endswith(".seg")] == [
        "0000000000000000.seg",
        "0000000000000004.seg",
    ]
    assert records_in(disk) == numbered(0, 8)
    assert SegmentLog(disk).committed == 8


def test_a_commit_longer_than_a_segment_has_one_for_itself() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=200, batch_bytes=100)
    log.commit(numbered(0, 50, 20), now_ms=1)
    log.commit(numbered(50, 51), now_ms=1)
    assert [segment.first_offset for segment in log.segments] == [0, 50]
    assert records_in(disk) == [*numbered(0, 50, 20), *numbered(50, 51)]


def test_a_journal_has_one_writer() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk)
    with pytest.raises(LockedError):
        SegmentLog(disk)
    log.close()
    SegmentLog(disk)


def test_a_full_disk_cuts_back_and_goes_on_when_there_is_space() -> None:
    disk = FaultDisk(capacity=300)
    log = SegmentLog(disk)
    log.commit([b"a" * 100], now_ms=1)
    size = disk.size("0000000000000000.seg")
    for _ in range(3):
        with pytest.raises(JournalError, match="No space left on device") as full:
            log.commit([b"b" * 100], now_ms=2)
        assert not full.value.is_final
        assert disk.size("0000000000000000.seg") == size
    assert log.commit([b"c" * 10], now_ms=3) == 2
    disk.capacity = None
    assert log.commit([b"b" * 100], now_ms=4) == 3
    assert len(log.segments) == 1
    assert records_in(disk.crash()) == [b"a" * 100, b"c" * 10, b"b" * 100]


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_names"])
def test_no_space_for_a_new_segment_is_no_end(operation: str) -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=1)
    log.commit([b"a"], now_ms=1)
    disk.fail(operation, errno.ENOSPC, times=2)
    with pytest.raises(JournalError) as full:
        log.commit([b"b"], now_ms=2)
    assert not full.value.is_final
    assert log.commit([b"b"], now_ms=3) == 2
    assert records_in(disk.crash()) == [b"a", b"b"]


@pytest.mark.parametrize("survives", [0, 1])
@pytest.mark.parametrize("operation", ["append", "sync"])
@pytest.mark.parametrize("before", [[], [b"a"]])
def test_what_a_failed_sync_may_have_lost_is_written_again_elsewhere(
    operation: str, survives: int, before: list[bytes]
) -> None:
    disk = FaultDisk(lambda limit: limit * survives)
    log = SegmentLog(disk)
    incidents: list[str] = []
    log.on_incident = lambda error: incidents.append(str(error))
    log.commit(before, now_ms=1)
    log.roll(now_ms=1)
    log.commit(before, now_ms=1)
    disk.fail(operation, errno.EIO)
    assert log.commit([b"b", b"c"], now_ms=2) == 2 * len(before) + 2
    assert log.commit([b"d"], now_ms=3) == 2 * len(before) + 3
    expected = [*before, *before, b"b", b"c", b"d"]
    assert records_in(disk) == expected
    assert incidents == ["journal memory: Input/output error; rewritten to a new segment"]
    found = disk.crash()
    assert records_in(found) == expected
    assert SegmentLog(found).committed == len(expected)


def test_a_disk_that_fails_twice_has_failed() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk)
    log.commit([b"a"], now_ms=1)
    disk.fail("sync", errno.EIO, times=2)
    with pytest.raises(JournalError, match="can't append: Input/output error") as failed:
        log.commit([b"b"], now_ms=2)
    assert failed.value.is_final
    assert log.committed == 1
    assert records_in(disk.crash()) == [b"a"]


def test_a_cut_that_fails_abandons_the_segment() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk)
    log.commit([b"a"], now_ms=1)
    disk.fail("append", errno.ENOSPC)
    disk.fail("truncate", errno.EIO, times=2)
    assert log.commit([b"b"], now_ms=2) == 2
    assert [segment.first_offset for segment in log.segments] == [0, 1]
    assert records_in(disk.crash()) == [b"a", b"b"]


def test_readers_that_can_not_be_told_are_an_incident() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk)
    incidents: list[str] = []
    log.on_incident = lambda error: incidents.append(error.problem)
    disk.fail("overwrite", errno.EIO)
    assert log.commit([b"a"], now_ms=1) == 1
    assert incidents == ["can't update its readers: Input/output error"]
    assert records_in(disk) == []
    log.commit([b"b"], now_ms=1)
    assert records_in(disk) == [b"a", b"b"]


def test_an_idle_journal_lets_go_of_what_is_old() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, retention=Retention(max_age_ms=1_000))
    log.commit([b"a", b"b"], now_ms=10_000)
    assert log.retire(now_ms=10_999).segments == 0
    assert log.retire(now_ms=11_000).records == 0  # begins a segment, as young as can be
    assert log.retire(now_ms=12_000).records == 2
    assert (log.first_offset, log.committed, len(log.segments)) == (2, 2, 1)
    assert log.commit([b"c"], now_ms=12_001) == 3
    assert records_in(disk, 2) == [b"c"]


def test_retired_segments_are_counted_and_stay_retired() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=1, retention=Retention(max_bytes=200))
    for number in range(8):
        log.commit(numbered(number, number + 1), now_ms=number)
    retired = log.retire(now_ms=9)
    assert (retired.segments, retired.records, retired.unread) == (6, 6, 0)
    assert log.retired == retired
    found = disk.crash()
    assert SegmentLog(found).first_offset == 6
    assert records_in(found, 6) == numbered(6, 8)


def test_a_segment_that_can_not_be_removed_stays() -> None:
    disk = FaultDisk()
    log = SegmentLog(disk, segment_bytes=1)
    for number in range(3):
        log.commit(numbered(number, number + 1), now_ms=number)
    disk.fail("remove", errno.EIO)
    with pytest.raises(JournalError, match="can't remove a segment"):
        log.retire(now_ms=9, before_offset=2)
    assert log.first_offset == 0
    assert log.retire(now_ms=9, before_offset=2).segments == 2
