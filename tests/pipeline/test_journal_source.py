from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.pipeline.archives import read, slice_job
from tests.pipeline.journals import ledger_record, records, retire, write_journal

import accord.pipeline
from accord.core.model.errors import AccordError
from accord.pipeline.delta_log import Archive, JournalPart
from accord.pipeline.journal_readers import JournalMismatchError
from accord.pipeline.journal_sink import SliceDone, commit_batch
from accord.pipeline.journal_source import Slice, SliceOptions, SlicesReader, decode_done
from accord.pipeline.tables import EVENTS, AttributeColumn


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


NODE = "denver"


def options(folder: Path, **more: Any) -> SliceOptions:
    known = {"journals": {NODE: str(folder / "journal")}, "archive": str(folder / "archive")}
    return SliceOptions(**known | more)


def fill(folder: Path, first: int, end: int, *, size: int = 0) -> None:
    commits = [records(n, min(end, n + 50), size=size) for n in range(first, end, 50)]
    write_journal(folder / "journal", commits, segment_bytes=20_000)


def at(offset: int) -> dict[str, int]:
    return {NODE: offset}


def test_options_pass_through_spark_as_strings(tmp_path: Path) -> None:
    column = AttributeColumn("altitude_m", "altitude_m_float", "float")
    asked = options(tmp_path, max_rows=7, few_rows=1, columns=(column,), declared=(column,))
    assert SliceOptions.from_spark(CaseInsensitiveDict(asked.to_spark())) == asked


def test_a_stream_begins_where_the_archive_ends(tmp_path: Path) -> None:
    reader = SlicesReader(options(tmp_path))
    assert reader.initialOffset() == at(0)
    archive = Archive(tmp_path / "archive", [NODE, "other"])
    for table in archive.tables:
        table.append([JournalPart(node=NODE, first=0, end=30, files=[])])
        table.append([JournalPart(node="other", first=0, end=40, files=[])])
    assert reader.initialOffset() == at(30)


def test_after_a_crash_between_the_tables_a_batch_ends_where_the_one_ahead_does(
    tmp_path: Path,
) -> None:
    fill(tmp_path, 0, 100)
    archive = Archive(tmp_path / "archive", [NODE])
    archive.events.append([JournalPart(node=NODE, first=0, end=30, files=[])])
    archive.events.append([JournalPart(node=NODE, first=30, end=70, files=[])])
    archive.ledger.append([JournalPart(node=NODE, first=0, end=30, files=[])])
    reader = SlicesReader(options(tmp_path, few_rows=0))
    limit = reader.getDefaultReadLimit()
    assert reader.initialOffset() == at(30)
    assert reader.latestOffset(at(30), limit) == at(70)
    assert reader.latestOffset(at(30), ReadMaxRows(10)) == at(40)
    assert reader.latestOffset(at(70), limit) == at(100)


def test_a_batch_that_is_cut_waits_for_nothing(tmp_path: Path) -> None:
    """Few records may be all that fit into a batch, where they are large."""
    fill(tmp_path, 0, 500, size=100)
    reader = SlicesReader(options(tmp_path, max_bytes=20_000))
    limit = reader.getDefaultReadLimit()
    first = reader.latestOffset(at(0), limit)
    assert first[NODE] < 200
    assert reader.latestOffset(first, limit) != first


@pytest.mark.parametrize("max_rows", [7, 50, 400])
def test_a_crash_between_the_tables_loses_and_repeats_nothing(
    tmp_path: Path, max_rows: int
) -> None:
    """Whatever batches the next driver makes."""
    commits = [[*records(n, n + 9), ledger_record(n, 2)] for n in range(0, 90, 10)]
    write_journal(tmp_path / "journal", commits)
    archive = Archive(tmp_path / "archive", [NODE])

    def drive(*, is_crashing: bool) -> None:
        reader = SlicesReader(options(tmp_path, few_rows=0))
        start = reader.initialOffset()
        while (end := reader.latestOffset(start, ReadMaxRows(max_rows))) != start:
            slices = reader.partitions(start, end)
            done = [decode_done(row[0]) for each in slices for row in reader.read(each)]
            if is_crashing:
                files = [file for each in done for file in each.files if file.table == EVENTS]
                batch = JournalPart(node=NODE, first=start[NODE], end=end[NODE], files=files)
                archive.events.append([batch])
                return
            assert commit_batch(done, archive) is not None
            start = end

    drive(is_crashing=True)
    drive(is_crashing=True)
    assert archive.archived(NODE) == 0
    drive(is_crashing=False)
    assert [row["offset"] for row in read(archive, archive.events)] == [
        n for n in range(90) if n % 10 != 9
    ]
    assert [row["offset"] for row in read(archive, archive.ledger)] == [
        n for n in range(90) if n % 10 == 9 for _ in range(2)
    ]


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
    by_bytes = reader.latestOffset(at(0), ReadMaxRows(400))[NODE]
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
    assert reader.partitions(at(0), at(99)) == [Slice(NODE, 0, 99)]
    assert reader.partitions(at(100), at(300)) == [
        Slice(NODE, 100, 200),
        Slice(NODE, 200, 300),
    ]
    assert len(reader.partitions(at(0), at(500))) == 4


def test_reading_a_slice_writes_its_files(tmp_path: Path) -> None:
    fill(tmp_path, 0, 50)
    job = slice_job(tmp_path, 3, 9, declared={"altitude_m": "integer"})
    reader = SlicesReader(options(tmp_path, columns=job.columns, declared=job.declared))
    ((encoded,),) = reader.read(Slice(NODE, 3, 9))
    done = decode_done(encoded)
    assert (done.node, done.first, done.next, done.lost) == (NODE, 3, 9, 0)
    (file,) = done.files
    assert (file.table, file.rows) == (EVENTS, 6)
    assert (tmp_path / "archive" / EVENTS / file.path).is_file()
    assert Archive(tmp_path / "archive", [NODE]).events.snapshot().files == ()


def journals(folder: Path, **more: Any) -> SlicesReader:
    """Of three nodes, with so many records each."""
    places = {}
    for node, count in (("a", 10), ("b", 300), ("c", 0)):
        places[node] = str(folder / node)
        if count:
            write_journal(folder / node, [records(n, n + 10) for n in range(0, count, 10)])
    return SlicesReader(options(folder, journals=places, **more))


def test_several_journals_share_a_batch(tmp_path: Path) -> None:
    reader = journals(tmp_path, pieces=2, piece_rows=50)
    start = reader.initialOffset()
    assert start == {"a": 0, "b": 0, "c": 0}
    assert reader.latestOffset(start, ReadMaxRows(60)) == {"a": 10, "b": 20, "c": 0}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"a": 10, "b": 300, "c": 0}
    assert reader.partitions(start, end) == [
        Slice("a", 0, 10),
        Slice("b", 0, 150),
        Slice("b", 150, 300),
    ]
    done = [
        decode_done(row[0]) for each in reader.partitions(start, end) for row in reader.read(each)
    ]
    archive = Archive(tmp_path / "archive", list("abc"))
    batch = commit_batch(done, archive)
    assert batch is not None
    assert {node: each.events for node, each in batch.nodes.items()} == {"a": 10, "b": 300}
    assert reader.initialOffset() == end
    assert [row["node"] for row in read(archive, archive.events)].count("a") == 10


def test_a_journal_that_cannot_be_reached_leaves_the_others_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journals(tmp_path)
    places = {"a": str(tmp_path / "a"), "far": "http://127.0.0.1:1"}
    reader = SlicesReader(options(tmp_path, journals=places, few_rows=0))
    for _ in range(2):
        end = reader.latestOffset({"a": 0, "far": 5}, reader.getDefaultReadLimit())
        assert end == {"a": 10, "far": 5}
        assert reader.partitions({"a": 0, "far": 5}, end) == [Slice("a", 0, 10)]
    assert caplog.text.count("the journal of far can't be reached") == 1
    alone = SlicesReader(options(tmp_path, journals={"far": "http://127.0.0.1:1"}))
    with pytest.raises(AccordError):
        alone.latestOffset({"far": 5}, alone.getDefaultReadLimit())


def test_long_records_are_cut_by_their_bytes(tmp_path: Path) -> None:
    fill(tmp_path, 0, 100, size=1_000)
    reader = SlicesReader(options(tmp_path, pieces=4, piece_bytes=40_000))
    assert len(reader.partitions(at(0), at(100))) == 2


def test_what_was_retired_comes_with_the_first_slice(tmp_path: Path) -> None:
    fill(tmp_path, 0, 500, size=200)
    retire(tmp_path / "journal", 400)
    reader = SlicesReader(options(tmp_path, pieces=2, piece_rows=10))
    first, second = reader.partitions(at(0), at(500))
    assert (first.first, second.next) == (0, 500)
    assert 400 < first.next == second.first
    assert reader.partitions(at(0), at(10)) == [Slice(NODE, 0, 10)]
    # What is gone is none of a batch's records.
    assert reader.latestOffset(at(0), ReadMaxRows(60))[NODE] > 400
    ((encoded,),) = reader.read(first)
    assert decode_done(encoded).lost > 300


def test_a_journal_shorter_than_the_archive_is_another_one(tmp_path: Path) -> None:
    fill(tmp_path, 0, 10)
    reader = SlicesReader(options(tmp_path))
    with pytest.raises(
        JournalMismatchError, match=r"up to offset 30, but the journal .* ends at 10"
    ):
        reader.latestOffset(at(30), reader.getDefaultReadLimit())


def done_of(row: Row) -> SliceDone:
    return decode_done(row.done)


def test_slices_flow_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 0, 500)
    for table in Archive(tmp_path / "archive", [NODE]).tables:
        table.append([JournalPart(node=NODE, first=0, end=20, files=[])])
    accord.pipeline.register(spark)
    asked = options(tmp_path, max_rows=200, pieces=2, piece_rows=50).to_spark()
    seen: list[list[tuple[int, int]]] = []
    stream = spark.readStream.format("accord").options(**asked).load()
    query = (
        stream.writeStream.foreachBatch(
            lambda rows, _: seen.append(
                sorted((each.first, each.next) for each in map(done_of, rows.collect()))
            )
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
