"""Journals of several nodes in one archive: one that fails leaves the others alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.pipeline.journal_server import FakeNode, serving
from tests.pipeline.journals import records, write_journal

from accord.core.queries.messages import StartPipeline
from accord.pipeline.archive_job import ArchiveJob
from accord.pipeline.delta_log import Archive
from accord.pipeline.journal_source import SliceOptions, SlicesReader

NOBODY = "http://ann:secret@127.0.0.1:1"


@pytest.fixture
def denver(tmp_path: Path) -> FakeNode:
    return FakeNode(write_journal(tmp_path / "denver", [records(0, 40)]))


def options(folder: Path, **journals: str) -> SliceOptions:
    return SliceOptions(journals=journals, archive=str(folder / "archive"), few_rows=0)


def until(is_true: Callable[[], object]) -> None:
    """pytest's time-out is the limit."""
    while not is_true():
        time.sleep(0.02)


@contextmanager
def archiving(spark: SparkSession, folder: Path, **journals: str) -> Iterator[ArchiveJob]:
    asked = StartPipeline(
        node="site",
        journal="",
        archive=str(folder / "archive"),
        work=str(folder / "work"),
        interval_ms=50,
        journals=journals,
    )
    job = ArchiveJob(spark, asked, Archive(asked.archive, tuple(journals)))
    job.start()
    try:
        yield job
    finally:
        job.stop(60)


def archived(folder: Path, node: str) -> int:
    return Archive(folder / "archive", [node]).archived(node)


def test_batches_without_those_that_can_not_be_reached(denver: FakeNode, tmp_path: Path) -> None:
    with serving(denver) as host:
        reader = SlicesReader(options(tmp_path, denver=f"http://{host}", orlando=NOBODY))
        start = reader.initialOffset()
        assert start == {"denver": 0, "orlando": 0}
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end == {"denver": 40, "orlando": 0}
        assert {each.node for each in reader.partitions(start, end)} == {"denver"}


def test_batches_without_those_that_answer_late(denver: FakeNode, tmp_path: Path) -> None:
    orlando = FakeNode(write_journal(tmp_path / "orlando", [records(0, 30)]), "orlando")
    may_answer = threading.Event()

    def wait(_path: str) -> None:
        may_answer.wait(60)

    orlando.before = wait
    with serving(denver) as one, serving(orlando) as other:
        journals = {"denver": f"http://{one}", "orlando": f"http://{other}"}
        reader = SlicesReader(options(tmp_path, **journals))
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end == {"denver": 40, "orlando": 0}
        may_answer.set()
        until(lambda: reader.latestOffset(end, ReadAllAvailable())["orlando"] == 30)
        assert sum("records" not in path for path in orlando.asked) <= 2  # one look at a time


def test_another_node_at_the_address_is_not_read(denver: FakeNode, tmp_path: Path) -> None:
    with serving(denver) as host:
        place = f"http://{host}"
        reader = SlicesReader(options(tmp_path, denver=place, orlando=place))
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == {"denver": 40, "orlando": 0}


def test_the_job_goes_on_without_a_node_and_with_it_later(
    spark: SparkSession, denver: FakeNode, tmp_path: Path
) -> None:
    orlando = FakeNode(write_journal(tmp_path / "orlando", [records(0, 30)]), "orlando")
    with serving(denver) as one, serving(orlando) as other:
        is_there = threading.Event()
        orlando.before = lambda _: None if is_there.is_set() else (503, b'{"detail": "stopping"}')
        journals = {"denver": f"http://{one}", "orlando": f"http://site:secret@{other}"}
        with archiving(spark, tmp_path, **journals) as job:
            until(lambda: archived(tmp_path, "denver") == 40)
            until(lambda: "HTTP 503: stopping" in job.left_out.get("orlando", ""))
            assert "secret" not in job.left_out["orlando"]
            is_there.set()
            until(lambda: archived(tmp_path, "orlando") == 30)
            until(lambda: not job.left_out)
            write_journal(denver.folder, [records(40, 50)])
            until(lambda: archived(tmp_path, "denver") == 50)
    rows = DeltaTable(tmp_path / "archive" / "events").to_pyarrow_table(columns=["node", "offset"])
    found = sorted(zip(rows["node"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert found == [("denver", n) for n in range(50)] + [("orlando", n) for n in range(30)]


def test_a_journal_that_began_anew_is_left_out(
    spark: SparkSession, denver: FakeNode, tmp_path: Path
) -> None:
    orlando = FakeNode(write_journal(tmp_path / "orlando", [records(0, 30)]), "orlando")
    with serving(denver) as one, serving(orlando) as other:
        journals = {"denver": f"http://{one}", "orlando": f"http://site:secret@{other}"}
        with archiving(spark, tmp_path, **journals):
            until(lambda: archived(tmp_path, "orlando") == 30)
        orlando.folder = write_journal(tmp_path / "anew", [records(0, 5)])
        with archiving(spark, tmp_path, **journals) as job:
            write_journal(denver.folder, [records(40, 60)])
            until(lambda: archived(tmp_path, "denver") == 60)
            assert "it is another journal" in job.left_out["orlando"]
            assert "secret" not in job.left_out["orlando"]
