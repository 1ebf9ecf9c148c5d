from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.archives import NODE, archive_slices
from tests.pipeline.journals import ledger_record, records, retire, write_journal

from accord.pipeline.delta_log import Archive, TableSnapshot
from accord.pipeline.journal_readers import JournalMismatchError, check_same_journal, open_journal


def archived(folder: Path, end: int) -> TableSnapshot:
    """The events of the journal there up to `end`."""
    return archive_slices(folder.parent, end).events.snapshot()


def check(folder: Path, snapshot: TableSnapshot) -> None:
    reached = snapshot.archived.get(NODE, 0)
    check_same_journal(str(folder), NODE, archived=reached, events=snapshot.files)


def test_its_own_journal_belongs_to_an_archive(tmp_path: Path) -> None:
    folder = write_journal(tmp_path / "journal", [records(0, 10), [ledger_record(0, 2)]])
    check(folder, Archive(tmp_path / "archive", [NODE]).events.snapshot())
    snapshot = archived(folder, 11)
    check(folder, snapshot)
    write_journal(folder, [records(11, 20)])
    check(folder, snapshot)


def test_a_shorter_one_does_not(tmp_path: Path) -> None:
    snapshot = archived(write_journal(tmp_path / "journal", [records(0, 10)]), 10)
    other = write_journal(tmp_path / "other", [records(0, 5)])
    with pytest.raises(JournalMismatchError, match=r"'denver' up to offset 10, .*other ends at 5"):
        check(other, snapshot)


def test_nor_does_one_with_other_events(tmp_path: Path) -> None:
    snapshot = archived(write_journal(tmp_path / "journal", [records(0, 10)]), 10)
    other = write_journal(tmp_path / "other", [records(1_000, 1_020)])
    with pytest.raises(JournalMismatchError, match="has another event at offset 9"):
        check(other, snapshot)
    ledger = write_journal(tmp_path / "ledger", [[ledger_record(0, 1)] * 20])
    with pytest.raises(JournalMismatchError, match="has no event at offset 9"):
        check(ledger, snapshot)


def test_where_nothing_can_be_compared_it_is_believed(tmp_path: Path) -> None:
    commits = [records(n, n + 50, size=100) for n in range(0, 300, 50)]
    folder = write_journal(tmp_path / "journal", commits, segment_bytes=5_000)
    snapshot = archived(folder, 100)
    retire(folder, 250)
    assert open_journal(str(folder)).extent().first_offset > 100
    check(folder, snapshot)
