"""Both tables in Spark, in a directory and on an object store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.asking import NODE, World, made
from tests.pipeline.journals import START_MS

from accord.pipeline import spark_tables
from accord.pipeline.storage import Storage
from accord.pipeline.tables import arrow_ledger

XML = "<r><n>1</n><n>2</n></r>"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two files, the later with a declared attribute."""
    world = World(tmp_path)
    seen = ("seen", "2026-11-16T08:00:00Z")
    world.publish([made(1, START_MS + 1, "uav/1", (("altitude", "300"), seen), b"1")])
    world.follow(1, {})
    later = made(2, START_MS + 86_400_000, "uav/2", (("altitude", "400"), ("metadata", XML)))
    odd = made(3, START_MS + 5, "uav/3", (("altitude", "high"),))
    world.publish([later, odd], ledger_every=2)
    world.follow(world.next, {"altitude": "integer"})
    yield world
    world.close()


def rows(spark: SparkSession, storage: Storage, world: World) -> list[Any]:
    frame = spark_tables.events(spark, storage, world.tables.events.snapshot())
    return frame.orderBy("number").collect()


def test_files_of_different_columns_are_one_table(spark: SparkSession, world: World) -> None:
    snapshot = world.tables.events.snapshot()
    frame = spark_tables.events(spark, world.tables.storage, snapshot)
    assert frame.schema == spark_tables.spark_events(snapshot.columns)
    first, second, third = rows(spark, world.tables.storage, world)
    assert (first.node, first.number, first.channel) == (NODE, 1, "uav/1")
    assert first.received.astimezone(UTC) == datetime.fromtimestamp((START_MS + 1) / 1000, UTC)
    assert first.attributes["seen"].timestamp.astimezone(UTC).hour == 8
    assert (first.payload, first.payload_bytes) == (b"1", 1)
    assert [(row.altitude, str(row.day)) for row in (first, second, third)] == [
        (None, "2025-11-16"),
        (400, "2025-11-17"),
        (None, "2025-11-16"),
    ]
    assert second.paths["/r/n"] == ["1", "2"]
    assert bytes(second.metadata).decode() == XML
    found = spark_tables.ledger(spark, world.tables.storage, world.tables.ledger.snapshot())
    assert [(row.number, row.outcome) for row in found.orderBy("number").collect()] == [
        (1, "delivered"),
        (2, "delivered"),
        (3, "delivered"),
    ]


def test_all_attributes_in_the_map(spark: SparkSession, world: World) -> None:
    snapshot = world.tables.events.snapshot()
    frame = spark_tables.events(spark, world.tables.storage, snapshot)
    whole = spark_tables.with_all_attributes(frame, snapshot.columns).orderBy("number").collect()
    values = [row.attributes["altitude"] for row in whole]
    assert [(value.integer, value.string) for value in values] == [
        (300, None),
        (400, None),
        (None, "high"),
    ]


def test_some_of_the_files(spark: SparkSession, world: World) -> None:
    snapshot = world.tables.events.snapshot()
    chosen = [file for file in snapshot.files if file.day == "2025-11-17"]
    assert spark_tables.events(spark, world.tables.storage, snapshot, chosen).count() == 1


def test_no_files(spark: SparkSession, tmp_path: Path) -> None:
    empty = World(tmp_path / "empty")
    events = spark_tables.events(spark, empty.tables.storage, empty.tables.events.snapshot())
    assert events.count() == 0
    ledger = spark_tables.ledger(spark, empty.tables.storage, empty.tables.ledger.snapshot())
    assert ledger.columns == arrow_ledger().names
    empty.close()


class _Elsewhere(Storage):
    """Of a scheme that Spark has no connector for; Python has one."""

    def __init__(self, archive: str) -> None:
        super().__init__(archive)
        self.is_local = False
        self.uri = f"file://{archive}"


def test_python_tasks_read_where_spark_cannot(spark: SparkSession, world: World) -> None:
    local = rows(spark, world.tables.storage, world)
    assert rows(spark, _Elsewhere(world.archive), world) == local
