"""SQL over an archive, by Spark and by DataFusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.asking import World, made
from tests.pipeline.journals import START_MS

import accord.pipeline
from accord.pipeline.archive_sql import DATASETS, SqlError, query_datafusion

Rows = list[dict[str, Any]]
Ask = Callable[[str], Rows]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Its attribute `alt` is declared as an integer first, then as a float, then not at all."""
    world = World(tmp_path)
    for declared, value in (({"alt": "integer"}, "1"), ({"alt": "float"}, "2.5"), ({}, "3")):
        world.publish(
            [made(world.next + 1, START_MS + world.next, "uav/1", (("alt", value), ("s", "x")))],
        )
        world.follow(world.next, declared)
    world.publish([made(9, START_MS, "uav/2")] * 3, ledger_every=2)
    world.tables.ledger.create()
    world.follow(world.next, {"alt": "float"})
    yield world
    world.close()


@pytest.fixture(params=["datafusion", "spark"])
def ask(request: pytest.FixtureRequest, world: World) -> Ask:
    if request.param == "datafusion":
        return lambda query: query_datafusion(world.archive, query).read_all().to_pylist()
    spark: SparkSession = request.getfixturevalue("spark")
    tables = accord.pipeline.connect(world.archive, spark)
    return lambda query: [row.asDict() for row in tables.sql(query).collect()]


def test_rows_in_their_order(ask: Ask) -> None:
    found = ask("SELECT number FROM events WHERE channel = 'uav/1' ORDER BY number DESC")
    assert found == [{"number": 3}, {"number": 2}, {"number": 1}]
    assert ask("SELECT sum(count) AS n FROM ledger")[0]["n"] is not None


def test_a_declared_attribute_is_one_column(ask: Ask) -> None:
    """Of the last type: integers of before are found in the map, or in their own column."""
    found = ask("SELECT alt FROM events WHERE channel = 'uav/1' ORDER BY number")
    assert [row["alt"] for row in found] == [1.0, 2.5, 3.0]


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT number\nFORM events", "line 2, column"),
        ("SELECT number,\n  chanel FROM events", "line 2, column 3"),
        ("SELECT *\nFROM nothing", "line 2, column 6"),
        ("  ", "SQL"),
    ],
)
def test_mistakes_have_a_place(ask: Ask, query: str, place: str) -> None:
    with pytest.raises(SqlError) as refused:
        ask(query)
    assert refused.value.place.startswith(place)
    assert refused.value.problem


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE events",
        "DELETE FROM events",
        "INSERT INTO events SELECT * FROM events",
        "CREATE TABLE t AS SELECT 1 AS a",
        "SELECT 1) ; DROP TABLE events --",
        "SET spark.sql.shuffle.partitions = 7",
    ],
)
def test_it_only_reads(ask: Ask, query: str) -> None:
    with pytest.raises(SqlError):
        ask(query)


def test_datasets(world: World, spark: SparkSession) -> None:
    tables = accord.pipeline.connect(world.archive, spark)
    for name in DATASETS:
        found = tables.sql(f"SELECT * FROM {name}")  # noqa: S608
        assert found.columns == tables.dataset(name).columns
    assert tables.sql("SELECT events FROM channel_rates").collect()
    with pytest.raises(SqlError, match=r"column 15: losses is a dataset of Spark"):
        query_datafusion(world.archive, "SELECT * FROM losses")


def test_new_events_are_seen(world: World, spark: SparkSession) -> None:
    tables = accord.pipeline.connect(world.archive, spark)
    before = tables.events.count()
    world.publish([made(50, START_MS, "uav/3")])
    world.follow(world.next)
    assert tables.events.count() == before + 1


def test_there_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(SqlError, match="there is no archive"):
        query_datafusion(tmp_path / "none", "SELECT 1")
    assert not (tmp_path / "none").exists()
