"""Random overlays of two tiers with persistent channels: clients of secondary nodes get it all.

Children are linked with two of the backbone nodes. Links lose, delay and reorder; nodes of both
tiers crash, links break and parts are cut off, one at a time or at random, all from a seed.
In the end, when all has been well for a while, each client has each event that was kept once; only
a durable one whose own node crashed may have some twice. What a child that never crashed has
published was kept. `scripts/persistent_tier_runs.py` makes many.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Final

from msgspec.structs import replace

from accord.core.overlay.options import OverlayOptions
from accord.core.tiers.messages import TierOptions
from accord.sim.checkers import CheckedRun
from accord.sim.faults import NodeDown, NodeUp, RandomFaults, Timed
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Span, Topology
from accord.sim.workloads import Publisher, Workload
from tests.sim import tier_runs
from tests.sim.persistent_nodes import Ground
from tests.sim.persistent_runs import (
    CHANNELS,
    TEMPLATES,
    WholeChecker,
    calm,
    definitions_of,
    link_model,
    subscriber,
)
from tests.sim.persistent_tier_nodes import ChildNode, ParentNode, persistent_tiers
from tests.sim.tier_nodes import CHILD, is_child

S: Final = 1_000_000
PUBLISH_US: Final = 8 * S
FAULTS_US: Final = 12 * S
SHORT_US: Final = 40 * S  # until when is published, and things fail
LONG_US: Final = 150 * S  # so that some subscriptions have been live for long when something fails
CALM_US: Final = 5 * S  # after that
END_US: Final = 85 * S
TIERS: Final = TierOptions(pulse_us=200_000, again_us=100_000, return_us=5 * S, lease_us=12 * S)
_LITTLE: Final = 16  # events that are kept for a child, so that some are shed


class WholeTiersChecker(WholeChecker):
    """Also, nothing is lost on its way up."""

    def __init__(self, ground: Ground, *, is_ordered: bool) -> None:
        super().__init__(ground, is_ordered=is_ordered)
        self.at_children = 0
        self.switches = 0
        self.shed = 0

    def ended(self, world: CheckedRun, now_us: int) -> None:
        super().ended(world, now_us)
        for name, machine in world.machines().items():
            if isinstance(machine, ParentNode):
                self.shed += sum(sum(each.lost.values()) for each in machine.parent.status())
            if isinstance(machine, ChildNode):
                self.switches += machine.child.selector.switches
                self.at_children += sum(len(each.client.got) for each in machine.pasts.values())
                if self.ground.starts[name] == 1:
                    sent = [each for each in self.ground.sent.values() if each.node == name]
                    lost = [each for each in sent if each.number not in self.ground.published]
                    if lost:
                        self.find(now_us, name, f"{len(lost)} of {len(sent)} events were not kept")


def _topology(random: Random) -> Topology:
    backbone = [f"b{number}" for number in range(random.randint(2, 4))]
    spans = [Span(one, other) for one, other in pairwise(backbone)]
    if len(backbone) > 2:
        spans.append(Span(backbone[-1], backbone[0]))
    children = [f"{CHILD}{number}" for number in range(random.randint(1, 2))]
    spans += [Span(child, each) for child in children for each in random.sample(backbone, 2)]
    return Topology("tiers", [*backbone, *children], spans)


def _workload(random: Random, topology: Topology, until_us: int) -> Workload:
    children = [each for each in topology.nodes if is_child(each)]
    publishers = [
        Publisher(
            name=f"p{number}",
            node=random.choice(children if number == 1 else topology.nodes),
            channel=random.choice(CHANNELS),
            rate_hz=random.choice((1.0, 3.0, 8.0)) * SHORT_US / until_us,
            pattern=random.choice(("steady", "poisson", "burst")),
            qos=1,
            begin_us=PUBLISH_US,
            end_us=until_us,
        )
        for number in range(random.randint(2, 3))
    ]
    moments_us = [each * until_us // 40 for each in (0, 10, 20, 30, 38)]
    subscribers = [
        subscriber(random, number, children if number % 3 < 2 else topology.nodes, moments_us)
        for number in range(random.randint(2, 4))
    ]
    return Workload(publishers=tuple(publishers), subscribers=tuple(subscribers))


def _faults(random: Random, topology: Topology, seed: int, until_us: int) -> list[Timed]:
    """None, one after the other, or whatever comes at whichever nodes."""
    if seed % 3 == 0:
        return []
    if seed % 3 == 1:
        return tier_runs.faults_of(random, topology, until_us)
    any_faults = RandomFaults(
        begin_us=FAULTS_US,
        end_us=until_us,
        link_down_share=random.choice((0.0, 0.05, 0.15)),
        link_down_us=random.choice((2, 6)) * S,
        node_down_share=random.choice((0.0, 0.1, 0.2)),
        node_down_us=random.choice((1, 5)) * S,
        silent_share=0.5,
        partition_share=random.choice((0.0, 0.0, 0.2)),
        partition_us=5 * S,
    )
    if random.random() < 1 / 2:
        return any_faults.script(topology, seed)
    return _orphans(random, topology, until_us)


def _orphans(random: Random, topology: Topology, until_us: int) -> list[Timed]:
    """Again and again, all parents of a child fail at once, with what they keep for it."""
    faults: list[Timed] = []
    at_us = FAULTS_US + random.randrange(5 * S)
    while at_us < until_us:
        child = random.choice([each for each in topology.nodes if is_child(each)])
        is_silent = random.random() < 1 / 2
        for parent in [span.other for span in topology.spans if span.one == child]:
            faults.append(Timed(at_us, NodeDown(parent, is_silent=is_silent)))
            faults.append(Timed(at_us + 2 * S, NodeUp(parent)))
        at_us += 8 * S + random.randrange(8 * S)
    return faults


def until_of(seed: int) -> int:
    return LONG_US if seed % 4 == 3 else SHORT_US


def simulation(
    seed: int, *, is_checking: bool = True
) -> tuple[Simulation, Ground, WholeTiersChecker]:
    random = Random(f"persistent tiers {seed}")  # noqa: S311
    topology = _topology(random)
    template = random.choice(TEMPLATES)
    model = link_model(random)
    # So narrow that something waits for the children most of the time.
    narrow = replace(model, rate_bps=random.choice((0, 40_000)))
    until_us = until_of(seed)
    faults = _faults(random, topology, seed, until_us)
    ground = Ground(channels=CHANNELS)
    kept = random.choice((TIERS.kept_events, _LITTLE))
    # What failed, or was shed, comes behind what came live before that was noticed.
    is_ordered = not (model.loss or faults or kept == _LITTLE)
    checker = WholeTiersChecker(ground, is_ordered=is_ordered)
    made = Simulation(
        topology,
        persistent_tiers(
            ground,
            definitions_of(template),
            OverlayOptions(publish_flows_us=0, publish_arrivals_us=0),
            replace(TIERS, kept_events=kept),
        ),
        seed=seed,
        model=lambda span: narrow if is_child(span.one) else model,
        faults=faults,
        workload=_workload(random, topology, until_us),
        checkers=[checker],
        options=Options(is_checking=is_checking, is_tracing=False),
        replay=f"python scripts/persistent_tier_runs.py --seed {seed}",
    )
    made.clock.at(until_us + CALM_US, calm, made)
    return made, ground, checker


def run(seed: int, *, is_checking: bool = True) -> tuple[Outcome, Ground, WholeTiersChecker]:
    made, ground, checker = simulation(seed, is_checking=is_checking)
    return made.run(until_of(seed) + END_US), ground, checker
