from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.asking import World, made, pages, random_ask, random_event
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import EventQuery, PageQuery, QueryHit
from accord.pipeline import scan_plan
from accord.pipeline.query.spark_engine import ArchiveLookup
from accord.pipeline.query.chunks import Chunks
from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.query.pages import QueryEngine


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def lookup(spark: SparkSession, world: World) -> ArchiveLookup:
    return ArchiveLookup(spark, world.archive)


def everything(queries: QueryEngine, ask: EventQuery, rows: int = 1_000) -> list[QueryHit]:
    return [event for page in pages(queries, ask, rows=rows) for event in page.events]


def fill(world: World, count: int) -> None:
    """Events one second apart, numbered from 1."""
    first = len(world.events)
    world.publish(
        [
            made(
                number + 1,
                START_MS + 1_000 * number,
                f"uav/{number % 2}",
                (("altitude_m", str(number)),),
                b"%d" % number,
            )
            for number in range(first, first + count)
        ]
    )


def test_archive_and_tail_are_one_answer(world: World, lookup: ArchiveLookup) -> None:
    fill(world, 30)
    world.follow(20)
    ask = EventQuery(channel="uav/1", where="altitude_m >= 10", is_newest_first=True)
    (page,) = pages(world.queries(lookup), ask, rows=100)
    assert [event.offset for event in page.events] == list(range(29, 10, -2))
    assert list(page.events) == world.expected(ask)
    assert (page.files, page.files_skipped, page.tail) == (1, 0, 10)
    assert page.bytes > 0


def test_nothing_kept(world: World, lookup: ArchiveLookup) -> None:
    (page,) = pages(world.queries(lookup), EventQuery(channel="#"), rows=10)
    assert (page.events, page.files, page.tail) == ((), 0, 0)


def test_files_that_cant_match_are_passed_over(world: World, lookup: ArchiveLookup) -> None:
    for _ in range(4):
        fill(world, 10)
        world.follow(world.next)
    queries = world.queries(lookup)
    for ask, files in (
        (EventQuery(channel="#", where="altitude_m = 25"), 1),
        (EventQuery(channel="#", number=12), 1),
        (EventQuery(channel="#", since_ms=START_MS + 30_000), 1),
        (EventQuery(channel="#", until_ms=START_MS + 20_000), 2),
        (EventQuery(channel="sea/#"), 0),
        (EventQuery(channel="#", from_offset=15, before_offset=25), 2),
    ):
        (page,) = pages(queries, ask, rows=100)
        assert (page.files, page.files_skipped) == (files, 4 - files), ask
        assert list(page.events) == world.expected(ask)


def test_cursor_survives_a_restart_and_sees_nothing_newer(
    world: World, lookup: ArchiveLookup
) -> None:
    fill(world, 30)
    world.follow(10)
    ask = EventQuery(channel="#", is_newest_first=True, limit=25)
    expected = world.expected(ask)
    page = world.queries(lookup).page(PageQuery(id=1, ask=ask, rows=7))
    found = list(page.events)
    fill(world, 5)
    world.follow(25)
    while page.cursor:
        page = world.queries(lookup).page(PageQuery(id=1, ask=ask, rows=7, cursor=page.cursor))
        found += page.events
    assert found == expected


def test_following_pages_come_from_memory(world: World, lookup: ArchiveLookup) -> None:
    fill(world, 40)
    world.follow(30)
    queries = world.queries(lookup)
    ask = EventQuery(channel="#", limit=35)
    page = queries.page(PageQuery(id=1, ask=ask, rows=9))
    found = list(page.events)
    world.follow(40)  # what was in the tail is now behind what the chunk knows
    asked = []
    lookup.find = lambda *arguments: asked.append(arguments)  # type: ignore[method-assign]
    page = queries.page(PageQuery(id=1, ask=ask, rows=9, cursor=page.cursor))
    assert not asked
    assert found + list(page.events) == world.expected(ask)[:18]


def test_pages_end_by_bytes_but_have_at_least_one(world: World, lookup: ArchiveLookup) -> None:
    payloads = [100, 5_000, 200, 2_500, 10, 10]
    world.publish(
        [made(n, START_MS + n, "a", payload=b"x" * size) for n, size in enumerate(payloads)]
    )
    world.follow(4)
    ask = EventQuery(channel="a")
    found = list(pages(world.queries(lookup), ask, rows=100, bytes_=2_850))
    assert [len(page.events) for page in found] == [1, 1, 2, 2]
    assert [event for page in found for event in page.events] == world.expected(ask)


def test_long_rows_come_with_their_contents(
    world: World, lookup: ArchiveLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accord.pipeline.query.spark_engine._CONTENT_BYTES", 50 * 20)
    sizes = [10, 60, 2_000, 10]
    world.publish([made(n, START_MS + n, "a", payload=b"x" * size) for n, size in enumerate(sizes)])
    world.follow(4)
    assert everything(world.queries(lookup), EventQuery(channel="a"), 10) == world.expected(
        EventQuery(channel="a")
    )


def test_attributes_declared_later(world: World, lookup: ArchiveLookup) -> None:
    fill(world, 10)
    world.follow(10, declared={})
    fill(world, 10)
    world.follow(20)
    ask = EventQuery(channel="#", where="altitude_m > 5 AND altitude_m < 15")
    assert everything(world.queries(lookup), ask) == world.expected(ask)


def test_records_that_journal_and_archive_lost(tmp_path: Path, spark: SparkSession) -> None:
    world = World(tmp_path, segment_bytes=400)
    for _ in range(10):
        fill(world, 3)
    world.retire(before_offset=15)
    queries = world.queries(ArchiveLookup(spark, world.archive))
    found = everything(queries, EventQuery(channel="#"))
    assert 0 < len(found) < 30
    assert found == world.expected(EventQuery(channel="#"))[-len(found) :]
    world.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_questions(
    seed: int, world: World, lookup: ArchiveLookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages equal the whole answer cut in pieces, whatever happens in between."""
    rng = random.Random(seed)  # noqa: S311
    monkeypatch.setattr(scan_plan, "SELECTIVE_ROWS", 60)
    monkeypatch.setattr(scan_plan, "MAX_CHUNK_ROWS", 30)
    monkeypatch.setattr(scan_plan, "MIN_CHUNK_ROWS", 10)
    queries = world.queries(lookup)
    number = 0
    for _ in range(6):
        count = rng.randrange(10, 80)
        world.publish([random_event(rng, number + n) for n in range(count)], ledger_every=7)
        number += count
        world.follow(rng.randrange(world.archived, world.next + 1))
        ask = random_ask(rng, world.next)
        expected = world.expected(ask)
        if rng.random() < 0.3:
            queries._chunks = Chunks(limit_bytes=0)
        found: list[QueryHit] = []
        for page in pages(queries, ask, rows=rng.choice((3, 20, 1_000))):
            found += page.events
            if rng.random() < 0.3:
                world.follow(rng.randrange(world.archived, world.next + 1))
        assert found == expected, ask


def test_bad_questions(world: World, lookup: ArchiveLookup) -> None:
    queries = world.queries(lookup)
    with pytest.raises(InvalidQueryError) as caught:
        queries.page(PageQuery(id=1, ask=EventQuery(channel="#"), cursor="x"))
    assert caught.value.place == "cursor"
