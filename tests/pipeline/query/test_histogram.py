from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.pipeline.asking import NODE, World, made, planner_of, random_ask, random_event
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import (
    EventQuery,
    HistogramPart,
    HistogramRequest,
)
from accord.pipeline.delta_log import Archive
from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.histogram import HistogramEngine
from accord.pipeline.query.scheduler import QueryStoppedError
from accord.pipeline.query.tail import Tail


def engine_for(world: World, engine: ArchiveEngine) -> HistogramEngine:
    archive, tail = Archive(world.archive, [NODE]), Tail(world.journal)
    return HistogramEngine(archive, tail, planner_of(engine), node=NODE, journal=world.journal)


def parts(
    found: HistogramEngine, ask: EventQuery, until_ms: int, *, buckets: int, within_ms: int = 1_000
) -> Iterator[HistogramPart]:
    cursor = ""
    while True:
        part = found.part(
            HistogramRequest(
                id=1,
                ask=ask,
                until_ms=until_ms,
                cursor=cursor,
                buckets=buckets,
                within_ms=within_ms,
            )
        )
        yield part
        cursor = part.cursor
        if not cursor:
            return


def total(found: list[HistogramPart]) -> dict[int, int]:
    """Events by the time at which their bucket begins."""
    sums: dict[int, int] = {}
    for part in found:
        for place, count in enumerate(part.counts):
            if count:
                at = part.first_ms + place * part.width_ms
                sums[at] = sums.get(at, 0) + count
    return sums


def expected(world: World, ask: EventQuery, until_ms: int, width_ms: int) -> dict[int, int]:
    sums: dict[int, int] = {}
    for event in world.expected(ask):
        if event.received_ms < until_ms:
            at = event.received_ms // width_ms * width_ms
            sums[at] = sums.get(at, 0) + 1
    return sums


def fill(world: World, count: int) -> None:
    first = len(world.events)
    world.publish(
        [
            made(n + 1, START_MS + 1_000 * n, f"uav/{n % 2}", (("altitude_m", str(n)),))
            for n in range(first, first + count)
        ]
    )


def test_short_files_are_counted_without_being_opened(world: World, engine: ArchiveEngine) -> None:
    for _ in range(4):
        fill(world, 10)
        world.follow(world.next)
    fill(world, 5)
    until_ms = START_MS + 45_000
    found = list(parts(engine_for(world, engine), EventQuery(channel="#"), until_ms, buckets=5))
    (part,) = found
    assert part.width_ms == 10_000
    assert (part.files, part.files_known, part.tail) == (0, 4, 5)
    assert part.counts == (10, 10, 10, 10, 5)
    assert part.read_ms == START_MS


def test_a_predicate_opens_what_may_match(world: World, engine: ArchiveEngine) -> None:
    for _ in range(4):
        fill(world, 10)
        world.follow(world.next)
    ask = EventQuery(channel="uav/1", where="altitude_m >= 25", since_ms=START_MS)
    (part,) = parts(engine_for(world, engine), ask, START_MS + 40_000, buckets=4)
    assert part.counts == (0, 0, 3, 5)
    assert (part.files, part.files_known) == (2, 0)


def test_parts_add_up_while_the_archive_follows(
    world: World, engine: ArchiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accord.pipeline.query.histogram.SELECTIVE_ROWS", 10)
    monkeypatch.setattr("accord.pipeline.query.histogram.GROWTH", 1)
    fill(world, 60)
    world.follow(50)
    ask = EventQuery(channel="#", where="altitude_m >= 3")
    until_ms = START_MS + 60_000
    counting = parts(engine_for(world, engine), ask, until_ms, buckets=6, within_ms=0)
    found = [next(counting)]
    fill(world, 10)
    world.follow(65)  # what was in the tail, and newer ones
    found += counting
    assert len(found) > 3
    assert [part.read_ms for part in found] == sorted(
        (part.read_ms for part in found), reverse=True
    )
    assert total(found) == expected(world, ask, until_ms, 10_000)


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_the_query(world: World, engine: ArchiveEngine, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    world.publish([random_event(rng, number + 1) for number in range(120)])
    for upto in sorted(rng.sample(range(100), 3)):
        world.follow(upto)
    counting = engine_for(world, engine)
    for _ in range(6):
        ask = random_ask(rng, world.next)
        ask = EventQuery(
            channel=ask.channel,
            without=ask.without,
            where=ask.where,
            xpath=ask.xpath,
            since_ms=ask.since_ms,
            from_offset=ask.from_offset,
            before_offset=ask.before_offset,
        )
        until_ms = max(event.received_ms for event in world.events.values()) + 1
        found = list(parts(counting, ask, until_ms, buckets=rng.choice((1, 7, 120))))
        assert total(found) == expected(world, ask, until_ms, found[0].width_ms), ask


def test_nothing_kept(world: World, engine: ArchiveEngine) -> None:
    (part,) = parts(engine_for(world, engine), EventQuery(channel="#"), START_MS, buckets=10)
    assert sum(part.counts) == 0


@pytest.mark.parametrize("cursor", ["nonsense", "é", "lQ", "x" * 300])
def test_a_strange_cursor_is_refused(world: World, engine: ArchiveEngine, cursor: str) -> None:
    request = HistogramRequest(id=1, ask=EventQuery(channel="#"), until_ms=START_MS, cursor=cursor)
    with pytest.raises(InvalidQueryError, match="cursor"):
        engine_for(world, engine).part(request)


def test_it_stops_when_it_is_told_to(world: World, engine: ArchiveEngine) -> None:
    fill(world, 10)
    world.follow(10)

    def stop() -> None:
        raise QueryStoppedError

    request = HistogramRequest(id=1, ask=EventQuery(channel="#"), until_ms=START_MS + 60_000)
    with pytest.raises(QueryStoppedError):
        engine_for(world, engine).part(request, stop)
