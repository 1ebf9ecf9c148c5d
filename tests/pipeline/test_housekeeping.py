from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from accord.pipeline.housekeeping import Housekeeping, compact_on
from pyspark.sql import SparkSession
from tests.pipeline.asking import World, made
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import EventQuery, PageQuery
from accord.pipeline import housekeeping
from accord.pipeline.query.spark_engine import ArchiveLookup


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    for number in range(8):
        world.publish([made(number, START_MS + number, "uav/a", payload=b"%d" % number)])
        world.follow(world.next)
    yield world
    world.close()


def test_compaction_in_a_task_keeps_every_event(spark: SparkSession, world: World) -> None:
    files = world.manifest.snapshot().files
    added = compact_on(spark, world.archive, files)
    assert [file.rows for file in added] == [8]
    queries = world.queries(ArchiveLookup(spark, world.archive))
    ask = EventQuery(channel="#")
    first = queries.page(PageQuery(id=1, ask=ask, rows=3))
    world.manifest.commit(added=added, removed=[file.path for file in files])
    page = queries.page(PageQuery(id=1, ask=ask))
    assert list(page.events) == world.expected(ask)
    assert page.files == 1
    rest = queries.page(PageQuery(id=1, ask=ask, cursor=first.cursor))
    assert list(first.events + rest.events) == world.expected(ask)


def test_the_thread_compacts_and_goes_on_after_a_failure(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_LOOK_S", 0.01)
    monkeypatch.setattr(housekeeping, "_PAUSE_S", 0.0)
    done = threading.Event()
    turns = 0

    def fail_first() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise OSError("no space")
        if len(world.manifest.snapshot().files) == 1:
            done.set()

    keeper = Housekeeping(spark, world.manifest, retain_ms=None, also=(fail_first,))
    keeper.start()
    assert done.wait(60)
    keeper.stop(10.0)
    assert keeper.compactions == 1
    assert turns > 1


def test_days_that_are_over_go(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_LOOK_S", 0.01)
    gone = threading.Event()

    def look() -> None:
        if not world.manifest.snapshot().files:
            gone.set()

    keeper = Housekeeping(spark, world.manifest, retain_ms=1_000, also=(look,))
    keeper.start()
    assert gone.wait(60)
    keeper.stop(10.0)
