from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.asking import World, made, random_ask, random_event
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import EventQuery, PageQuery, QueryHit
from accord.pipeline.query import tail as tails
from accord.pipeline.query.checks import CheckedQuery, check
from accord.pipeline.query.engine import StaleError
from accord.pipeline.query.scan_ranges import RemainingQuery
from accord.pipeline.query.tail import Tail


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, segment_bytes=4_000)
    yield world
    world.close()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "BLOCK_RECORDS", 8)
    monkeypatch.setattr(tails, "_BLOCKS_BEHIND", 2)


def question(**fields: object) -> CheckedQuery:
    return check(PageQuery(id=1, ask=EventQuery(**({"channel": "#"} | fields))))  # type: ignore[arg-type]


def found(
    tail: Tail, asked: CheckedQuery, part: RemainingQuery, most: int = 10_000
) -> list[QueryHit]:
    return tail.fetch([hit.offset for hit in tail.find(asked, part, most)])


def fill(world: World, count: int) -> None:
    first = len(world.events)
    world.publish([made(n, START_MS + n, "a") for n in range(first, first + count)])


def test_best_ones_first_and_no_more_than_wanted(world: World, small_blocks: None) -> None:
    fill(world, 50)
    tail = Tail(world.journal)
    oldest = found(tail, question(), RemainingQuery(10, 50, (START_MS + 20, 20)), 3)
    assert [event.offset for event in oldest] == [21, 22, 23]
    newest = found(tail, question(is_newest_first=True), RemainingQuery(10, 40, None), 3)
    assert [event.offset for event in newest] == [39, 38, 37]


def test_nothing_is_read_twice_as_long_as_there_is_room(world: World, small_blocks: None) -> None:
    fill(world, 30)
    tail = Tail(world.journal)
    found(tail, question(), RemainingQuery(0, 30, None))
    fill(world, 10)
    read: list[int] = []
    tail._reader = _Watching(tail._reader, read)  # type: ignore[assignment, arg-type]
    assert len(found(tail, question(), RemainingQuery(5, 40, None))) == 35
    assert min(read) >= 30


def test_little_room_changes_no_answer(world: World, small_blocks: None) -> None:
    fill(world, 60)
    tail = Tail(world.journal, cache_bytes=1)
    for first in (0, 3, 20):
        ask = question(is_newest_first=True)
        offsets = [event.offset for event in found(tail, ask, RemainingQuery(first, 60, None))]
        assert offsets == list(range(59, first - 1, -1))
        assert sum(block.events is not None for block in tail._blocks) <= 1


def test_what_is_archived_is_let_go(world: World, small_blocks: None) -> None:
    fill(world, 80)
    tail = Tail(world.journal)
    found(tail, question(), RemainingQuery(0, 80, None))
    assert len(found(tail, question(), RemainingQuery(70, 80, None))) == 10
    assert len(tail._blocks) <= 4


def test_an_earlier_part_is_read_again(world: World, small_blocks: None) -> None:
    fill(world, 80)
    tail = Tail(world.journal)
    assert len(found(tail, question(), RemainingQuery(70, 80, None))) == 10
    assert len(found(tail, question(), RemainingQuery(20, 80, None))) == 60
    assert len(found(tail, question(), RemainingQuery(70, 80, None))) == 10


def test_a_gap_begins_anew(world: World, small_blocks: None) -> None:
    fill(world, 20)
    tail = Tail(world.journal)
    found(tail, question(), RemainingQuery(0, 20, None))
    fill(world, 60)
    assert len(found(tail, question(), RemainingQuery(50, 80, None))) == 30


def test_retired_records_are_stale_or_lost(world: World, small_blocks: None) -> None:
    for _ in range(40):
        fill(world, 5)
    world.retire(before_offset=100)
    tail = Tail(world.journal)
    with pytest.raises(StaleError):
        tail.find(question(), RemainingQuery(0, 200, None), 10)
    left = tail.find(question(), RemainingQuery(0, 200, None), 1_000, is_final=True)
    assert 100 <= len(left) < 200


def test_retired_while_let_go(world: World, small_blocks: None) -> None:
    for _ in range(40):
        fill(world, 5)
    tail = Tail(world.journal, cache_bytes=1)
    tail.find(question(), RemainingQuery(0, 200, None), 10)
    world.retire(before_offset=150)
    with pytest.raises(StaleError):
        tail.find(question(), RemainingQuery(0, 200, None), 10)


def test_check_can_stop_it(world: World, small_blocks: None) -> None:
    fill(world, 20)

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        Tail(world.journal).find(question(), RemainingQuery(0, 20, None), 5, check=stop)


@pytest.mark.parametrize("seed", range(20))
def test_random_questions(seed: int, world: World, small_blocks: None) -> None:
    rng = random.Random(seed)  # noqa: S311
    tail = Tail(world.journal, cache_bytes=rng.choice((1, 5_000, 1 << 20)))
    for _ in range(4):
        number = len(world.events)
        world.publish([random_event(rng, number + n) for n in range(40)], ledger_every=5)
        ask = random_ask(rng, world.next)
        expected = world.expected(ask)
        hits = found(tail, check(PageQuery(id=1, ask=ask)), RemainingQuery(0, world.next, None))
        assert hits[: ask.limit] == expected, ask


class _Watching:
    def __init__(self, reader: Tail, read: list[int]) -> None:
        self._reader = reader
        self._read = read

    def read(self, offset: int, **limits: int) -> object:
        self._read.append(offset)
        return self._reader.read(offset, **limits)  # type: ignore[attr-defined]
