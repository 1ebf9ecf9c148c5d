"""Random overlays with persistent channels: clients that come at any time get all there ever was.

Links lose, delay and reorder, nodes crash and are cut off, all from a seed. In the end, when all
has been well for a while, each client has each event once, in the order of its publisher; only a
durable one whose own node crashed may have some twice. `scripts/persistent_runs.py` makes many.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from msgspec.structs import replace

from accord.core.channels.history.messages import PERSISTENT
from accord.core.channels.history.peer_replay import LIVE
from accord.core.model.channels import filter_selects
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.delays import Lognormal
from accord.sim.faults import RandomFaults
from accord.sim.links import LinkModel
from accord.sim.machine import Start
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Topology, geometric, line, ring
from accord.sim.workloads import Publisher, Subscriber, Workload
from tests.sim.persistent_nodes import Client, Ground, Host, PersistentNode

S: Final = 1_000_000
PUBLISH_US: Final = 8 * S
FAULTS_END: Final = 70 * S
PUBLISHED_US: Final = 80 * S
CALM_US: Final = 90 * S
END_US: Final = 170 * S
SETTLING_US: Final = 70 * S  # then all must be well
CHANNELS: Final = ("chat/one", "chat/two")
TEMPLATES: Final = ("routed", "routed", "reliable", "total_order")


class WholeChecker(Checker):
    """Nobody lacks anything, has anything twice, or out of order."""

    name = "whole"

    def __init__(self, ground: Ground, *, is_ordered: bool) -> None:
        super().__init__()
        self.ground = ground
        self._is_ordered = is_ordered
        self.clients = 0
        self.events = 0

    def ended(self, world: CheckedRun, now_us: int) -> None:
        for name, machine in world.machines().items():
            assert isinstance(machine, Host)
            for past in machine.pasts.values():
                if past.client.began_us > now_us - SETTLING_US:
                    continue  # it came late
                self._look_at(past.client, name, now_us)
                assert past.recall is not None
                states = [(each.node, each.phase) for each in past.recall.sources.values()]
                if any(phase != LIVE for _, phase in states):
                    self.find(now_us, name, f"{past.name} is not live: {states}")

    def _look_at(self, client: Client, node: str, now_us: int) -> None:
        self.clients += 1
        self.events += len(client.got)
        wish, published = client.wish, self.ground.published
        wanted = [
            number
            for number, each in published.items()
            if filter_selects(wish.filter, each.channel)
        ]
        got = dict.fromkeys(client.got, 0)
        for number in client.got:
            got[number] += 1
        missing = [number for number in wanted if number not in got]
        twice = [number for number, count in got.items() if count > 1]
        if missing:
            self.find(now_us, node, f"{wish.subscriber} lacks {self._what(missing)}")
        if twice and not client.has_lost_node:
            self.find(now_us, node, f"{wish.subscriber} has twice {self._what(twice)}")
        last: dict[tuple[str, str], int] = {}
        for number in got if self._is_ordered else ():
            each = published[number]
            key = (each.publisher, each.channel)
            # What was missing for a while comes late.
            if each.sequence < last.get(key, 0) and each.node not in client.notices:
                self.find(now_us, node, f"{wish.subscriber} got {self._what([number])} late")
            last[key] = each.sequence

    def _what(self, numbers: list[int]) -> str:
        found = [self.ground.published[number] for number in numbers]
        words = [
            f"{each.publisher}@{each.node} {each.sequence} of {each.published_us / S:.1f} s"
            for each in found[:4]
        ]
        return f"{len(numbers)}: {', '.join(words)}"


def _topology(random: Random) -> Topology:
    count = random.randint(2, 7)
    seed = random.randrange(1 << 30)
    return random.choice(
        (lambda: line(count), lambda: ring(count + 1), lambda: geometric(count, seed))
    )()


def subscriber(
    random: Random, number: int, nodes: Sequence[str], moments_us: Sequence[int]
) -> Subscriber:
    """At one of the nodes, from about some moment on; some are durable, some come and go."""
    is_durable = random.random() < 1 / 3
    is_restless = not is_durable and random.random() < 1 / 4
    return Subscriber(
        name=f"{'d' if is_durable else 's'}{number}",
        node=random.choice(nodes),
        filter=random.choice((*CHANNELS, "chat/#")),
        begin_us=random.choice(moments_us) + random.randrange(S),
        there_us=15 * S,
        away_us=5 * S if is_restless else 0,
    )


def link_model(random: Random) -> LinkModel:
    loss = random.choice((0.0, 0.0, 0.05, 0.2))
    return LinkModel(
        delay=Lognormal(random.choice((2_000, 20_000)), 0.3),
        loss=loss,
        duplication=random.choice((0.0, 0.1)) if loss else 0.0,
        mode="datagram" if loss else "stream",
        dead_us=3 * S,
    )


def definitions_of(template: str) -> list[ChannelDefinition]:
    return [
        ChannelDefinition(name=each, template=template, options={PERSISTENT: "true"})
        for each in CHANNELS
    ]


def _workload(random: Random, topology: Topology) -> Workload:
    publishers = [
        Publisher(
            name=f"p{number}",
            node=random.choice(topology.nodes),
            channel=random.choice(CHANNELS),
            rate_hz=random.choice((0.5, 3.0, 12.0)),
            pattern=random.choice(("steady", "poisson", "burst")),
            qos=1,
            begin_us=PUBLISH_US,
            end_us=PUBLISHED_US,
        )
        for number in range(random.randint(1, 4))
    ]
    moments_us = [each * S for each in (0, 20, 40, 60, 75)]
    subscribers = [
        subscriber(random, number, topology.nodes, moments_us)
        for number in range(random.randint(2, 6))
    ]
    return Workload(publishers=tuple(publishers), subscribers=tuple(subscribers))


def simulation(seed: int, *, is_checking: bool = True) -> tuple[Simulation, Ground, WholeChecker]:
    random = Random(f"persistent {seed}")  # noqa: S311
    topology = _topology(random)
    template = random.choice(TEMPLATES)
    model = link_model(random)
    fails = bool(seed % 3)
    faults = RandomFaults(
        begin_us=PUBLISH_US + 5 * S,
        end_us=FAULTS_END,
        link_down_share=random.choice((0.0, 0.05, 0.1)),
        link_down_us=random.choice((2, 8)) * S,
        node_down_share=random.choice((0.0, 0.05, 0.15)),
        node_down_us=random.choice((1, 6)) * S,
        silent_share=0.5,
        partition_share=random.choice((0.0, 0.0, 0.2)),
        partition_us=6 * S,
    )
    ground = Ground()
    definitions = definitions_of(template)
    overlay = OverlayOptions(publish_flows_us=0, publish_arrivals_us=0)

    def make(start: Start) -> PersistentNode:
        return PersistentNode(start, ground, definitions, overlay)

    # Where links or nodes fail, what was lost comes behind what came live before that was noticed.
    checker = WholeChecker(ground, is_ordered=template == "reliable" or not (model.loss or fails))
    made = Simulation(
        topology,
        make,
        seed=seed,
        model=model,
        faults=faults.script(topology, seed) if fails else [],
        workload=_workload(random, topology),
        checkers=[checker],
        options=Options(is_checking=is_checking, is_tracing=False),
        replay=f"python scripts/persistent_runs.py --seed {seed}",
    )
    made.clock.at(CALM_US, calm, made)
    return made, ground, checker


def calm(_: int, made: Simulation) -> None:
    """From now on links lose nothing, so that nobody takes nodes for gone that are there."""
    for link in made.network.links.values():
        link.model = replace(link.model, loss=0.0, duplication=0.0)


def run(seed: int, *, is_checking: bool = True) -> tuple[Outcome, Ground, WholeChecker]:
    made, ground, checker = simulation(seed, is_checking=is_checking)
    return made.run(END_US), ground, checker
