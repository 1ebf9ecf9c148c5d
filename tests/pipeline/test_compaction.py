from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from accord.pipeline.housekeeping import choose, compact
from accord.pipeline.manifest import Manifest, Snapshot
from accord.pipeline.slices import SliceJob, write_slice
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.journals import START_MS, ledger_record, record, records, write_journal

from accord.pipeline.tables import FileEntry, TablesError

DAY_MS = 86_400_000
TODAY_MS = START_MS + 3_600_000
KB = 1 << 10
MB = 1 << 20


def file(first: int, raw_bytes: int, **fields: Any) -> FileEntry:
    known: dict[str, Any] = {
        "table": "events", "path": f"p{first}", "day": "2025-11-16", "group": "uav", "rows": 10,
        "bytes": raw_bytes // 4, "raw_bytes": raw_bytes, "node": "here", "first_offset": first,
        "last_offset": first,
    }  # fmt: skip
    return FileEntry(**known | fields)


def chosen(files: list[FileEntry], now_ms: int = TODAY_MS) -> list[list[int]]:
    found = choose(Snapshot(files=tuple(files)), now_ms)
    return [[each.first_offset for each in group] for group in found]


def test_few_files_are_left_alone() -> None:
    assert chosen([]) == []
    assert chosen([file(n, 10 * KB) for n in range(7)]) == []


def test_many_small_files_merge() -> None:
    assert chosen([file(n, 10 * KB) for n in range(8)]) == [list(range(8))]


def test_files_merge_with_those_of_about_their_size() -> None:
    files = [file(n, 10 * KB) for n in range(20)] + [file(100 + n, 3 * MB) for n in range(8)]
    assert chosen(files) == [list(range(20)), list(range(100, 108))]


@pytest.mark.parametrize(
    "other",
    [
        {"table": "ledger"},
        {"day": "2025-11-17"},
        {"group": "sea"},
        {"node": "there"},
        {"declared": {"a": "integer"}},
    ],
)
def test_files_merge_with_their_like_only(other: dict[str, Any]) -> None:
    mine = [file(n, 10 * KB) for n in range(4)]
    assert chosen([*mine, *(file(10 + n, 10 * KB, **other) for n in range(4))]) == []


def test_when_a_day_is_over_its_files_merge() -> None:
    files = [file(1, 10 * KB), file(2, 50 * MB), file(3, 10 * MB)]
    assert chosen(files, START_MS + DAY_MS) == [[1, 2, 3]]
    assert chosen(files[:1], START_MS + DAY_MS) == []


def test_no_file_gets_too_large() -> None:
    files = [file(n, 50 * MB) for n in range(20)]
    assert chosen(files) == [[n, n + 1] for n in range(0, 18, 2)]
    assert chosen([file(n, 70 * MB) for n in range(20)]) == []
    rows = [file(n, 10 * KB, rows=400_000) for n in range(20)]
    assert all(len(group) == 2 for group in chosen(rows))
    assert [len(group) for group in chosen([file(n, 1 * KB) for n in range(2_500)])] == [
        1_000, 1_000, 500,
    ]  # fmt: skip


def test_what_saves_most_comes_first() -> None:
    large = [file(n, 3 * MB) for n in range(8)]
    small = [file(100 + n, 10 * KB, group="sea") for n in range(50)]
    assert [group[0] for group in chosen([*large, *small])] == [100, 0]


def test_a_row_is_written_again_only_a_few_times() -> None:
    """An hour of two batches a second, compacted every five seconds."""
    files: dict[int, tuple[FileEntry, int]] = {}
    written = total = most = 0
    for batch in range(7_200):
        files[batch] = (file(batch, 100 * KB, rows=300), 0)
        total += 300
        if batch % 10 == 0:
            for group in choose(Snapshot(files=tuple(f for f, _ in files.values())), TODAY_MS):
                rows = sum(each.rows for each in group)
                size = sum(each.raw_bytes for each in group)
                for each in group:
                    del files[each.first_offset]
                first = group[0].first_offset
                files[first] = (file(first, size, rows=rows), 0)
                written += rows
        most = max(most, len(files))
    assert written / total < 5
    assert most < 60


def archive(tmp_path: Path, slices: list[tuple[int, int]]) -> Manifest:
    manifest = Manifest(tmp_path / "archive")
    for first, end in slices:
        job = SliceJob(
            node="here",
            journal=str(tmp_path / "journal"),
            first=first,
            next=end,
            archive=str(tmp_path / "archive"),
            declared={"altitude_m": "float"},
        )
        manifest.commit(added=write_slice(job), moved={"here": (first, end)})
    return manifest


def rows_of(manifest: Manifest, files: tuple[FileEntry, ...] | list[FileEntry]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in files:
        with pq.ParquetFile(manifest.archive / each.path) as read:
            found.update(map(repr, read.read().to_pylist()))
    return found


@settings(max_examples=5, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_compaction_keeps_just_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    tmp_path = tmp_path_factory.mktemp("compaction")
    count = sum(sizes)
    commit = [record(n, channel=("uav/2", "uav/1")[n % 2], size=n) for n in range(count)]
    commit[1] = ledger_record(5, 4)
    write_journal(tmp_path / "journal", [commit])
    ends = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    manifest = archive(tmp_path, list(pairwise(ends)))
    before = manifest.snapshot()
    for files in choose(before, START_MS + 2 * DAY_MS):
        manifest.commit(
            added=compact(manifest.archive, files), removed=[each.path for each in files]
        )
    after = manifest.snapshot()
    assert rows_of(manifest, before.files) == rows_of(manifest, after.files)
    assert sorted(each.table for each in after.files) == ["events", "ledger"]
    assert choose(after, START_MS + 2 * DAY_MS) == []
    assert after.archived == before.archived


def test_a_compacted_file_is_sorted_and_knows_what_is_in_it(tmp_path: Path) -> None:
    commit = [record(n, channel=("uav/2", "uav/1")[n % 2]) for n in range(20)]
    write_journal(tmp_path / "journal", [commit])
    manifest = archive(tmp_path, [(0, 10), (10, 20)])
    (merged,) = compact(manifest.archive, manifest.snapshot().files)
    with pq.ParquetFile(manifest.archive / merged.path) as read:
        rows = read.read()
        group = read.metadata.row_group(0)
        assert group.num_columns == len(read.schema)
        assert group.column(1).has_column_index
        assert [each.column_index for each in group.sorting_columns] == [3, 5, 1]
    keys = list(zip(rows["channel"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert (merged.rows, merged.first_offset, merged.last_offset) == (20, 0, 19)
    assert (merged.first_number, merged.last_number) == (0, 19)
    assert (merged.first_ms, merged.last_ms) == (START_MS, START_MS + 190)
    assert merged.channels == ("uav/1", "uav/2")
    assert merged.stats == {"altitude_m": (0.0, 19.0)}


def test_files_that_differ_do_not_merge(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match="expected files of one table"):
        compact(tmp_path, [file(1, 1), file(2, 1, day="2025-11-17")])


def test_a_file_that_is_not_what_the_manifest_says_is_an_error(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 20)])
    manifest = archive(tmp_path, [(0, 10), (10, 20)])
    first, second = manifest.snapshot().files
    pq.write_table(pa.table({"offset": [1]}), manifest.archive / first.path)
    with pytest.raises(TablesError, match="can't be read"):
        compact(manifest.archive, [first, second])
    (manifest.archive / first.path).write_bytes(b"PAR1")
    with pytest.raises(TablesError, match="can't be read"):
        compact(manifest.archive, [first, second])
    (manifest.archive / first.path).write_bytes((manifest.archive / second.path).read_bytes())
    shorter = FileEntry(
        **{name: getattr(first, name) for name in first.__struct_fields__} | {"rows": 3}
    )
    with pytest.raises(TablesError, match="20 rows in 2 files, the manifest says otherwise"):
        compact(manifest.archive, [shorter, second])
