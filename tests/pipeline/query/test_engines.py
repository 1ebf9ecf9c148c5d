"""What is true of both engines, and what each of them does."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.asking import NODE, World, made, pages, random_event
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import EventQuery, PageQuery, QueryHit
from accord.pipeline.query.checks import CheckedQuery, InvalidQueryError, check
from accord.pipeline.query.datafusion_engine import DataFusionEngine
from accord.pipeline.query.engine import ArchiveEngine, Lookup, StaleError
from accord.pipeline.query.planner import LOOSE_ROWS, SMALL_BYTES, Planner
from accord.pipeline.query.scan_ranges import RemainingQuery, ScanRange
from accord.pipeline.query.scheduler import QueryStoppedError
from accord.pipeline.tables import LAST_MS, TableFile


def question(**fields: object) -> CheckedQuery:
    return check(PageQuery(id=1, ask=EventQuery(**({"channel": "#"} | fields))))  # type: ignore[arg-type]


def whole(world: World, asked: CheckedQuery) -> Lookup:
    snapshot = world.tables.events.snapshot()
    part = RemainingQuery(0, world.next, None)
    return Lookup(asked, part, ScanRange(snapshot.files, 0, LAST_MS, True), snapshot, NODE)


def go_on() -> None:
    """Nobody has cancelled it."""


def test_channels_with_any_characters(world: World, engine: ArchiveEngine) -> None:
    channels = ["it's", 'a "b"', "back\\slash", "new\nline", "per%cent_", "ü/x", "plain"]
    world.publish([made(n, START_MS + n, channel) for n, channel in enumerate(channels)])
    world.follow(world.next)
    queries = world.queries(engine)
    for ask in [EventQuery(channel=channel) for channel in channels] + [EventQuery(channel="+")]:
        page = queries.page(PageQuery(id=1, ask=ask))
        assert list(page.events) == world.expected(ask)


# What views of a filter do not show by default is not any less denied by it.
REPLIES = EventQuery(channel="accord-response/#", without=("+/1",), limit=5, is_newest_first=False)


def test_filters_of_many_channels(world: World, engine: ArchiveEngine) -> None:
    channels = [f"{first}/{n}" for first in ("uav", "accord-response") for n in range(100)]
    channels += ["uav", "uav!", "uavs/7", "uav/7/8", "$uav/8"]
    world.publish([made(n, START_MS + n, channel) for n, channel in enumerate(channels)])
    world.follow(world.next)
    queries = world.queries(engine)
    for ask in (
        EventQuery(channel="uav/7"),
        EventQuery(channel="uav/#"),
        EventQuery(channel="uav/+", limit=5),
        EventQuery(channel="+/8"),
        EventQuery(channel="+/+/8"),
        EventQuery(channel="+/7/#"),
        EventQuery(channel="#", without=("uav/0", "+/1"), limit=5),
        REPLIES,
    ):
        page = queries.page(PageQuery(id=1, ask=ask))
        assert list(page.events) == world.expected(ask), ask


def test_rows_of_other_nodes_are_not_found(world: World, engine: ArchiveEngine) -> None:
    """As in a compacted file of two nodes."""
    world.publish([made(1, START_MS, "a")])
    world.follow(1)
    lookup = whole(world, question())
    (file,) = lookup.range.files
    of_two = TableFile(
        path=file.path, day=file.day, rows=1, bytes=file.bytes, channels=file.channels
    )
    both = ScanRange((of_two,), 0, LAST_MS, True)
    for node, count in ((NODE, 1), ("another", 0)):
        found = Lookup(lookup.question, lookup.part, both, lookup.snapshot, node)
        assert len(engine.find(found, 10, go_on).rows) == count
        contents = engine.contents(lookup.snapshot, node, both.files, [0], go_on)
        assert len(contents) == count


def test_a_file_that_is_gone_is_stale(world: World, engine: ArchiveEngine) -> None:
    world.publish([made(1, START_MS, "a")])
    world.follow(1)
    lookup = whole(world, question())
    assert len(engine.find(lookup, 10, go_on).rows) == 1
    (file,) = lookup.range.files
    (Path(world.archive) / "events" / file.path).unlink()
    with pytest.raises(StaleError):
        engine.find(lookup, 10, go_on)
    with pytest.raises(StaleError):
        engine.counts(whole(world, question(where="x = 1")), 1_000, go_on)


def test_a_snapshot_stays_as_it_was(world: World, engine: ArchiveEngine) -> None:
    world.publish([made(n, START_MS + n, "a") for n in range(3)])
    world.follow(1)
    before = whole(world, question())
    world.follow(3)
    world.tables.events.snapshot()
    assert len(engine.find(before, 10, go_on).rows) == 1
    assert len(engine.find(whole(world, question()), 10, go_on).rows) == 3


def test_it_stops_when_it_is_told_to(world: World, engine: ArchiveEngine) -> None:
    world.publish([made(1, START_MS, "a")])
    world.follow(1)

    def stop() -> None:
        raise QueryStoppedError

    with pytest.raises(QueryStoppedError):
        engine.find(whole(world, question()), 10, stop)
    with pytest.raises(QueryStoppedError):
        engine.counts(whole(world, question()), 1_000, stop)


def test_rows_are_examined_piece_by_piece(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup ends at the last row it has looked at; the next one continues there."""
    monkeypatch.setattr("accord.pipeline.query.datafusion_engine.EXAMINED", 10)
    world.publish([made(n, START_MS + n, "a", (("n", str(n)),)) for n in range(25)])
    world.follow(25)
    lookup = whole(world, question(where="n + 0 = 22"))
    ends = []
    after = None
    for _ in range(3):
        part = RemainingQuery(0, 25, after)
        again = Lookup(lookup.question, part, lookup.range, lookup.snapshot, NODE)
        found = DataFusionEngine().find(again, 5, go_on)
        ends.append((found.rows["number"].to_pylist(), found.end))
        after = found.end
    assert ends == [([], (START_MS + 9, 9)), ([], (START_MS + 19, 19)), ([22], None)]


def stretch(*, bytes_: int = 1, rows: int = 1, high_ms: int = 1_000) -> ScanRange:
    """All of a file of a second, or part of it."""
    file = TableFile(path="p", day="1970-01-01", rows=rows, bytes=bytes_, last_ms=999)
    return ScanRange((file,), 0, high_ms, True)


def test_the_smaller_engine_answers_what_is_small() -> None:
    small, large = DataFusionEngine(), DataFusionEngine()
    up: list[ArchiveEngine] = []
    planner = Planner(small, lambda: up[0] if up else None)
    tight, loose = question(where="x = 1"), question(where="x + 1 = 2")
    forced, mine = question(engine="spark"), question(engine="datafusion", where="x + 1 = 2")
    assert planner.choose(tight, stretch(bytes_=2 * SMALL_BYTES)) is small
    with pytest.raises(InvalidQueryError, match="Spark is not up"):
        planner.choose(forced, stretch())
    up.append(large)
    assert planner.choose(tight, stretch(bytes_=SMALL_BYTES)) is small
    assert planner.choose(tight, stretch(bytes_=SMALL_BYTES + 1)) is large
    assert planner.choose(tight, stretch(bytes_=2 * SMALL_BYTES, high_ms=500)) is small
    assert planner.choose(tight, stretch(rows=10 * LOOSE_ROWS)) is small
    assert planner.choose(loose, stretch(rows=LOOSE_ROWS)) is small
    assert planner.choose(loose, stretch(rows=LOOSE_ROWS + 1)) is large
    assert planner.choose(forced, stretch()) is large
    assert planner.choose(mine, stretch(bytes_=2 * SMALL_BYTES)) is small


SMALL_QUERIES = """
import sys
from accord.core.queries.messages import *
from accord.pipeline.delta_log import Archive
from accord.pipeline.query.datafusion_engine import DataFusionEngine
from accord.pipeline.query.exports import export
from accord.pipeline.query.histogram import HistogramEngine
from accord.pipeline.query.ledger import find_outcomes
from accord.pipeline.query.pages import QueryEngine
from accord.pipeline.query.planner import Planner
from accord.pipeline.query.scheduler import QueryScheduler
from accord.pipeline.query.tail import Tail

folder, archive = sys.argv[1], Archive(sys.argv[2], ["n1"])
planner, tail = Planner(DataFusionEngine()), Tail(folder)
pages = QueryEngine(archive, tail, planner, node="n1", journal=folder)
ask = EventQuery(channel="#", where="altitude_m > 1 OR platform LIKE 'x%'", xpath="/m")
assert pages.page(PageQuery(id=1, ask=ask)).files
histogram = HistogramEngine(archive, tail, planner, node="n1", journal=folder)
assert histogram.part(HistogramRequest(id=1, ask=ask, until_ms=1 << 42)).files
assert export(pages, ExportRequest(id=1, ask=ask, format="csv", rows=1, bytes=1)).body
assert find_outcomes(planner, archive.ledger.snapshot(), "n1", 1, 10)
assert not {"pyspark", "py4j"} & set(sys.modules)
"""


def test_small_queries_need_no_spark(world: World) -> None:
    rng = random.Random(1)  # noqa: S311
    world.publish([random_event(rng, n) for n in range(40)], ledger_every=5)
    world.follow(30)
    done = subprocess.run(
        [sys.executable, "-c", SMALL_QUERIES, world.journal, world.archive],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_pages_add_up_with_either_engine_in_turns(world: World, engine: ArchiveEngine) -> None:
    """As when Spark starts between two pages."""
    rng = random.Random(3)  # noqa: S311
    world.publish([random_event(rng, n) for n in range(60)])
    world.follow(50)
    ask = EventQuery(channel="#", where="altitude_m > 200")
    found: list[QueryHit] = []
    chosen: list[ArchiveEngine] = [engine, DataFusionEngine()]
    queries = world.queries(engine)
    queries._planner = Planner(chosen[1], lambda: None)
    for page in pages(queries, ask, rows=7):
        found += page.events
        queries._planner = Planner(chosen[len(found) % 2], lambda: None)
    assert found == world.expected(ask)
