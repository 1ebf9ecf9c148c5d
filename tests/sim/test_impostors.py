"""A node that tells lies in the name of another: who is believed, and for how long.

The victim recovers by itself, and what does not concern it goes on as before.
"""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import INTEREST, LINK
from accord.core.overlay.state_messages import MAX_STAMP, StateDelta, VersionVector
from accord.core.overlay.state_store import FactMessage
from accord.sim.machine import Machine, Publication, Start
from accord.sim.node import OverlayNode
from accord.sim.run import Options, Simulation
from accord.sim.topology import Span, Topology, line, waxman
from accord.sim.workloads import Publisher, Subscriber, Workload
from tests.sim.overlay_runs import AcknowledgedChecker

S: Final = 1_000_000
ATTACKED: Final = 20 * S
ATTACKS_END: Final = 30 * S
RECOVERED: Final = ATTACKS_END + 70 * S  # a node that outdoes others waits up to 64 s in between
LEAP: Final = 1 << 42
OPTIONS: Final = OverlayOptions(ping_us=S, refresh_us=2 * S, idle_us=8 * S)
LIAR: Final = "liar"


class Liar(OverlayNode):
    """Says what others say, and at some times what nobody said."""

    def __init__(self, start: Start, victim: str, seed: int, times: int) -> None:
        super().__init__(start, OPTIONS)
        self.victim = victim
        self._random = Random(f"lies {seed}")  # noqa: S311
        self._due_us = sorted(self._random.randrange(ATTACKED, ATTACKS_END) for _ in range(times))

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        while self._due_us and self._due_us[0] <= now_us:
            self._due_us.pop(0)
            lie = self._lie()
            self.overlay.store.sends += [(each, lie) for each in self.overlay.used_neighbours()]

    def next_due_us(self) -> int:
        due_us = super().next_due_us()
        return min(due_us, self._due_us[0]) if self._due_us else due_us

    def _lie(self) -> FactMessage:
        """That the victim has started anew, or changed its mind, and needs and reaches nothing."""
        incarnation, version = self.overlay.store.version_of(self.victim)
        rise = self._random.choice((0, 0, 1, 1_000, 1 << 30, LEAP, MAX_STAMP - incarnation))
        higher = self._random.choice((version + 10, version + 1_000, MAX_STAMP))
        if self._random.random() < 0.25:
            return VersionVector({self.victim: (incarnation + rise, higher)})
        return StateDelta(self.victim, incarnation + rise, 0, higher, ())


class OthersChecker(AcknowledgedChecker):
    """What is not for the victim arrives, and its own again once it has recovered."""

    def __init__(self, victim: str) -> None:
        super().__init__()
        self._victim = victim

    def missed(self, publication: Publication, subscriber: str, node: str, now_us: int) -> None:
        is_attacked = ATTACKED <= publication.published_us < RECOVERED
        if self._victim not in (node, publication.node) or not is_attacked:
            super().missed(publication, subscriber, node, now_us)


def attacked(topology: Topology, victim: str, seed: int, times: int) -> Simulation:
    """Every node publishes, and needs, all that the others do."""

    def make(start: Start) -> Machine:
        if start.name == LIAR:
            return Liar(start, victim, seed, times)
        return OverlayNode(start, OPTIONS)

    honest = [name for name in topology.nodes if name != LIAR]
    workload = Workload(
        publishers=tuple(
            Publisher(
                name=f"p {name}", node=name, channel="sea", qos=1, begin_us=5 * S,
                end_us=RECOVERED + 20 * S,
            )
            for name in honest
        ),
        subscribers=tuple(
            Subscriber(name=f"s {name}", node=name, filter="sea", qos=1) for name in honest
        ),
    )  # fmt: skip
    return Simulation(
        topology,
        make,
        seed=seed,
        workload=workload,
        checkers=[OthersChecker(victim)],
        options=Options(settle_us=10 * S, patience_us=10 * S),
    )


def with_liar(topology: Topology, at: str) -> Topology:
    return Topology("lied to", (*topology.nodes, LIAR), (*topology.spans, Span(at, LIAR, 5_000)))


def needs_at(world: Simulation, name: str, victim: str) -> dict[str, bytes]:
    machine = world.machine(name)
    assert isinstance(machine, OverlayNode)
    return machine.overlay.store.of(victim, INTEREST)


def links_at(world: Simulation, name: str, victim: str) -> dict[str, bytes]:
    machine = world.machine(name)
    assert isinstance(machine, OverlayNode)
    return machine.overlay.store.of(victim, LINK)


@pytest.mark.parametrize("seed", range(20))
def test_who_is_lied_about_is_heard_again(seed: int) -> None:
    topology = waxman(7, seed)
    victim, near = Random(f"victim {seed}").sample(topology.nodes, 2)  # noqa: S311
    world = attacked(with_liar(topology, near), victim, seed, times=1 + seed % 12)
    world.run(RECOVERED + 40 * S).check()
    for name in topology.nodes:
        assert needs_at(world, name, victim) == needs_at(world, victim, victim) != {}


@pytest.mark.parametrize("seed", range(4))
def test_one_lie_is_outdone_at_once(seed: int) -> None:
    """As soon as the victim knows: it takes as long as the lie took, and back."""
    topology = line(5, 10_000)
    world = attacked(with_liar(topology, "n4"), "n0", seed, times=1)
    world.advance(ATTACKED)
    known = links_at(world, "n4", "n0")
    world.advance(ATTACKS_END + S)
    assert known
    assert links_at(world, "n4", "n0").keys() == known.keys()


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_of_the_victim_believe_nobody_else(seed: int) -> None:
    world = attacked(with_liar(line(4, 10_000), "n3"), "n0", seed, times=100)
    world.advance(ATTACKED)
    known = needs_at(world, "n1", "n0")
    assert known
    for now_us in range(ATTACKED, ATTACKS_END, 20_000):
        world.advance(now_us)
        assert needs_at(world, "n1", "n0") == known
