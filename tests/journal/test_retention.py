from __future__ import annotations

from pathlib import Path

import pytest

from accord.journal.disk import OsDisk
from accord.journal.errors import JournalError
from accord.journal.record import MAX_OFFSET
from accord.journal.retention import Retention, choose, needed_from, register, unregister
from accord.journal.segment_log import SegmentLog
from accord.journal.segments import Segment
from tests.journal.helpers import numbered

# Four segments of 100 bytes with ten records each, begun 1 s apart; the last one is being written.
SEGMENTS = [Segment(10 * index, 1_000 * index, 100) for index in range(4)]


@pytest.mark.parametrize(
    ("retention", "needed", "before", "count"),
    [
        (Retention(), MAX_OFFSET, 0, 0),
        (Retention(max_bytes=400), MAX_OFFSET, 0, 0),
        (Retention(max_bytes=399), MAX_OFFSET, 0, 1),
        (Retention(max_bytes=250), MAX_OFFSET, 0, 2),
        (Retention(max_bytes=1), MAX_OFFSET, 0, 3),
        (Retention(max_age_ms=3_001), MAX_OFFSET, 0, 0),
        (Retention(max_age_ms=3_000), MAX_OFFSET, 0, 1),
        (Retention(max_age_ms=1), MAX_OFFSET, 0, 3),
        (Retention(max_bytes=1), 20, 0, 2),
        (Retention(max_bytes=1), 19, 0, 1),
        (Retention(max_bytes=1), 0, 0, 0),
        (Retention(max_bytes=1, hard_bytes=300), 0, 0, 1),
        (Retention(hard_bytes=399), MAX_OFFSET, 0, 1),
        (Retention(hard_bytes=1), 0, 0, 3),
        (Retention(), MAX_OFFSET, 9, 0),
        (Retention(), MAX_OFFSET, 10, 1),
        (Retention(), MAX_OFFSET, 1_000, 3),
        (Retention(), 10, 1_000, 1),
    ],
)
def test_which_segments_go(retention: Retention, needed: int, before: int, count: int) -> None:
    chosen = choose(SEGMENTS, retention, needed_from=needed, before_offset=before, now_ms=4_000)
    assert chosen == count


def test_no_segments_no_choice() -> None:
    limits = Retention(max_bytes=1)
    assert choose([], limits, needed_from=0, before_offset=0, now_ms=0) == 0


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="max_age_ms: expected a positive number or none, got 0"):
        Retention(max_age_ms=0)


def test_a_reader_keeps_what_it_needs_and_a_hard_limit_does_not(tmp_path: Path) -> None:
    log = SegmentLog(
        OsDisk(tmp_path), segment_bytes=1, retention=Retention(max_bytes=1, hard_bytes=279)
    )
    register(tmp_path, "archive", 2)
    register(tmp_path, "audit", 3)
    for number in range(5):
        log.commit(numbered(number, number + 1), now_ms=1)
    retired = log.retire(now_ms=1)
    assert (retired.segments, retired.unread, log.first_offset) == (2, 0, 2)
    log.commit(numbered(5, 6), now_ms=1)
    retired = log.retire(now_ms=1)
    assert (retired.segments, retired.unread, log.first_offset) == (1, 1, 3)
    register(tmp_path, "archive", 4)
    unregister(tmp_path, "audit")
    unregister(tmp_path, "audit")
    assert log.retire(now_ms=1).records == 1
    assert (log.retired.records, log.retired.unread) == (4, 1)
    log.close()


def test_a_mark_that_can_not_be_read_keeps_everything(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    assert needed_from(disk) == MAX_OFFSET
    register(tmp_path, "archive", 7)
    assert needed_from(disk) == 7
    (tmp_path / "broken.reader").write_text("seven")
    assert needed_from(disk) == 0


@pytest.mark.parametrize(("name", "offset"), [("", 1), ("../up", 1), ("a" * 65, 1), ("a", -1)])
def test_bad_marks_are_refused(tmp_path: Path, name: str, offset: int) -> None:
    with pytest.raises(JournalError, match="reader "):
        register(tmp_path, name, offset)
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="nowhere: reader 'a': No such file or directory"):
        register(tmp_path / "nowhere", "a", 0)
