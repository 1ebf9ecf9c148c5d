"""Clients publish at their rates, and come and go."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from accord.sim.clock import Clock
from accord.sim.machine import Publication, SimSubscription, number_of
from accord.sim.trace import SimulationError
from accord.sim.workloads import Choice, Publisher, Range, Subscriber, Workload
from tests.sim.machines import S


class World:
    """Takes note of what clients do."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.published: list[Publication] = []
        self.wishes: list[tuple[int, bool, SimSubscription]] = []

    def publish(self, publication: Publication, now_us: int) -> None:
        assert publication.published_us == now_us
        self.published.append(publication)

    def subscribe(self, wish: SimSubscription, now_us: int) -> None:
        self.wishes.append((now_us, True, wish))

    def unsubscribe(self, wish: SimSubscription, now_us: int) -> None:
        self.wishes.append((now_us, False, wish))


def published(until_us: int = 100 * S, seed: int = 1, **facts: Any) -> list[Publication]:
    world = World()
    publisher = Publisher(**{"name": "p", "node": "a", "channel": "c", **facts})
    Workload((publisher,)).begin(world, seed)
    world.clock.run(until_us)
    return world.published


def gaps(publications: list[Publication]) -> list[int]:
    times = [each.published_us for each in publications]
    return [later - earlier for earlier, later in pairwise(times)]


def test_steady_is_even_and_keeps_its_rate_in_the_long_run() -> None:
    found = published(rate_hz=3.0)
    assert len(found) == 300
    assert set(gaps(found)) == {333_333, 333_334}
    assert [each.sequence for each in found] == list(range(1, 301))


def test_poisson_has_its_rate_and_no_pattern() -> None:
    found = published(rate_hz=20.0, pattern="poisson")
    assert 1_850 < len(found) < 2_150
    apart = sorted(gaps(found))
    assert apart[len(apart) // 20] < 5_000
    assert apart[-1] > 200_000


def test_bursts_come_at_once_and_keep_the_rate() -> None:
    found = published(rate_hz=10.0, pattern="burst", burst=50)
    assert len(found) == 1_000
    assert sorted(gaps(found))[-20:] == [0] + [5 * S] * 19


def test_it_begins_and_ends() -> None:
    found = published(rate_hz=1.0, begin_us=10 * S, end_us=20 * S)
    assert len(found) == 10
    assert 10 * S <= found[0].published_us < found[-1].published_us < 20 * S


def test_payloads_are_numbered_and_as_long_as_asked_for() -> None:
    found = published(rate_hz=1.0, size_bytes=1_000)
    assert [number_of(each.payload) for each in found] == [each.number for each in found]
    assert {len(each.payload) for each in found} == {1_000}
    assert number_of(b"short") == 0


def test_attributes_are_drawn() -> None:
    attributes = {"kind": Choice(("uav", "car")), "height": Range(0, 9), "x": Range(0.0, 1.0)}
    found = published(rate_hz=10.0, attributes=attributes)
    assert {each.attributes["kind"] for each in found} == {"uav", "car"}
    assert {each.attributes["height"] for each in found} == set(range(10))
    assert all(isinstance(each.attributes["x"], float) for each in found)


def test_publishers_of_one_rate_do_not_all_publish_in_one_moment() -> None:
    world = World()
    Workload(tuple(Publisher(name=f"p{n}", node="a", channel="c") for n in range(10))).begin(
        world, 1
    )
    world.clock.run(S)
    assert len({each.published_us for each in world.published}) > 5


def test_one_more_client_changes_nothing_for_the_others() -> None:
    def times(*names: str) -> list[int]:
        world = World()
        publishers = (Publisher(name=n, node="a", channel="c", pattern="poisson") for n in names)
        Workload(tuple(publishers)).begin(world, 1)
        world.clock.run(20 * S)
        return [each.published_us for each in world.published if each.publisher == "one"]

    assert times("one") == times("other", "one")


def test_subscribers_come_and_go() -> None:
    world = World()
    staying = Subscriber(name="s", node="a", filter="#", begin_us=5, end_us=50 * S)
    moving = Subscriber(name="m", node="a", filter="#", there_us=S, away_us=3 * S)
    Workload((), (staying, moving)).begin(world, 1)
    world.clock.run(1_000 * S)
    assert [(at_us, there) for at_us, there, wish in world.wishes if wish.subscriber == "s"] == [
        (5, True),
        (50 * S, False),
    ]
    moves = [(at_us, there) for at_us, there, wish in world.wishes if wish.subscriber == "m"]
    assert [there for _, there in moves[:4]] == [True, False, True, False]
    there_us = sum(
        until - since for (since, _), (until, _) in zip(moves[::2], moves[1::2], strict=False)
    )
    assert 0.15 < there_us / (1_000 * S) < 0.35


def test_what_can_not_be_is_refused() -> None:
    with pytest.raises(SimulationError, match="p: expected a rate"):
        Publisher(name="p", node="a", channel="c", rate_hz=0.0)
    with pytest.raises(SimulationError, match="p: expected a burst of 1 or more, and 8 bytes"):
        Publisher(name="p", node="a", channel="c", size_bytes=7)
    twice = Publisher(name="p", node="a", channel="c")
    with pytest.raises(SimulationError, match="names of publishers that differ"):
        Workload((twice, twice))
    workload = Workload((twice,))
    workload.begin(World(), 1)
    with pytest.raises(SimulationError, match="of its own for each simulation"):
        workload.begin(World(), 1)
