"""An archive as it was written before its tables were Delta tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.archives import NODE, archive_slices, read
from tests.pipeline.journals import START_MS, ledger_record, records, write_journal

from accord.journal.reader import Reader
from accord.journal.record import Batch
from accord.pipeline import conversion
from accord.pipeline.conversion import ConversionError, convert
from accord.pipeline.decode.rows import decode_batch, event_columns, ledger_columns
from accord.pipeline.delta_log import Archive
from accord.pipeline.maintenance import Compaction, compact
from accord.pipeline.tables import AttributeColumn

DAY = "2025-11-16"
END = 40
DECLARATIONS: tuple[dict[str, str], ...] = (
    {},
    {"altitude_m": "integer"},
    {"altitude_m": "string", "platform": "string"},
)


class Former:
    """Writes the journal of a folder into its former archive, a batch of ten records at a time."""

    def __init__(self, folder: Path) -> None:
        self.archive = folder / "archive"
        self._journal = folder / "journal"
        self._version = 0

    def write(self, first: int, end: int, declared: Mapping[str, str], **more: Any) -> None:
        files = []
        for batch in Reader(self._journal).read(first, max_records=end - first):
            assert isinstance(batch, Batch)
            decoded = decode_batch(batch)
            events = event_columns(decoded.events, decoded.event_offsets, NODE, declared)
            group = pa.array(["uav"] * len(events), pa.string())
            rows = pa.Table.from_batches([events]).append_column("group", group)
            files.append(self._file("events", "uav", rows, declared))
            if decoded.ledger:
                batch_rows = ledger_columns(decoded.ledger, decoded.ledger_offsets, NODE)
                ledger = pa.Table.from_batches([batch_rows]).drop_columns(["last_number"])
                files.append(self._file("ledger", "", ledger, {}))
        self.enter({"added": files, "archived": {NODE: end}} | more)

    def enter(self, entry: dict[str, Any], *, checkpoint: int = 0) -> None:
        raw = msgspec.json.encode({"at_ms": START_MS} | entry)
        if checkpoint:
            name = f"{checkpoint:016d}.checkpoint.json"
        else:
            self._version += 1
            name = f"{self._version:016d}.json"
        path = self.archive / "_manifest" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode({"crc32": crc32(raw), "entry": msgspec.Raw(raw)}))

    def _file(
        self, table: str, group: str, rows: pa.Table, declared: Mapping[str, str]
    ) -> dict[str, Any]:
        first, last = rows["offset"][0].as_py(), rows["offset"][-1].as_py()
        folder = f"{table}/day={DAY}" + (f"/group={group}" if group else "")
        path = f"{folder}/{NODE}-{first:016d}-0123456789ab.parquet"
        (self.archive / folder).mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, self.archive / path)
        numbers = rows["number"].to_pylist()
        return {
            "table": table, "path": path, "day": DAY, "group": group, "rows": len(rows),
            "bytes": (self.archive / path).stat().st_size, "raw_bytes": rows.nbytes, "node": NODE,
            "first_ms": START_MS, "last_ms": START_MS + 1_000, "first_offset": first,
            "last_offset": last, "first_number": min(numbers), "last_number": max(numbers),
            "channels": ["uav/imagery"], "declared": dict(declared),
        }  # fmt: skip


@pytest.fixture
def former(tmp_path: Path) -> Former:
    commits = [records(n, n + 10) for n in range(0, 30, 10)]
    write_journal(tmp_path / "journal", [*commits, [*records(30, 39), ledger_record(30, 3)]])
    former = Former(tmp_path)
    for number, declared in enumerate((*DECLARATIONS, DECLARATIONS[0])):
        former.write(10 * number, 10 * number + 10, declared, lost={NODE: 7} if number else {})
    payload = former.archive / "payloads" / f"day={DAY}" / f"{NODE}-3"
    payload.parent.mkdir(parents=True)
    payload.write_bytes(b"large")
    (former.archive / "unread").mkdir()
    (former.archive / "unread" / f"{NODE}-99").write_bytes(b"what?")
    return former


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def check(archive: Archive) -> None:
    """It has all that the journal had, as it had been archived."""
    events, ledger = (table.snapshot() for table in archive.tables)
    assert events.archived == ledger.archived == {NODE: END}
    assert events.lost == ledger.lost == {NODE: 7}
    assert events.columns == (
        AttributeColumn("altitude_m", "altitude_m", "integer"),
        AttributeColumn("altitude_m", "altitude_m_string", "string"),
        AttributeColumn("platform", "platform", "string"),
    )
    query = (
        "SELECT number, altitude_m, altitude_m_string, platform, attributes, payload, channel, day"
        " FROM events ORDER BY number"
    )
    rows = pa.table(events.engine.execute(query).read_all()).to_pylist()
    assert [row["number"] for row in rows] == list(range(39))
    assert [row["altitude_m"] for row in rows] == [None] * 10 + [*range(10, 20)] + [None] * 19
    assert {row["altitude_m_string"] for row in rows} == {None}
    assert [row["platform"] for row in rows[20:30]] == [f"uav-{n % 7}" for n in range(20, 30)]
    in_map = [n for n, row in enumerate(rows) if "altitude_m" in dict(row["attributes"])]
    assert in_map == [*range(10), *range(20, 39)]
    assert {str(row["day"]) for row in rows} == {DAY}
    outcomes = ledger.engine.execute("SELECT number, outcome FROM ledger ORDER BY number")
    assert pa.table(outcomes.read_all())["number"].to_pylist() == [30, 31, 32]


def test_other_places_are_left_alone(tmp_path: Path) -> None:
    assert convert(Archive(tmp_path / "none", [NODE]).storage) == 0
    write_journal(tmp_path / "journal", [records(0, 5)])
    archive = archive_slices(tmp_path, 5)
    before = files_of(tmp_path)
    assert convert(archive.storage) == 0
    assert files_of(tmp_path) == before


def test_a_former_archive_is_converted_where_it_is(former: Former) -> None:
    archive = Archive(former.archive, [NODE])
    before = {path: os.stat(former.archive / path).st_ino for path in files_of(former.archive)}
    assert convert(archive.storage) == 5
    check(archive)
    # Only what has a column that is another's now is written again.
    files = [f"events/{each.path}" for each in archive.events.snapshot().files]
    assert len(set(files) & before.keys()) == 3
    for path, inode in before.items():
        now = path.replace("_manifest/", "_manifest.converted/").replace("unread/", "_unread/")
        assert os.stat(former.archive / now).st_ino == inode
    assert archive.storage.read_payload(f"payloads/day={DAY}/{NODE}-3") == b"large"


def test_it_is_converted_once(former: Former) -> None:
    archive = Archive(former.archive, [NODE])
    convert(archive.storage)
    before = files_of(former.archive)
    assert convert(archive.storage) == 0
    assert files_of(former.archive) == before


def test_statistics_tell_what_the_manifest_knew(former: Former) -> None:
    archive = Archive(former.archive, [NODE])
    convert(archive.storage)
    files = sorted(archive.events.snapshot().files, key=lambda each: each.first_offset)
    first = files[0]
    assert (first.node, first.day, first.rows, first.channels) == (
        NODE, DAY, 10, ("uav/imagery", "uav/imagery")
    )  # fmt: skip
    assert [(each.first_offset, each.last_offset) for each in files] == [
        (0, 9), (10, 19), (20, 29), (30, 38)
    ]  # fmt: skip
    assert [(each.first_number, each.last_number) for each in files][3] == (30, 38)
    assert (first.first_ms, first.last_ms) == (START_MS, START_MS + 1_000)
    assert first.stats == {}  # whether the map has values of these attributes is not known
    (ledger,) = archive.ledger.snapshot().files
    assert (ledger.first_number, ledger.last_number) == (0, 32)
    assert (ledger.first_ms, ledger.last_ms) == (START_MS, START_MS + 1_000)


def test_a_converted_archive_is_appended_to_and_compacted(former: Former) -> None:
    folder = former.archive.parent
    archive = Archive(former.archive, [NODE])
    convert(archive.storage)
    write_journal(folder / "journal", [records(40, 50)])
    archive_slices(folder, 50, archive=archive, declared={"altitude_m": "integer"})
    before = read(archive, archive.events)
    snapshot = archive.events.snapshot()
    job = Compaction(
        archive=archive.place, table="events", columns=snapshot.columns, files=snapshot.files
    )
    done = compact(job)
    assert done is not None
    archive.events.replace(snapshot.files, [done.file])
    after = read(archive, archive.events)
    assert [row["number"] for row in after] == [*range(39), *range(40, 50)]
    for mine, theirs in zip(after, before, strict=True):
        assert {name: value for name, value in mine.items() if theirs.get(name) is not None} == {
            name: value
            for name, value in theirs.items()
            if name not in ("day", "group") and value is not None
        }


class Killed(BaseException):
    pass


def die(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, number: int, *, is_after: bool
) -> None:
    """In the so-manieth call of this."""
    real = getattr(where, name)
    left = [number]

    def act(*arguments: Any, **options: Any) -> Any:
        if left[0] == 0 and not is_after:
            raise Killed
        done = real(*arguments, **options)
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return done

    monkeypatch.setattr(where, name, act)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize(
    ("where", "name", "number"),
    [
        (conversion, "create_table_with_add_actions", 0),
        (conversion, "create_table_with_add_actions", 1),
        (conversion, "write_file", 0),
        (Path, "rename", 0),
        (Path, "rename", 1),
    ],
)
def test_a_conversion_that_is_killed_is_finished_by_the_next(
    former: Former,
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    name: str,
    number: int,
    *,
    is_after: bool,
) -> None:
    with monkeypatch.context() as dying:
        die(dying, where, name, number, is_after=is_after)
        with pytest.raises(Killed):
            convert(Archive(former.archive, [NODE]).storage)
    archive = Archive(former.archive, [NODE])
    convert(archive.storage)
    check(archive)
    assert not (former.archive / "_manifest").exists()
    assert (former.archive / "_unread" / f"{NODE}-99").read_bytes() == b"what?"


@pytest.mark.parametrize("cut", [0, 200, -1])
def test_a_table_whose_first_log_entry_is_incomplete_is_made_again(
    former: Former, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """After a power cut; and where the entry ends with a line."""
    with monkeypatch.context() as dying:
        die(dying, conversion, "create_table_with_add_actions", 0, is_after=True)
        with pytest.raises(Killed):
            convert(Archive(former.archive, [NODE]).storage)
    (entry,) = (former.archive / "events" / "_delta_log").glob("*.json")
    data = entry.read_bytes()
    entry.write_bytes(data[:cut] if cut >= 0 else data[: data.rindex(b"\n")])
    archive = Archive(former.archive, [NODE])
    convert(archive.storage)
    check(archive)


def test_checkpoints_and_removed_files_count(former: Former) -> None:
    manifest = former.archive / "_manifest"
    entries = [
        msgspec.json.decode(path.read_bytes())["entry"] for path in sorted(manifest.glob("*.json"))
    ]
    added = [file for entry in entries[:3] for file in entry["added"]]
    former.enter({"added": added, "archived": {NODE: 30}, "lost": {NODE: 7}}, checkpoint=3)
    (manifest / "0000000000000001.json").unlink()
    archive = Archive(former.archive, [NODE])
    former.enter({"removed": {added[0]["path"]: START_MS}})
    assert convert(archive.storage) == 4
    assert [row["number"] for row in read(archive, archive.events)] == list(range(10, 39))


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff", b'{"crc32":1,"entry":{"at_ms":1}}', None])
def test_a_damaged_manifest_is_told_and_nothing_changes(
    former: Former, damage: bytes | None
) -> None:
    path = former.archive / "_manifest" / "0000000000000002.json"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    before = files_of(former.archive)
    with pytest.raises(ConversionError, match=str(path)):
        convert(Archive(former.archive, [NODE]).storage)
    assert files_of(former.archive) == before
    assert not (former.archive / "events" / "_delta_log").exists()
