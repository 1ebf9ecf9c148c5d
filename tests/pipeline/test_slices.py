from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accord.pipeline.manifest import Manifest
from accord.pipeline.slices import Slice, SliceOptions, SlicesReader, decode_entries
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.pipeline.journals import records, retire, write_journal

import accord.pipeline
from accord.pipeline.journal_readers import JournalMismatchError


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def options(folder: Path, **more: Any) -> SliceOptions:
    journal, archive = str(folder / "journal"), str(folder / "archive")
    return SliceOptions(node="denver", journal=journal, archive=archive, **more)


def fill(folder: Path, first: int, end: int, *, size: int = 0) -> None:
    commits = [records(n, min(end, n + 50), size=size) for n in range(first, end, 50)]
    write_journal(folder / "journal", commits, segment_bytes=20_000)


def at(offset: int) -> dict[str, int]:
    return {"offset": offset}


def test_options_pass_through_spark_as_strings(tmp_path: Path) -> None:
    asked = options(tmp_path, max_rows=7, few_rows=1, declared={"altitude_m": "integer"})
    assert SliceOptions.from_spark(CaseInsensitiveDict(asked.to_spark())) == asked


def test_a_stream_begins_where_the_archive_ends(tmp_path: Path) -> None:
    reader = SlicesReader(options(tmp_path))
    assert reader.initialOffset() == at(0)
    Manifest(tmp_path / "archive").commit(moved={"denver": (0, 30), "other": (0, 40)})
    assert reader.initialOffset() == at(30)


def test_without_a_journal_there_is_nothing(tmp_path: Path) -> None:
    reader = SlicesReader(options(tmp_path))
    assert reader.latestOffset(at(0), reader.getDefaultReadLimit()) == at(0)


def test_all_that_is_committed_is_offered(tmp_path: Path) -> None:
    fill(tmp_path, 0, 500)
    reader = SlicesReader(options(tmp_path))
    assert reader.latestOffset(at(0), reader.getDefaultReadLimit()) == at(500)
    assert reader.latestOffset(at(500), reader.getDefaultReadLimit()) == at(500)


def test_a_batch_has_so_many_records_and_bytes_at_most(tmp_path: Path) -> None:
    fill(tmp_path, 0, 500, size=100)
    reader = SlicesReader(options(tmp_path, max_bytes=20_000))
    assert reader.latestOffset(at(100), ReadMaxRows(30)) == at(130)
    by_bytes = reader.latestOffset(at(0), ReadMaxRows(400))["offset"]
    assert 20 < by_bytes < 130
    assert reader.latestOffset(at(0), ReadAllAvailable()) == at(500)


def test_few_records_wait_for_more_or_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    reader = SlicesReader(options(tmp_path, few_rows=100, patience_ms=2_000), clock_s=clock)
    limit = reader.getDefaultReadLimit()
    fill(tmp_path, 0, 10)
    assert reader.latestOffset(at(0), limit) == at(10)  # nothing was before: no use in waiting
    fill(tmp_path, 10, 20)
    clock.now_s += 1.9
    assert reader.latestOffset(at(10), limit) == at(10)
    clock.now_s += 0.2
    assert reader.latestOffset(at(10), limit) == at(20)
    fill(tmp_path, 20, 130)
    assert reader.latestOffset(at(20), limit) == at(130)  # these are many


def test_who_reads_what_is_there_now_waits_for_nothing(tmp_path: Path) -> None:
    fill(tmp_path, 0, 10)
    reader = SlicesReader(options(tmp_path))
    reader.prepareForTriggerAvailableNow()
    fill(tmp_path, 10, 20)
    limit = ReadMaxRows(6)
    assert reader.latestOffset(at(0), limit) == at(6)
    assert reader.latestOffset(at(6), limit) == at(10)
    assert reader.latestOffset(at(10), limit) == at(10)


def test_slices_are_large_and_few(tmp_path: Path) -> None:
    fill(tmp_path, 0, 500)
    reader = SlicesReader(options(tmp_path, pieces=4, piece_rows=100))
    assert reader.partitions(at(0), at(99)) == [Slice(0, 99)]
    assert reader.partitions(at(100), at(300)) == [Slice(100, 200), Slice(200, 300)]
    assert len(reader.partitions(at(0), at(500))) == 4


def test_reading_a_slice_writes_its_files(tmp_path: Path) -> None:
    fill(tmp_path, 0, 50)
    reader = SlicesReader(options(tmp_path, declared={"altitude_m": "integer"}))
    (row,) = reader.read(Slice(3, 9))
    assert row[:2] == (3, 9)
    (entry,) = decode_entries(row[2])
    assert (entry.first_offset, entry.last_offset, entry.rows) == (3, 8, 6)
    assert entry.declared == {"altitude_m": "integer"}
    assert (tmp_path / "archive" / entry.path).is_file()
    assert Manifest(tmp_path / "archive").snapshot().files == ()


def test_long_records_are_cut_by_their_bytes(tmp_path: Path) -> None:
    fill(tmp_path, 0, 100, size=1_000)
    reader = SlicesReader(options(tmp_path, pieces=4, piece_bytes=40_000))
    assert len(reader.partitions(at(0), at(100))) == 2


def test_what_was_retired_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, 0, 500, size=200)
    retire(tmp_path / "journal", 400)
    reader = SlicesReader(options(tmp_path))
    slices = reader.partitions(at(0), at(500))
    assert 0 < slices[0].first <= 400
    assert slices[-1].next == 500
    assert reader.partitions(at(0), at(10)) == []


def test_a_journal_shorter_than_the_archive_is_another_one(tmp_path: Path) -> None:
    fill(tmp_path, 0, 10)
    reader = SlicesReader(options(tmp_path))
    with pytest.raises(
        JournalMismatchError, match=r"up to offset 30, but the journal .* ends at 10"
    ):
        reader.latestOffset(at(30), reader.getDefaultReadLimit())


def test_slices_flow_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 0, 500)
    Manifest(tmp_path / "archive").commit(moved={"denver": (0, 20)})
    accord.pipeline.register(spark)
    asked = options(tmp_path, max_rows=200, pieces=2, piece_rows=50).to_spark()
    seen: list[list[tuple[int, int]]] = []
    stream = spark.readStream.format("accord_slices").options(**asked).load()
    query = (
        stream.writeStream.foreachBatch(
            lambda rows, _: seen.append(sorted((row.first, row.next) for row in rows.collect()))
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(90)
    finally:
        query.stop()
    assert seen == [[(20, 120), (120, 220)], [(220, 320), (320, 420)], [(420, 500)]]
