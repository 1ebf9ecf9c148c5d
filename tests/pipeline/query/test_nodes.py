"""An archive of several nodes: each is answered from what it archived itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.pipeline.asking import World, pages, planner_of, random_event
from tests.pipeline.journals import START_MS

from accord.core.queries.messages import EventQuery, HistogramRequest
from accord.journal.ledger_records import ArchivedEntry
from accord.pipeline.delta_log import Archive
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.histogram import HistogramEngine
from accord.pipeline.query.ledger import find_outcomes
from accord.pipeline.query.tail import Tail


@pytest.fixture
def other(world: World, tmp_path: Path) -> Iterator[World]:
    """Has events at the same offsets, in the same archive."""
    other = World(tmp_path / "other", node="n2", archive=world.archive)
    yield other
    other.close()


def fill(world: World, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    world.publish([random_event(rng, 1 + n) for n in range(120)], ledger_every=10)
    world.follow(80)


@pytest.mark.parametrize(
    "ask",
    [
        EventQuery(channel="#"),
        EventQuery(channel="uav/#", is_newest_first=True, limit=20),
        EventQuery(channel="#", where="altitude_m > 300", from_offset=10),
        EventQuery(channel="#", number=5),
    ],
    ids=str,
)
def test_events(world: World, other: World, engine: ArchiveEngine, ask: EventQuery) -> None:
    fill(world, 1)
    fill(other, 2)
    for each in (world, other):
        queries = each.queries(engine)
        found = [hit for page in pages(queries, ask, rows=17) for hit in page.events]
        assert found == each.expected(ask)
        assert found


def test_histogram(world: World, other: World, engine: ArchiveEngine) -> None:
    fill(world, 1)
    fill(other, 2)
    archive = Archive(world.archive, [world.node, other.node])
    planner = planner_of(engine)
    for each in (world, other):
        tail = Tail(each.journal)
        engine_of = HistogramEngine(archive, tail, planner, node=each.node, journal=each.journal)
        ask = EventQuery(channel="#", where="altitude_m > 300")
        asked = HistogramRequest(id=1, ask=ask, until_ms=START_MS + (1 << 40), within_ms=60_000)
        assert sum(engine_of.part(asked).counts) == len(each.expected(ask))


def test_outcomes(world: World, other: World, engine: ArchiveEngine) -> None:
    fill(world, 1)
    fill(other, 2)
    snapshot = Archive(world.archive, []).ledger.snapshot()
    for node in (world.node, other.node):
        body = find_outcomes(planner_of(engine), snapshot, node, 2, 1_000)
        entries = msgspec.msgpack.decode(body, type=list[ArchivedEntry])
        assert {each.node for each in entries} == {node}
