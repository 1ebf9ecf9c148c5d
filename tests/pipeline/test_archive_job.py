from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from accord.pipeline.manifest import Manifest
from accord.pipeline.slices import SCHEMA, SliceJob, encode_entries, write_slice
from pyspark.sql import SparkSession
from tests.pipeline.journals import ledger_record, records, retire, write_journal

from accord.core.queries.messages import StartPipeline
from accord.journal.disk import OsDisk
from accord.journal.retention import needed_from
from accord.pipeline.archive_job import ArchiveJob, Archiver, BatchDone
from accord.pipeline.driver_lock import DriverLock
from accord.pipeline.tables import events, ledger

PATIENCE_S = 90


def start(folder: Path, *, journal: str = "journal") -> StartPipeline:
    return StartPipeline(
        node="denver",
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
    job = ArchiveJob(
        spark, asked, Manifest(asked.archive), (done if done is not None else []).append
    )
    job.start()
    try:
        yield job
    finally:
        job.stop(PATIENCE_S)


def archived(asked: StartPipeline) -> int:
    return Manifest(asked.archive).snapshot().archived.get(asked.node, 0)


def numbers(spark: SparkSession, asked: StartPipeline) -> list[int]:
    rows = events(spark, asked.archive).select("number").collect()
    return sorted(row.number for row in rows)


def test_what_is_kept_gets_into_the_archive_once(spark: SparkSession, tmp_path: Path) -> None:
    asked = start(tmp_path)
    journal = write_journal(tmp_path / "journal", [records(0, 300), [ledger_record(0, 3)]])
    done: list[BatchDone] = []
    with archiving(spark, asked, done) as job:
        wait_until(lambda: archived(asked) == 301)
        write_journal(journal, [records(301, 600)])
        wait_until(lambda: archived(asked) == 600)
        wait_until(lambda: sum(each.events for each in done) == 599)
        assert job.problem == ""
    assert numbers(spark, asked) == [*range(300), *range(301, 600)]
    assert ledger(spark, asked.archive).count() == 3
    assert done[-1].archived == 600
    assert sum(each.ledger_rows for each in done) == 3
    assert sum(events for events, _ in done[0].channels.values()) == done[0].events
    assert needed_from(OsDisk(journal)) == 600  # what the journal may now retire
    # Another driver goes on where this one stopped, with nothing but the manifest to tell it.
    write_journal(journal, [records(600, 700)])
    with archiving(spark, asked):
        wait_until(lambda: archived(asked) == 700)
    assert numbers(spark, asked) == [*range(300), *range(301, 700)]


def test_a_batch_done_twice_is_in_the_archive_once(spark: SparkSession, tmp_path: Path) -> None:
    asked = start(tmp_path)
    write_journal(tmp_path / "journal", [records(0, 20)])
    rows = []
    for first, end in ((10, 20), (0, 10)):
        job = SliceJob(
            node="denver", journal=asked.journal, first=first, next=end, archive=asked.archive
        )
        rows.append((first, end, encode_entries(write_slice(job))))
    slices = spark.createDataFrame(rows, SCHEMA)
    archiver = Archiver(node="denver", journal=asked.journal, archive=asked.archive)
    manifest = Manifest(asked.archive)
    first_done = archiver.commit_batch(slices, manifest)
    assert first_done is not None
    assert (first_done.events, first_done.archived) == (20, 20)
    assert archiver.commit_batch(slices, manifest) is None
    archiver(slices, 0)
    assert numbers(spark, asked) == [*range(20)]


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
    kept = numbers(spark, asked)
    assert 0 < kept[0] <= 200
    assert kept == [*range(kept[0], 300)]
    assert Manifest(asked.archive).snapshot().lost == {"denver": kept[0]}


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
    assert numbers(spark, asked) == [*range(20)]


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


def test_what_passes_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = start(tmp_path)
    write_journal(tmp_path / "journal", [records(0, 20)])
    commit, failures = Manifest.commit, [OSError(28, "No space left on device")]

    def fail_once(manifest: Manifest, **changes: object) -> object:
        if failures:
            raise failures.pop()
        return commit(manifest, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(Manifest, "commit", fail_once)
    told = threading.Event()
    with archiving(spark, asked) as job:
        while archived(asked) < 20:
            if "No space left on device" in job.problem:
                told.set()
            time.sleep(0.01)
        wait_until(lambda: job.problem == "")
    assert told.is_set()
    assert numbers(spark, asked) == [*range(20)]
