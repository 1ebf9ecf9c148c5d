from __future__ import annotations

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.asking import World, made, pages, random_ask, random_event
from tests.pipeline.journals import START_MS

from accord.core.predicates.tree import Attribute, Compare, In, Literal
from accord.core.queries.messages import EventQuery, PageQuery, QueryHit
from accord.pipeline.parquet_files import ORDER, write_file
from accord.pipeline.query import datafusion_engine, scan_ranges
from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.query.chunks import Chunks
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.pages import QueryEngine
from accord.pipeline.tables import ARROW


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


def test_archive_and_tail_are_one_answer(world: World, engine: ArchiveEngine) -> None:
    fill(world, 30)
    world.follow(20)
    ask = EventQuery(channel="uav/1", where="altitude_m >= 10", is_newest_first=True)
    (page,) = pages(world.queries(engine), ask, rows=100)
    assert [event.offset for event in page.events] == list(range(29, 10, -2))
    assert list(page.events) == world.expected(ask)
    assert (page.files, page.files_skipped, page.tail) == (1, 0, 10)
    assert page.bytes > 0
    assert page.engine == engine.name


def test_nothing_kept(world: World, engine: ArchiveEngine) -> None:
    (page,) = pages(world.queries(engine), EventQuery(channel="#"), rows=10)
    assert (page.events, page.files, page.tail, page.engine) == ((), 0, 0, "tail")


def test_files_that_cant_match_are_passed_over(world: World, engine: ArchiveEngine) -> None:
    for _ in range(4):
        fill(world, 10)
        world.follow(world.next)
    queries = world.queries(engine)
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
    world: World, engine: ArchiveEngine
) -> None:
    fill(world, 30)
    world.follow(10)
    ask = EventQuery(channel="#", is_newest_first=True, limit=25)
    expected = world.expected(ask)
    page = world.queries(engine).page(PageQuery(id=1, ask=ask, rows=7))
    found = list(page.events)
    fill(world, 5)
    world.follow(25)
    while page.cursor:
        page = world.queries(engine).page(PageQuery(id=1, ask=ask, rows=7, cursor=page.cursor))
        found += page.events
    assert found == expected


def test_following_pages_come_from_memory(world: World, engine: ArchiveEngine) -> None:
    fill(world, 40)
    world.follow(30)
    queries = world.queries(engine)
    ask = EventQuery(channel="#", limit=35)
    page = queries.page(PageQuery(id=1, ask=ask, rows=9))
    found = list(page.events)
    world.follow(40)  # what was in the tail is now behind what the chunk knows
    asked = []
    engine.find = lambda *arguments: asked.append(arguments)  # type: ignore[method-assign, assignment]
    page = queries.page(PageQuery(id=1, ask=ask, rows=9, cursor=page.cursor))
    assert not asked
    assert found + list(page.events) == world.expected(ask)[:18]


def test_pages_end_by_bytes_but_have_at_least_one(world: World, engine: ArchiveEngine) -> None:
    payloads = [100, 5_000, 200, 2_500, 10, 10]
    world.publish(
        [made(n, START_MS + n, "a", payload=b"x" * size) for n, size in enumerate(payloads)]
    )
    world.follow(4)
    ask = EventQuery(channel="a")
    found = list(pages(world.queries(engine), ask, rows=100, bytes_=2_850))
    assert [len(page.events) for page in found] == [1, 1, 2, 2]
    assert [event for page in found for event in page.events] == world.expected(ask)


def test_long_rows_come_with_their_contents(
    world: World, engine: ArchiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accord.pipeline.query.spark_engine._CONTENT_BYTES", 50 * 20)
    sizes = [10, 60, 2_000, 10]
    world.publish(
        [
            made(n, START_MS + n, "a", (("note", "y" * size),), b"x" * size)
            for n, size in enumerate(sizes)
        ]
    )
    world.follow(4)
    for ask in (EventQuery(channel="a"), EventQuery(channel="a", where="note LIKE '%y'")):
        assert everything(world.queries(engine), ask, 10) == world.expected(ask)


def test_attributes_declared_later(world: World, engine: ArchiveEngine) -> None:
    fill(world, 10)
    world.follow(10, declared={})
    fill(world, 10)
    world.follow(20)
    ask = EventQuery(channel="#", where="altitude_m > 5 AND altitude_m < 15")
    assert everything(world.queries(engine), ask) == world.expected(ask)


def test_records_that_journal_and_archive_lost(tmp_path: Path) -> None:
    world = World(tmp_path, segment_bytes=400)
    for _ in range(10):
        fill(world, 3)
    world.retire(before_offset=15)
    found = everything(world.queries(), EventQuery(channel="#"))
    assert 0 < len(found) < 30
    assert found == world.expected(EventQuery(channel="#"))[-len(found) :]
    world.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_questions(
    seed: int, world: World, engine: ArchiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages equal the whole answer cut in pieces, whatever happens in between."""
    rng = random.Random(seed)  # noqa: S311
    monkeypatch.setattr(scan_ranges, "SELECTIVE_ROWS", 60)
    monkeypatch.setattr(scan_ranges, "MAX_CHUNK_ROWS", 30)
    monkeypatch.setattr(scan_ranges, "MIN_CHUNK_ROWS", 10)
    monkeypatch.setattr(datafusion_engine, "EXAMINED", rng.choice((25, 20_000)))
    monkeypatch.setattr(datafusion_engine, "INLINE_BYTES", rng.choice((16, 20_000)))
    queries = world.queries(engine)
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


def test_bad_questions(world: World, engine: ArchiveEngine) -> None:
    queries = world.queries(engine)
    with pytest.raises(InvalidQueryError) as caught:
        queries.page(PageQuery(id=1, ask=EventQuery(channel="#"), cursor="x"))
    assert caught.value.place == "cursor"


def test_values_of_any_type_are_seen_wherever_they_are(world: World, engine: ArchiveEngine) -> None:
    """What an attribute is declared as decides where its values are, but not which match."""
    texts = ("7.9", " UAV", "5", "5.0", "-0.0", "true", "2026-11-16T08:00:00Z", "9007199254740993")
    declarations: list[dict[str, str]] = [{}, *({"alt": kind} for kind in ARROW)]
    for declared in declarations:
        first = len(world.events)
        world.publish(
            [
                made(first + n, START_MS + first + n, "a", (("alt", text),))
                for n, text in enumerate(texts)
            ]
        )
        world.follow(world.next, declared)
    queries = world.queries(engine)
    for where in (
        "alt > 7",
        "alt = 5",
        "alt <> 5",
        "alt IN (5, 7.9, ' UAV')",
        "alt LIKE ' U%'",
        "alt NOT LIKE 'x%'",
        "alt = 0",
        "1 / alt > 0",
        "alt = TRUE",
        "alt",
        "alt > TIMESTAMP '2026-11-16T07:00:00Z'",
        "alt = 9007199254740993",
        "alt > 9007199254740992.0",
        "alt IS NOT NULL AND NOT alt = 5",
    ):
        ask = EventQuery(channel="a", where=where)
        assert world.expected(ask), where
        assert everything(queries, ask) == world.expected(ask), where


def test_names_and_texts_with_any_characters(world: World, engine: ArchiveEngine) -> None:
    names = ("a b", "it's", 'a"b', "x.y", "ü", "back\\slash", "back`tick", "per%cent", "{}")
    texts = ("it's", "back\\slash", 'say "no"', "💧", "new\nline", "a%b_c", "'; --", "")
    both = list(itertools.product(names, texts))
    world.publish([made(n, START_MS + n, "a", (each,)) for n, each in enumerate(both)])
    world.follow(world.next, dict.fromkeys(names[::2], "string"))
    queries = world.queries(engine)
    for name, text in random.Random(1).sample(both, 24):  # noqa: S311
        condition = Compare("=", Attribute(name), Literal(text))
        ask = EventQuery(channel="a", where=f"{condition} OR {In(Attribute(name), (text, 'x'))}")
        (event,) = everything(queries, ask)
        assert [event] == world.expected(ask)


def test_files_that_are_gone_are_looked_up_anew(world: World, engine: ArchiveEngine) -> None:
    """As after compaction and vacuum: the newer version has the rows in other files."""
    for _ in range(3):
        fill(world, 10)
        world.follow(world.next)
    queries = world.queries(engine)
    ask = EventQuery(channel="#", where="altitude_m >= 5")
    page = queries.page(PageQuery(id=1, ask=ask, rows=4))
    found = [*page.events]
    queries._chunks = Chunks(limit_bytes=0)
    log = queries._archive.events
    known, newest = log.snapshot(), log.snapshot
    stale = iter([known])
    log.snapshot = lambda: next(stale, None) or newest()  # type: ignore[method-assign]
    rewrite(world)
    while page.cursor:
        page = queries.page(PageQuery(id=1, ask=ask, rows=4, cursor=page.cursor))
        found += page.events
    assert next(stale, None) is None
    assert found == world.expected(ask)


def rewrite(world: World) -> None:
    """All rows in one new file; the former ones are deleted."""
    log = world.tables.events
    before = log.snapshot()
    folder = Path(world.archive) / "events"
    rows = pa.concat_tables(
        [pq.ParquetFile(folder / file.path).read() for file in before.files],
        promote_options="default",
    )
    added = write_file(
        world.tables.storage,
        rows.sort_by([(name, "ascending") for name in ORDER]),
        table="events",
        day=before.files[0].day,
        node="n1",
        columns=before.columns,
        is_sorted=True,
    )
    log.replace(before.files, [added])
    for file in before.files:
        (folder / file.path).unlink()


def test_the_archive_as_it_was(world: World, engine: ArchiveEngine) -> None:
    fill(world, 10)
    world.follow(6)
    earlier = world.tables.events.snapshot().version
    ask = EventQuery(channel="#")
    expected = world.expected(ask)[:6]
    world.follow(10)
    fill(world, 5)
    queries = world.queries(engine)
    as_it_was = EventQuery(channel="#", as_of_version=earlier)
    assert everything(queries, as_it_was, 4) == expected
    assert queries.page(PageQuery(id=1, ask=as_it_was)).tail == 0
    moment = max(world.tables.events.versions().values())
    assert everything(queries, EventQuery(channel="#", as_of_ms=moment)) == world.expected(ask)[:10]
    for bad in (EventQuery(channel="#", as_of_version=99), EventQuery(channel="#", as_of_ms=5)):
        with pytest.raises(InvalidQueryError, match="no such version: there are 0 of") as caught:
            queries.page(PageQuery(id=1, ask=bad))
        assert caught.value.place == "as_of"
