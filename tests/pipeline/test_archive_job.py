from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.archives import NODE, read, slice_job
from tests.pipeline.journals import ledger_record, records, retire, write_journal

from accord.core.queries.messages import StartPipeline
from accord.journal.disk import OsDisk
from accord.journal.retention import needed_from
from accord.pipeline.archive_job import ArchiveJob, Archiver
from accord.pipeline.delta_log import Archive, DeltaLog, JournalPart
from accord.pipeline.driver_lock import DriverLock
from accord.pipeline.journal_sink import BatchDone, write_slice
from accord.pipeline.journal_source import SCHEMA

PATIENCE_S = 90


def start(folder: Path, *, journal: str = "journal") -> StartPipeline:
    return StartPipeline(
        node=NODE,
        journal=str(folder / journal),
        archive=str(folder / "archive"),
        work=str(folder / "work"),
        interval_ms=50,
        declared={"altitude_m": "integer"},
    )


def wait_until(is_true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@contextmanager
def archiving(
    spark: SparkSession, asked: StartPipeline, done: list[BatchDone] | None = None
) -> Iterator[ArchiveJob]:
    job = ArchiveJob(spark, asked, archive_of(asked), (done if done is not None else []).append)
    job.start()
    try:
        yield job
    finally:
        job.stop(PATIENCE_S)


def archive_of(asked: StartPipeline) -> Archive:
    return Archive(asked.archive, list(asked.journals_by_node()))


def archived(asked: StartPipeline) -> int:
    return archive_of(asked).archived(asked.node)


def numbers(asked: StartPipeline) -> list[int]:
    archive = archive_of(asked)
    return sorted(row["number"] for row in read(archive, archive.events))


def test_what_is_kept_gets_into_the_archive_once(spark: SparkSession, tmp_path: Path) -> None:
    asked = start(tmp_path)
    journal = write_journal(tmp_path / "journal", [records(0, 300), [ledger_record(0, 3)]])
    done: list[BatchDone] = []
    with archiving(spark, asked, done) as job:
        wait_until(lambda: archived(asked) == 301)
        write_journal(journal, [records(301, 600)])
        wait_until(lambda: archived(asked) == 600)
        wait_until(lambda: sum(each.nodes[NODE].events for each in done) == 599)
        assert job.problem == ""
    assert numbers(asked) == [*range(300), *range(301, 600)]
    archive = archive_of(asked)
    assert len(read(archive, archive.ledger)) == 3
    assert done[-1].archived == {NODE: 600}
    of_node = [each.nodes[NODE] for each in done]
    assert sum(each.ledger_rows for each in of_node) == 3
    assert sum(events for events, _ in of_node[0].use.values()) == of_node[0].events
    assert needed_from(OsDisk(journal)) == 600  # what the journal may now retire
    # Another driver goes on where this one stopped, with nothing but the tables to tell it.
    write_journal(journal, [records(600, 700)])
    with archiving(spark, asked):
        wait_until(lambda: archived(asked) == 700)
    assert numbers(asked) == [*range(300), *range(301, 700)]


def test_a_batch_done_twice_is_in_the_archive_once(spark: SparkSession, tmp_path: Path) -> None:
    asked = start(tmp_path)
    write_journal(tmp_path / "journal", [records(0, 20)])
    encode = msgspec.msgpack.encode
    rows = [(encode(write_slice(slice_job(tmp_path, *cut))),) for cut in ((10, 20), (0, 10))]
    slices = spark.createDataFrame(rows, SCHEMA)
    archiver = Archiver(journals=asked.journals_by_node(), archive=asked.archive)
    archive = archive_of(asked)
    first_done = archiver.commit_batch(slices, archive)
    assert first_done is not None
    assert (first_done.nodes[NODE].events, first_done.archived) == (20, {NODE: 20})
    assert archiver.commit_batch(slices, archive) is None
    archiver(slices, 0)
    assert numbers(asked) == [*range(20)]


def test_a_driver_that_died_between_the_tables_is_followed_by_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    asked = start(tmp_path)
    journal = write_journal(tmp_path / "journal", [records(0, 20), [ledger_record(0, 3)]])
    done = write_slice(slice_job(tmp_path, 0, 21, declared=asked.declared))
    files = [file for file in done.files if file.table == "events"]
    archive_of(asked).events.append([JournalPart(node=NODE, first=0, end=21, files=files)])
    write_journal(journal, [records(21, 40)])
    with archiving(spark, asked) as job:
        wait_until(lambda: archived(asked) == 40)
        assert job.problem == ""
    assert numbers(asked) == [*range(20), *range(21, 40)]
    archive = archive_of(asked)
    assert len(read(archive, archive.ledger)) == 3
    assert needed_from(OsDisk(journal)) == 40


def test_the_journals_of_a_site_go_into_one_archive(spark: SparkSession, tmp_path: Path) -> None:
    places = {node: str(tmp_path / node) for node in ("a", "b")}
    for node, count in (("a", 50), ("b", 300)):
        write_journal(tmp_path / node, [records(0, count)])
    asked = msgspec.structs.replace(start(tmp_path), node="site", journals=places)
    archive = archive_of(asked)
    with archiving(spark, asked) as job:
        wait_until(lambda: [archive.archived(node) for node in places] == [50, 300])
        write_journal(tmp_path / "a", [records(50, 70)])
        wait_until(lambda: archive.archived("a") == 70)
        assert job.problem == ""
    rows = read(archive, archive.events)
    found = [(row["node"], row["number"]) for row in rows]
    assert sorted(found) == [("a", n) for n in range(70)] + [("b", n) for n in range(300)]
    assert [needed_from(OsDisk(Path(place))) for place in places.values()] == [70, 300]


def test_what_was_retired_too_early_is_counted_and_passed(
    spark: SparkSession, tmp_path: Path
) -> None:
    asked = start(tmp_path)
    commits = [records(n, n + 50, size=100) for n in range(0, 300, 50)]
    journal = write_journal(tmp_path / "journal", commits, segment_bytes=5_000)
    retire(journal, 200)
    with archiving(spark, asked) as job:
        wait_until(lambda: archived(asked) == 300)
        assert job.problem == ""
    kept = numbers(asked)
    assert 0 < kept[0] <= 200
    assert kept == [*range(kept[0], 300)]
    for table in archive_of(asked).tables:
        assert table.snapshot().lost == {NODE: kept[0]}


def test_another_journal_is_told_and_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", [records(0, 20)])
    with archiving(spark, start(tmp_path)):
        wait_until(lambda: archived(start(tmp_path)) == 20)
    write_journal(tmp_path / "other", [records(1_000, 1_100)])
    asked = start(tmp_path, journal="other")
    with archiving(spark, asked) as job:
        wait_until(lambda: bool(job.problem))
        assert "it is another journal" in job.problem
        assert not job.is_broken
    assert archived(asked) == 20
    assert numbers(asked) == [*range(20)]


def test_only_one_driver_archives(spark: SparkSession, tmp_path: Path) -> None:
    asked = start(tmp_path)
    write_journal(tmp_path / "journal", [records(0, 20)])
    lock = DriverLock(asked.work)
    assert lock.try_acquire() is None
    lock.record(None)
    with archiving(spark, asked) as job:
        wait_until(lambda: job.problem.startswith("waiting for process"))
        lock.release()
        wait_until(lambda: archived(asked) == 20)
        assert job.problem == ""


@pytest.mark.parametrize("table_name", ["events", "ledger"])
def test_what_passes_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_name: str
) -> None:
    asked = start(tmp_path)
    write_journal(tmp_path / "journal", [records(0, 20)])
    append, failures = DeltaLog.append, [OSError(28, "No space left on device")]

    def fail_once(table: DeltaLog, parts: Collection[JournalPart]) -> bool:
        if failures and table.name == table_name:
            raise failures.pop()
        return append(table, parts)

    monkeypatch.setattr(DeltaLog, "append", fail_once)
    told = threading.Event()
    with archiving(spark, asked) as job:
        while archived(asked) < 20:
            if "No space left on device" in job.problem:
                told.set()
            time.sleep(0.01)
        wait_until(lambda: job.problem == "")
    assert told.is_set()
    assert numbers(asked) == [*range(20)]
