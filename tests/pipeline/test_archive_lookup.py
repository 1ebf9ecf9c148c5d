from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.asking import World, made
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import EventQuery, PageQuery
from accord.pipeline.query.spark_engine import ArchiveLookup, conditions
from accord.pipeline.query.checks import CheckedQuery, check
from accord.pipeline.query.scan_ranges import RemainingQuery, ScanRange
from accord.pipeline.service import warm_up
from accord.pipeline.tables import EVENTS
from accord.pipeline.query.tail import StaleError


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


STRETCH = ScanRange((), 1_000, 2_000, True)


def question(**fields: object) -> CheckedQuery:
    return check(PageQuery(id=1, ask=EventQuery(**({"channel": "#"} | fields))))  # type: ignore[arg-type]


def test_conditions_are_those_of_the_part() -> None:
    text = conditions(question(), RemainingQuery(0, 9, None), STRETCH)
    assert text == (
        "received >= timestamp_millis(1000L) AND received < timestamp_millis(2000L) AND offset < 9"
    )


@pytest.mark.parametrize(("is_newest_first", "sign"), [(False, ">"), (True, "<")])
def test_conditions_begin_behind_a_place(is_newest_first: bool, sign: str) -> None:
    after = (-1_500, -7) if is_newest_first else (1_500, 7)
    asked = question(is_newest_first=is_newest_first, number=3)
    text = conditions(asked, RemainingQuery(2, 9, after), STRETCH)
    at = "timestamp_millis(1500L)"
    assert text.endswith(
        "offset >= 2 AND number = 3 AND "
        f"(received {sign} {at} OR (received = {at} AND offset {sign} 7))"
    )


def test_channels_with_any_characters(spark: SparkSession, world: World) -> None:
    channels = ["it's", 'a "b"', "back\\slash", "new\nline", "per%cent_", "ü/x", "plain"]
    world.publish([made(n, START_MS + n, channel) for n, channel in enumerate(channels)])
    world.follow(world.next)
    queries = world.queries(ArchiveLookup(spark, world.archive))
    for ask in [EventQuery(channel=channel) for channel in channels] + [EventQuery(channel="+")]:
        page = queries.page(PageQuery(id=1, ask=ask))
        assert list(page.events) == world.expected(ask)


def test_a_file_that_is_gone_is_stale(spark: SparkSession, world: World) -> None:
    world.publish([made(1, START_MS, "a")])
    world.follow(1)
    (file,) = world.manifest.snapshot().files
    lookup = ArchiveLookup(spark, world.archive)
    stretch = ScanRange((file,), START_MS, START_MS + 1, True)
    assert len(lookup.find(question(), RemainingQuery(0, 1, None), stretch, 10)) == 1
    (world.manifest.archive / file.path).unlink()
    with pytest.raises(StaleError):  # known, but not there any more
        lookup.find(question(), RemainingQuery(0, 1, None), stretch, 10)
    with pytest.raises(StaleError):  # never seen
        ArchiveLookup(spark, world.archive).find(
            question(), RemainingQuery(0, 1, None), stretch, 10
        )


WITHOUT = EventQuery(channel="#", without=("uav/0", "+/1"), limit=5)
# What views of a filter do not show by default is not any less denied by it.
WITHOUT_REPLIES = EventQuery(
    channel="accord-response/#", without=("+/1",), limit=5, is_newest_first=False
)


def test_files_too_many_to_name_their_channels(spark: SparkSession, world: World) -> None:
    channels = [f"{first}/{n}" for first in ("uav", "accord-response") for n in range(100)]
    world.publish([made(n, START_MS + n, channel) for n, channel in enumerate(channels)])
    world.follow(world.next)
    files = [each for each in world.manifest.snapshot().files if each.table == EVENTS]
    assert [each.channels for each in files] == [None, None]
    queries = world.queries(ArchiveLookup(spark, world.archive))
    some = (
        EventQuery(channel="uav/7"),
        EventQuery(channel="uav/+", limit=5),
        EventQuery(channel="+/8"),
    )
    for ask in (*some, WITHOUT, WITHOUT_REPLIES):
        page = queries.page(PageQuery(id=1, ask=ask))
        assert list(page.events) == world.expected(ask)


def test_warming_up_asks_a_question(spark: SparkSession, world: World) -> None:
    world.manifest.archive.mkdir()
    warm_up(spark, world.archive)
