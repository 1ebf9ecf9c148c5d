from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.pipeline.archives import NODE, read, slice_job, written
from tests.pipeline.journals import (
    START_MS,
    kept,
    ledger_record,
    record,
    records,
    retire,
    write_journal,
)

from accord.journal.disk import OsDisk
from accord.journal.errors import JournalError
from accord.journal.events import KeptEvent
from accord.journal.reader import ReadResult, Retired
from accord.journal.segment_log import SegmentLog
from accord.journal.segments import SEGMENT
from accord.pipeline import journal_sink
from accord.pipeline.delta_log import Archive, JournalPart
from accord.pipeline.journal_readers import LocalReader
from accord.pipeline.journal_sink import SliceDone, commit_batch, write_slice
from accord.pipeline.tables import TablesError

DAY_MS = 86_400_000


def offsets(archive: Archive, done: SliceDone) -> list[int]:
    return [row["offset"] for row in written(archive, done)]


def archive_of(folder: Path) -> Archive:
    return Archive(folder / "archive", [NODE])


def test_a_slice_becomes_files_of_both_tables(tmp_path: Path) -> None:
    commits = [records(0, 5), [ledger_record(1, 3)], records(6, 9, channel="sea/1")]
    write_journal(tmp_path / "journal", commits)
    done = write_slice(slice_job(tmp_path, 0, 9, declared={"altitude_m": "integer"}))
    assert (done.node, done.first, done.next, done.lost) == (NODE, 0, 9, 0)
    assert [(file.table, file.day, file.rows) for file in done.files] == [
        ("events", "2025-11-16", 8),
        ("ledger", "2025-11-16", 3),
    ]
    assert done.use == {"uav/imagery": (5, 10), "sea/1": (3, 6)}
    archive = archive_of(tmp_path)
    rows = written(archive, done)
    assert [row["altitude_m"] for row in rows] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert rows[3]["payload"] == kept(3).payload
    assert "day" not in rows[0]  # which is in the path
    batch = commit_batch([done], archive)
    assert batch is not None
    assert (batch.files, batch.archived) == (2, {NODE: 9})
    assert (batch.nodes[NODE].events, batch.nodes[NODE].ledger_rows) == (8, 3)
    (events,), (ledger,) = (table.snapshot().files for table in archive.tables)
    assert (events.node, events.channels) == (NODE, ("sea/1", "uav/imagery"))
    assert (events.first_offset, events.last_offset) == (0, 8)
    assert (events.first_ms, events.last_ms) == (START_MS, START_MS + 80)
    assert (events.first_number, events.last_number) == (0, 8)
    assert events.stats == {"altitude_m": (0, 8)}
    assert (ledger.node, ledger.channels) == (NODE, ("uav/imagery", "uav/imagery"))
    assert (ledger.first_number, ledger.last_number) == (1, 3)
    assert (ledger.first_ms, ledger.last_ms) == (START_MS, START_MS + 3)


def test_a_batch_is_committed_once_in_each_table(tmp_path: Path) -> None:
    commits = [records(0, 5), [ledger_record(1, 3)]]
    write_journal(tmp_path / "journal", commits)
    archive = archive_of(tmp_path)
    for table in archive.tables:
        table.create()
    done = write_slice(slice_job(tmp_path, 0, 6))
    part = JournalPart(node=NODE, first=0, end=6, files=done.files[:1])
    archive.events.append([part])  # and then a crash
    again = write_slice(slice_job(tmp_path, 0, 6))
    assert commit_batch([again], archive) is not None
    assert commit_batch([again], archive) is None
    assert [row["offset"] for row in read(archive, archive.events)] == list(range(5))
    assert [row["number"] for row in read(archive, archive.ledger)] == [1, 2, 3]
    assert archive.events.snapshot().archived == archive.ledger.snapshot().archived == {NODE: 6}


def test_a_slice_has_just_its_offsets(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 7), records(7, 20)])
    done = write_slice(slice_job(tmp_path, 3, 11))
    assert offsets(archive_of(tmp_path), done) == list(range(3, 11))
    assert write_slice(slice_job(tmp_path, 5, 5)).files == []


def test_a_slice_can_be_archived_again(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 3)])
    once, again = (write_slice(slice_job(tmp_path, 0, 3)) for _ in range(2))
    assert once.files[0].path != again.files[0].path
    archive = archive_of(tmp_path)
    assert offsets(archive, once) == offsets(archive, again) == [0, 1, 2]


def test_days_have_their_own_files(tmp_path: Path) -> None:
    events = [kept(0), msgspec.structs.replace(kept(1), received_ms=START_MS + DAY_MS)]
    write_journal(tmp_path / "journal", [list(map(msgspec.msgpack.encode, events))])
    done = write_slice(slice_job(tmp_path, 0, 2))
    assert [(file.day, file.rows) for file in done.files] == [("2025-11-16", 1), ("2025-11-17", 1)]


def test_large_payloads_have_their_own_files(tmp_path: Path) -> None:
    commit = [record(0), record(1, size=1_000), record(2)]
    write_journal(tmp_path / "journal", [commit])
    archive = archive_of(tmp_path)
    for _ in range(2):
        rows = written(archive, write_slice(slice_job(tmp_path, 0, 3, large_bytes=1_000)))
        ref = f"events/_payloads/day=2025-11-16/{NODE}-1"
        assert [row["payload_ref"] for row in rows] == [None, ref, None]
        assert (rows[1]["payload"], rows[1]["payload_bytes"]) == (None, 1_002)
        assert archive.storage.read_payload(ref) == kept(1, size=1_000).payload
    folder = tmp_path / "archive" / "events" / "_payloads" / "day=2025-11-16"
    assert os.listdir(folder) == [f"{NODE}-1"]


def test_what_cannot_be_read_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = msgspec.structs.replace(kept(1), attributes=b"\xff\xff")
    damaged = msgspec.msgpack.encode(["ledger", 1, 2, 3, 4, 5, 6, 7, b"\xc1"])
    commit = [record(0), msgspec.msgpack.encode(bad), b"what?", damaged, ledger_record(7, 2)]
    write_journal(tmp_path / "journal", [commit])
    done = write_slice(slice_job(tmp_path, 0, 5))
    archive = archive_of(tmp_path)
    row = written(archive, done)[1]
    assert (row["attributes"], row["properties"], row["payload"]) == (
        None,
        b"\xff\xff",
        bad.payload,
    )
    assert [row["offset"] for row in written(archive, done, "ledger")] == [4, 4]
    commit_batch([done], archive)
    (events,) = archive.events.snapshot().files
    assert (events.rows, events.unread) == (2, 1)
    unread = tmp_path / "archive" / "_unread"
    assert (unread / f"{NODE}-2").read_bytes() == b"what?"
    assert (unread / f"{NODE}-3").read_bytes() == damaged
    assert f"record 2 of {NODE} is neither event nor ledger" in caplog.text


def test_what_the_journal_has_retired_is_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_journal(journal, [records(n, n + 5) for n in range(0, 50, 5)], segment_bytes=1_000)
    retire(journal, 20)
    first = min(int(name.removesuffix(SEGMENT)) for name in os.listdir(journal) if SEGMENT in name)
    assert 0 < first <= 20
    done = write_slice(slice_job(tmp_path, 0, 50))
    assert done.lost == first
    archive = archive_of(tmp_path)
    assert offsets(archive, done) == list(range(first, 50))
    assert commit_batch([done], archive) is not None
    for table in archive.tables:
        assert table.snapshot().lost == {NODE: first}


def test_a_large_gap_takes_no_time_and_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = 1_000_000_000

    class Far(LocalReader):
        def read(self, offset: int, **_limits: int | None) -> Iterator[ReadResult]:
            yield Retired(offset, far)

    monkeypatch.setattr(journal_sink, "open_journal", lambda place, _node: Far(place))
    done = write_slice(slice_job(tmp_path, 0, far))
    assert (done.lost, done.files) == (far, [])
    archive = archive_of(tmp_path)
    batch = commit_batch([done], archive)
    assert batch is not None
    assert (batch.nodes[NODE].lost, batch.archived) == (far, {NODE: far})
    assert archive.ledger.snapshot().lost == {NODE: far}


def test_what_is_damaged_is_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_journal(journal, [records(0, 5), records(5, 10), records(10, 15)])
    (segment,) = journal.glob(f"*{SEGMENT}")
    data = bytearray(segment.read_bytes())
    data[data.index(kept(7).payload)] ^= 1
    segment.write_bytes(data)
    done = write_slice(slice_job(tmp_path, 0, 15))
    assert done.lost == 5
    assert offsets(archive_of(tmp_path), done) == [*range(5), *range(10, 15)]


def test_a_journal_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 5)])
    with pytest.raises(TablesError, match="ends at 5, expected records up to 9"):
        write_slice(slice_job(tmp_path, 0, 9))
    with pytest.raises(JournalError):
        write_slice(slice_job(tmp_path, 7, 9))


def test_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been read is written before the slice is at its end."""
    monkeypatch.setattr(journal_sink, "_CHUNK_RECORDS", 10)
    monkeypatch.setattr(journal_sink, "_HELD_BYTES", 5_000)
    write_journal(tmp_path / "journal", [records(n, n + 5, size=100) for n in range(0, 100, 5)])
    done = write_slice(slice_job(tmp_path, 0, 100))
    assert len(done.files) > 2
    assert offsets(archive_of(tmp_path), done) == list(range(100))


def test_nodes_are_told_apart_by_their_files(tmp_path: Path) -> None:
    log = SegmentLog(OsDisk(tmp_path / "journal"))
    event = KeptEvent(START_MS, "uav/1", "p", 0, -1, b"", b"x", 1)
    log.commit([msgspec.msgpack.encode(event)], now_ms=START_MS)
    log.close()
    paths = set()
    for node in ("a/b", "a-b", "../x", "ü"):
        (file,) = write_slice(slice_job(tmp_path, 0, 1, node=node)).files
        path = (tmp_path / "archive" / "events" / file.path).resolve()
        assert path.parent == tmp_path / "archive" / "events" / "day=2025-11-16"
        paths.add(path.name.rpartition("-")[0])
    assert len(paths) == 4
