from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from accord.pipeline.slices import SliceJob, write_slice
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
from accord.journal.segment_log import SegmentLog
from accord.journal.segments import SEGMENT
from accord.pipeline import slices
from accord.pipeline.tables import FileEntry, TablesError, read_payload

DAY_MS = 86_400_000


def job(tmp_path: Path, first: int, end: int, **options: object) -> SliceJob:
    return SliceJob(
        node="here",
        journal=str(tmp_path / "journal"),
        first=first,
        next=end,
        archive=str(tmp_path / "archive"),
        **options,  # type: ignore[arg-type]
    )


def offsets(tmp_path: Path, files: list[FileEntry]) -> list[int]:
    found = []
    for file in files:
        if file.table != "lost":
            with pq.ParquetFile(tmp_path / "archive" / file.path) as read:
                found += read.read(["offset"])["offset"].to_pylist()
    return found


def test_a_slice_becomes_files_of_both_tables(tmp_path: Path) -> None:
    commits = [records(0, 5), [ledger_record(1, 3)], records(6, 9, channel="sea/1")]
    write_journal(tmp_path / "journal", commits)
    files = write_slice(job(tmp_path, 0, 9, declared={"altitude_m": "integer"}))
    uav, sea, ledger = files
    assert (uav.table, uav.group, uav.rows) == ("events", "uav", 5)
    assert (sea.group, sea.channels, sea.first_offset, sea.last_offset) == ("sea", ("sea/1",), 6, 8)
    assert (uav.first_ms, uav.last_ms) == (START_MS, START_MS + 40)
    assert (uav.first_number, uav.last_number) == (0, 4)
    assert uav.stats == {"altitude_m": (0, 4)}
    assert uav.path.startswith("events/day=2025-11-16/group=uav/here-")
    assert (ledger.table, ledger.rows, ledger.group, ledger.declared) == ("ledger", 3, "", {})
    assert (ledger.first_number, ledger.last_number) == (1, 3)
    assert (ledger.first_ms, ledger.last_ms) == (START_MS, START_MS + 3)
    with pq.ParquetFile(tmp_path / "archive" / uav.path) as read:
        rows = read.read().to_pylist()
    assert [row["altitude_m"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[3]["payload"] == kept(3).payload
    assert rows[3]["group"] == "uav"


def test_a_slice_has_just_its_offsets(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 7), records(7, 20)])
    assert offsets(tmp_path, write_slice(job(tmp_path, 3, 11))) == list(range(3, 11))
    assert write_slice(job(tmp_path, 5, 5)) == []


def test_a_slice_can_be_archived_again(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 3)])
    once, again = write_slice(job(tmp_path, 0, 3)), write_slice(job(tmp_path, 0, 3))
    assert once[0].path != again[0].path
    assert offsets(tmp_path, once) == offsets(tmp_path, again) == [0, 1, 2]


def test_days_have_their_own_files(tmp_path: Path) -> None:
    events = [kept(0), msgspec.structs.replace(kept(1), received_ms=START_MS + DAY_MS)]
    write_journal(tmp_path / "journal", [list(map(msgspec.msgpack.encode, events))])
    files = write_slice(job(tmp_path, 0, 2))
    assert [(file.day, file.rows) for file in files] == [("2025-11-16", 1), ("2025-11-17", 1)]


def test_groups_of_channels_are_not_more_than_some(tmp_path: Path) -> None:
    commit = [record(number, channel=f"c{number}/x") for number in range(100)]
    write_journal(tmp_path / "journal", [commit])
    files = write_slice(job(tmp_path, 0, 100))
    assert len(files) == 64
    assert (files[-1].group, files[-1].rows) == ("_other", 37)
    with pq.ParquetFile(tmp_path / "archive" / files[-1].path) as read:
        assert set(read.read(["group"])["group"].to_pylist()) == {"_other"}
    assert sorted(offsets(tmp_path, files)) == list(range(100))


def test_large_payloads_have_their_own_files(tmp_path: Path) -> None:
    commit = [record(0), record(1, size=1_000), record(2)]
    write_journal(tmp_path / "journal", [commit])
    for _ in range(2):
        (file,) = write_slice(job(tmp_path, 0, 3, large_bytes=1_000))
        with pq.ParquetFile(tmp_path / "archive" / file.path) as read:
            rows = read.read().to_pylist()
        assert [row["payload_ref"] for row in rows] == [
            None,
            "payloads/day=2025-11-16/here-1",
            None,
        ]
        assert rows[1]["payload"] is None
        assert rows[1]["payload_bytes"] == 1_002
        assert (
            read_payload(tmp_path / "archive", rows[1]["payload_ref"])
            == kept(1, size=1_000).payload
        )
    assert os.listdir(tmp_path / "archive" / "payloads" / "day=2025-11-16") == ["here-1"]


def test_what_cannot_be_read_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = msgspec.structs.replace(kept(1), attributes=b"\xff\xff")
    damaged = msgspec.msgpack.encode(["ledger", 1, 2, 3, 4, 5, 6, 7, b"\xc1"])
    commit = [record(0), msgspec.msgpack.encode(bad), b"what?", damaged, ledger_record(7, 2)]
    write_journal(tmp_path / "journal", [commit])
    events, ledger = write_slice(job(tmp_path, 0, 5))
    assert (events.rows, events.unread) == (2, 1)
    with pq.ParquetFile(tmp_path / "archive" / events.path) as read:
        row = read.read().to_pylist()[1]
    assert (row["attributes"], row["properties"], row["payload"]) == (
        None,
        b"\xff\xff",
        bad.payload,
    )
    assert (ledger.rows, ledger.first_offset) == (2, 4)
    unread = tmp_path / "archive" / "unread"
    assert (unread / "here-2").read_bytes() == b"what?"
    assert (unread / "here-3").read_bytes() == damaged
    assert "record 2 of here is neither event nor ledger" in caplog.text


def test_what_the_journal_has_retired_is_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_journal(journal, [records(n, n + 5) for n in range(0, 50, 5)], segment_bytes=1_000)
    retire(journal, 20)
    first = min(int(name.removesuffix(SEGMENT)) for name in os.listdir(journal) if SEGMENT in name)
    assert 0 < first <= 20
    lost, events = write_slice(job(tmp_path, 0, 50))
    assert (lost.table, lost.node, lost.rows) == ("lost", "here", first)
    assert offsets(tmp_path, [events]) == list(range(first, 50))


def test_what_is_damaged_is_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_journal(journal, [records(0, 5), records(5, 10), records(10, 15)])
    (segment,) = journal.glob(f"*{SEGMENT}")
    data = bytearray(segment.read_bytes())
    data[data.index(kept(7).payload)] ^= 1
    segment.write_bytes(data)
    files = write_slice(job(tmp_path, 0, 15))
    lost = [file for file in files if file.table == "lost"]
    assert [(each.first_offset, each.last_offset, each.rows) for each in lost] == [(5, 9, 5)]
    assert offsets(tmp_path, files) == [*range(5), *range(10, 15)]


def test_a_journal_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 5)])
    with pytest.raises(TablesError, match="ends at 5, expected records up to 9"):
        write_slice(job(tmp_path, 0, 9))
    with pytest.raises(JournalError):
        write_slice(job(tmp_path, 7, 9))


def test_a_column_with_an_event_columns_name_is_refused(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 5)])
    with pytest.raises(TablesError, match="'Payload': there is a column 'payload'"):
        write_slice(job(tmp_path, 0, 5, declared={"Payload": "string"}))


def test_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been read is written before the slice is at its end."""
    monkeypatch.setattr(slices, "_CHUNK_RECORDS", 10)
    monkeypatch.setattr(slices, "_HELD_BYTES", 5_000)
    write_journal(tmp_path / "journal", [records(n, n + 5, size=100) for n in range(0, 100, 5)])
    files = write_slice(job(tmp_path, 0, 100))
    assert len(files) > 2
    assert offsets(tmp_path, files) == list(range(100))


def test_nodes_are_told_apart_by_their_files(tmp_path: Path) -> None:
    log = SegmentLog(OsDisk(tmp_path / "journal"))
    event = KeptEvent(START_MS, "uav/1", "p", 0, -1, b"", b"x", 1)
    log.commit([msgspec.msgpack.encode(event)], now_ms=START_MS)
    log.close()
    paths = set()
    for node in ("a/b", "a-b", "../x", "ü"):
        (file,) = write_slice(msgspec.structs.replace(job(tmp_path, 0, 1), node=node))
        assert file.node == node
        path = (tmp_path / "archive" / file.path).resolve()
        assert path.parent == tmp_path / "archive" / "events" / "day=2025-11-16" / "group=uav"
        paths.add(path.name.rpartition("-")[0])
    assert len(paths) == 4
