from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.pipeline.archives import NODE, archive_slices, read
from tests.pipeline.asking import World, made
from tests.pipeline.journals import START_MS, kept, ledger_record, record, records, write_journal

from accord.core.queries.messages import EventQuery, PageQuery
from accord.pipeline import delta_log, maintenance
from accord.pipeline.delta_log import KEPT_H, Archive, DeltaLog, DeltaLogError, TableSnapshot
from accord.pipeline.maintenance import (
    Compaction,
    Maintenance,
    choose,
    compact,
    compact_on,
    expire,
    remove_payloads,
    remove_unread,
)
from accord.pipeline.tables import TableFile, TablesError, day_end_ms

DAY_MS = 86_400_000
TODAY_MS = START_MS + 3_600_000
LATER_MS = START_MS + 2 * DAY_MS
KB = 1 << 10
MB = 1 << 20


def file(first: int, size: int, **fields: Any) -> TableFile:
    known: dict[str, Any] = {
        "path": f"p{first}", "day": "2025-11-16", "rows": 10, "bytes": size, "node": "here",
        "first_offset": first, "last_offset": first,
    }  # fmt: skip
    return TableFile(**known | fields)


def snapshot_of(files: Iterable[TableFile]) -> TableSnapshot:
    return TableSnapshot(
        version=1, files=tuple(files), columns=(), archived={}, lost={}, engine=QueryBuilder()
    )


def chosen(files: list[TableFile], now_ms: int = TODAY_MS) -> list[list[int]]:
    found = choose(snapshot_of(files), now_ms)
    return [[each.first_offset for each in group] for group in found]


def test_few_files_are_left_alone() -> None:
    assert chosen([]) == []
    assert chosen([file(n, 10 * KB) for n in range(7)]) == []


def test_many_small_files_merge() -> None:
    assert chosen([file(n, 10 * KB) for n in range(8)]) == [list(range(8))]


def test_files_merge_with_those_of_about_their_size() -> None:
    files = [file(n, 10 * KB) for n in range(20)] + [file(100 + n, 3 * MB) for n in range(8)]
    assert chosen(files) == [list(range(20)), list(range(100, 108))]


@pytest.mark.parametrize("other", [{"day": "2025-11-17"}, {"node": "there"}])
def test_files_merge_with_their_like_only(other: dict[str, Any]) -> None:
    mine = [file(n, 10 * KB) for n in range(4)]
    assert chosen([*mine, *(file(10 + n, 10 * KB, **other) for n in range(4))]) == []


def test_when_a_day_is_over_its_files_merge() -> None:
    files = [file(1, 10 * KB), file(2, 50 * MB), file(3, 10 * MB)]
    assert chosen(files, START_MS + DAY_MS) == [[1, 2, 3]]
    assert chosen(files[:1], START_MS + DAY_MS) == []


def test_no_file_gets_too_large() -> None:
    files = [file(n, 50 * MB) for n in range(20)]
    assert chosen(files) == [[*range(n, n + 5)] for n in (0, 5, 10)]
    assert chosen([file(n, 140 * MB) for n in range(20)]) == []
    rows = [file(n, 10 * KB, rows=400_000) for n in range(20)]
    assert all(len(group) == 2 for group in chosen(rows))
    assert [len(group) for group in chosen([file(n, 1 * KB) for n in range(2_500)])] == [
        1_000, 1_000, 500,
    ]  # fmt: skip


def test_what_saves_most_comes_first() -> None:
    large = [file(n, 3 * MB) for n in range(8)]
    small = [file(100 + n, 10 * KB, node="there") for n in range(50)]
    assert [group[0] for group in chosen([*large, *small])] == [100, 0]


def test_a_row_is_written_again_only_a_few_times() -> None:
    """An hour of two batches a second, compacted every five seconds."""
    files: dict[int, TableFile] = {}
    written = total = most = 0
    for batch in range(7_200):
        files[batch] = file(batch, 20 * KB, rows=300)
        total += 300
        if batch % 10 == 0:
            for group in choose(snapshot_of(files.values()), TODAY_MS):
                rows = sum(each.rows for each in group)
                size = sum(each.bytes for each in group)
                for each in group:
                    del files[each.first_offset]
                first = group[0].first_offset
                files[first] = file(first, size, rows=rows)
                written += rows
        most = max(most, len(files))
    assert written / total < 5
    assert most < 60


def job(archive: Archive, table: DeltaLog, files: Iterable[TableFile]) -> Compaction:
    return Compaction(
        archive=archive.place,
        table=table.name,
        columns=table.snapshot().columns,
        files=tuple(files),
    )


def merge(archive: Archive, table: DeltaLog, files: Sequence[TableFile]) -> None:
    done = compact(job(archive, table, files))
    assert done is not None
    table.replace(files[: done.count], [done.file])


@settings(max_examples=8, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_compaction_keeps_just_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    tmp_path = tmp_path_factory.mktemp("compaction")
    count = sum(sizes)
    commit = [record(n, channel=("uav/2", "uav/1")[n % 2], size=n) for n in range(count)]
    commit[1] = ledger_record(5, 4)
    write_journal(tmp_path / "journal", [commit])
    ends = [sum(sizes[:number]) for number in range(1, len(sizes) + 1)]
    archive = archive_slices(tmp_path, *ends, declared={"altitude_m": "float"})
    for table in archive.tables:
        before = table.snapshot()
        rows = read(archive, table)
        for files in choose(before, LATER_MS):
            merge(archive, table, files)
        after = table.snapshot()
        assert read(archive, table) == rows
        assert after.archived == before.archived
        assert choose(after, LATER_MS) == []
    assert len(archive.events.snapshot().files) == 1


def test_files_of_several_declarations_merge(tmp_path: Path) -> None:
    """A row has the columns that it had; another's are null in it."""
    write_journal(tmp_path / "journal", [records(0, 30)])
    archive = Archive(tmp_path / "archive", [NODE])
    declarations: tuple[dict[str, str], ...] = (
        {},
        {"altitude_m": "integer"},
        {"altitude_m": "string", "platform": "string"},
    )
    for end, declared in zip((10, 20, 30), declarations, strict=True):
        archive_slices(tmp_path, end, archive=archive, declared=declared)
    merge(archive, archive.events, archive.events.snapshot().files)
    (merged,) = archive.events.snapshot().files
    rows = read(archive, archive.events)
    assert [row["altitude_m"] for row in rows] == [None] * 10 + [*range(10, 20)] + [None] * 10
    assert dict(rows[25]["attributes"])["altitude_m"]["integer"] == 25
    assert [row["platform"] is None for row in rows] == [True] * 20 + [False] * 10
    # The map has altitudes too, so the column doesn't tell the whole.
    assert merged.stats == {}


def test_a_compacted_file_is_sorted_and_knows_what_is_in_it(tmp_path: Path) -> None:
    commit = [record(n, channel=("uav/2", "uav/1")[n % 2]) for n in range(20)]
    write_journal(tmp_path / "journal", [commit])
    archive = archive_slices(tmp_path, 10, 20, declared={"altitude_m": "float"})
    merge(archive, archive.events, archive.events.snapshot().files)
    (merged,) = archive.events.snapshot().files
    with pq.ParquetFile(tmp_path / "archive" / "events" / merged.path) as source:
        rows = source.read()
        group = source.metadata.row_group(0)
        names = [source.schema_arrow.names[each.column_index] for each in group.sorting_columns]
        assert names == ["channel", "received", "offset"]
        columns = {
            group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)
        }
        assert columns["channel"].has_column_index
        assert columns["number"].has_offset_index
    keys = list(zip(rows["channel"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert (merged.rows, merged.node, merged.day) == (20, NODE, "2025-11-16")
    assert (merged.first_offset, merged.last_offset) == (0, 19)
    assert (merged.first_number, merged.last_number) == (0, 19)
    assert (merged.first_ms, merged.last_ms) == (START_MS, START_MS + 190)
    assert merged.channels == ("uav/1", "uav/2")
    assert merged.stats == {"altitude_m": (0.0, 19.0)}


def test_a_merge_holds_so_much_in_memory_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_journal(tmp_path / "journal", [records(0, 40, size=1_000)])
    archive = archive_slices(tmp_path, 10, 20, 30, 40)
    files = archive.events.snapshot().files
    monkeypatch.setattr(maintenance, "MAX_RAW_BYTES", 30_000)
    done = compact(job(archive, archive.events, files))
    assert done is not None
    assert 2 <= done.count < 4
    monkeypatch.setattr(maintenance, "MAX_RAW_BYTES", 100)
    assert compact(job(archive, archive.events, files)) is None


def test_a_file_that_is_not_what_the_log_says_is_an_error(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 20)])
    archive = archive_slices(tmp_path, 10, 20)
    files = archive.events.snapshot().files
    first, second = (tmp_path / "archive" / "events" / each.path for each in files)
    pq.write_table(pa.table({"offset": [1]}), first)
    with pytest.raises(TablesError, match="11 rows in 2 files, the log says otherwise"):
        compact(job(archive, archive.events, files))
    first.write_bytes(b"PAR1")
    with pytest.raises(TablesError, match=f"{files[0].path} can't be read"):
        compact(job(archive, archive.events, files))
    first.unlink()
    with pytest.raises(TablesError, match=f"{files[0].path} can't be read"):
        compact(job(archive, archive.events, files))
    assert second.exists()


def test_what_another_has_merged_is_not_merged_again(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 20)])
    archive = archive_slices(tmp_path, 10, 20)
    files = archive.events.snapshot().files
    merge(archive, archive.events, files)
    with pytest.raises(DeltaLogError, match="is not part of it any more"):
        merge(archive, archive.events, files)
    assert len(read(archive, archive.events)) == 20


# Retention.

OLD_DAY = "2025-11-16"


def two_days(tmp_path: Path, *, large_bytes: int = 1 << 20) -> Archive:
    events = [kept(n, size=100) for n in range(4)]
    later = [msgspec.structs.replace(each, received_ms=START_MS + DAY_MS) for each in events]
    commits = [list(map(msgspec.msgpack.encode, each)) for each in (events, later)]
    write_journal(tmp_path / "journal", [*commits, [ledger_record(1, 2)]])
    return archive_slices(tmp_path, 4, 9, large_bytes=large_bytes)


def test_whole_days_expire(tmp_path: Path) -> None:
    archive = two_days(tmp_path)
    end_ms = day_end_ms(OLD_DAY)
    assert expire(archive, end_ms - 1) == 0
    files = archive.events.snapshot().files
    assert expire(archive, end_ms) == 2  # of events and ledger
    assert [row["offset"] for row in read(archive, archive.events)] == [4, 5, 6, 7]
    assert archive.ledger.snapshot().files == ()
    assert expire(archive, end_ms) == 0
    assert archive.archived(NODE) == 9
    # Queries may be reading them.
    assert all((tmp_path / "archive" / "events" / each.path).exists() for each in files)


def aged(archive: Path, *paths: str, hours: float) -> None:
    for path in paths:
        then_s = time.time() - hours * 3600
        os.utime(archive / path, (then_s, then_s))


def test_what_left_the_tables_can_be_read_for_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = two_days(tmp_path)
    old = archive.events.snapshot().files[0]
    aged(tmp_path / "archive", f"events/{old.path}", hours=2 * KEPT_H)
    remove_earlier(archive, old, KEPT_H - 0.1, monkeypatch)
    assert archive.events.vacuum() == 0
    assert archive.storage.exists(f"events/{old.path}")


def remove_earlier(
    archive: Archive, file: TableFile, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had been so long ago."""
    then_ns = time.time_ns() - int(hours * 3_600_000) * 1_000_000
    with monkeypatch.context() as earlier:
        earlier.setattr(delta_log, "now_ms", lambda: then_ns // 1_000_000)
        archive.events.remove([file])


def test_what_left_the_tables_long_ago_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = two_days(tmp_path)
    old, new = archive.events.snapshot().files
    for each in (old, new):
        aged(tmp_path / "archive", f"events/{each.path}", hours=2 * KEPT_H)
    remove_earlier(archive, old, KEPT_H + 0.1, monkeypatch)
    assert archive.events.vacuum() == 1
    assert not archive.storage.exists(f"events/{old.path}")
    assert archive.storage.exists(f"events/{new.path}")
    version = archive.events.snapshot().version
    assert archive.events.vacuum() == 0
    assert archive.events.snapshot().version == version
    assert len(read(archive, archive.events)) == 4


def test_files_that_nobody_committed_go_when_they_are_old(tmp_path: Path) -> None:
    """A young one may be about to be committed. Payloads are none of the table's files."""
    archive = two_days(tmp_path, large_bytes=50)
    folder = tmp_path / "archive"
    left, young = (f"events/day=2025-11-16/{name}.parquet" for name in ("left", "young"))
    kept_files = [path for path in folder.rglob("*") if path.is_file()]
    for path in (left, young):
        (folder / path).write_bytes(b"x")
    aged(folder, *(str(path.relative_to(folder)) for path in kept_files), hours=KEPT_H + 1)
    aged(folder, left, hours=KEPT_H + 0.1)
    assert archive.events.vacuum() == 1
    assert not (folder / left).exists()
    assert (folder / young).exists()
    assert all(path.exists() for path in kept_files)
    assert [len(read(archive, table)) for table in archive.tables] == [8, 2]


def test_payloads_go_with_the_last_file_of_their_day(tmp_path: Path) -> None:
    archive = two_days(tmp_path, large_bytes=50)
    folder = tmp_path / "archive"
    former = folder / "payloads" / "day=2025-11-16"
    former.mkdir(parents=True)
    (former / "here-1").write_bytes(b"x")
    refs = [row["payload_ref"] for row in read(archive, archive.events)]
    assert len(refs) == 8
    assert None not in refs
    end_ms = day_end_ms(OLD_DAY)
    assert remove_payloads(archive, end_ms) == 0
    expire(archive, end_ms)
    assert remove_payloads(archive, end_ms - 1) == 0
    assert archive.storage.read_payload(refs[0]) == kept(0, size=100).payload
    assert remove_payloads(archive, end_ms) == 2
    with pytest.raises(TablesError, match="not kept any more"):
        archive.storage.read_payload(refs[0])
    assert archive.storage.read_payload(refs[4]) == kept(0, size=100).payload
    assert not former.exists()


def test_records_that_could_not_be_read_expire_by_their_age(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive", [NODE])
    remove_unread(archive, START_MS)
    for name, at_ms in (("here-1", START_MS), ("here-2", START_MS + 5)):
        archive.storage.write(f"_unread/{name}", b"x")
        os.utime(tmp_path / "archive" / "_unread" / name, ns=(at_ms * 1_000_000,) * 2)
    remove_unread(archive, START_MS + 1)
    assert os.listdir(tmp_path / "archive" / "_unread") == ["here-2"]


# The thread.


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    for number in range(8):
        world.publish([made(number, START_MS + number, "uav/a", payload=b"%d" % number)])
        world.follow(world.next)
    yield world
    world.close()


def test_compaction_in_a_task_keeps_every_event(spark: SparkSession, world: World) -> None:
    table = world.tables.events
    files = table.snapshot().files
    done = compact_on(spark, job(world.tables, table, files))
    assert done is not None
    assert (done.file.rows, done.count) == (8, 8)
    queries = world.queries()
    ask = EventQuery(channel="#")
    first = queries.page(PageQuery(id=1, ask=ask, rows=3))
    table.replace(files, [done.file])
    page = queries.page(PageQuery(id=1, ask=ask))
    assert list(page.events) == world.expected(ask)
    assert page.files == 1
    rest = queries.page(PageQuery(id=1, ask=ask, cursor=first.cursor))
    assert list(first.events + rest.events) == world.expected(ask)


def test_the_thread_compacts_and_goes_on_after_a_failure(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_LOOK_S", 0.01)
    monkeypatch.setattr(maintenance, "_PAUSE_S", 0.0)
    done = threading.Event()
    turns = 0

    def fail_first() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise OSError("no space")
        if len(world.tables.events.snapshot().files) == 1:
            done.set()

    keeper = Maintenance(spark, world.tables, retain_ms=None, also=(fail_first,))
    keeper.start()
    assert done.wait(60)
    keeper.stop(10.0)
    assert keeper.compactions == 1
    assert turns > 1


def test_a_damaged_file_delays_no_others(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_LOOK_S", 0.01)
    monkeypatch.setattr(maintenance, "_PAUSE_S", 0.0)
    path = Path(world.archive) / "events" / world.tables.events.snapshot().files[0].path
    path.write_bytes(b"")
    world.publish([made(n, START_MS + DAY_MS, "uav/a") for n in (8, 9)])
    world.follow(world.next - 1)
    world.follow(world.next)
    done = threading.Event()

    def look() -> None:
        if len(world.tables.events.snapshot().files) == 9:
            done.set()

    keeper = Maintenance(spark, world.tables, retain_ms=None, also=(look,))
    keeper.start()
    assert done.wait(60)
    keeper.stop(10.0)


def test_days_that_are_over_go(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_LOOK_S", 0.01)
    gone = threading.Event()

    def look() -> None:
        if not world.tables.events.snapshot().files:
            gone.set()

    keeper = Maintenance(spark, world.tables, retain_ms=1_000, also=(look,))
    keeper.start()
    assert gone.wait(60)
    keeper.stop(10.0)
