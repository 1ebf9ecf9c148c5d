"""Random overlays with secondary nodes: whatever fails one at a time, a reliable channel keeps all.

A backbone of four to six nodes has children, each linked with two of them. The links of the
children lose up to half of what they carry, delay it and let it overtake; parents crash and come
back, links break, told or not. What a client of any node published to a reliable channel comes to
every client that stays, once and in order; on channels with one order for all, in that. What one
answers to the source of an event, at whichever node, comes there once. In the end all clients
leave, some children end, and nobody keeps anything for a child, or knows of one that has ended.
`scripts/tier_runs.py` makes many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.tiers.messages import TierOptions
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.delays import Lognormal
from accord.sim.faults import LinkDown, LinkUp, NodeDown, NodeUp, Timed
from accord.sim.guarantee_checkers import (
    CompletenessChecker,
    IncarnationChecker,
    InOrderChecker,
    NoDuplicatesChecker,
    SameOrderChecker,
)
from accord.sim.links import LinkModel
from accord.sim.machine import Machine, Publication
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Span, Topology
from accord.sim.workloads import Publisher, Subscriber, Workload
from tests.sim.tier_nodes import (
    ANSWERS,
    CHILD,
    BackboneNode,
    SecondaryNode,
    is_child,
    tier_nodes,
)

S: Final = 1_000_000
PUBLISH_US: Final = 8 * S
FAULTS_US: Final = 12 * S  # from then on
PUBLISHED_US: Final = 40 * S
PATIENCE_US: Final = 16 * S
LEAVE_US: Final = PUBLISHED_US + PATIENCE_US + 2 * S  # all clients
GONE_US: Final = LEAVE_US + 4 * S  # in some runs, all children
END_US: Final = GONE_US + 15 * S
CHANNELS: Final = ("room/one", "room/two")
TIERS: Final = TierOptions(pulse_us=200_000, again_us=100_000, return_us=5 * S, lease_us=12 * S)


class NothingLeftChecker(Checker):
    """When all clients have left nobody keeps events for a child, or any of its needs."""

    name = "left"

    def __init__(self) -> None:
        super().__init__()
        self.switches = 0
        self.again = 0
        self.lost = 0

    def ended(self, world: CheckedRun, now_us: int) -> None:
        for name, machine in world.machines().items():
            if isinstance(machine, SecondaryNode):
                self._look_at_child(machine, name, now_us)
            elif isinstance(machine, BackboneNode):
                self._look_at_parent(machine, name, world.machines(), now_us)

    def _look_at_child(self, machine: SecondaryNode, name: str, now_us: int) -> None:
        status = machine.child.status()
        self.switches += status.switches
        self.again += status.again
        if status.waiting:
            self.find(now_us, name, f"{status.waiting} events are not with everybody")
        if sum(each.is_active for each in status.parents) != 1:
            self.find(now_us, name, f"no active parent: {status.parents}")
        if status.lost:
            self.find(now_us, name, f"lost on the way up: {status.lost}")

    def _look_at_parent(
        self, machine: BackboneNode, name: str, running: Mapping[str, Machine], now_us: int
    ) -> None:
        for child in machine.parent.status():
            self.lost += sum(child.lost.values())
            if child.name not in running:
                self.find(now_us, name, f"{child.name} has left and is still known")
            if machine.answering.destinations(child.name) == [] and child.name in running:
                self.find(now_us, name, f"nobody knows the way to {child.name}")
            if child.interests or child.waiting or child.unsettled or child.lost:
                self.find(now_us, name, f"left of a child: {child}")
        for child_name in machine.answering._parents:
            if child_name not in running:
                self.find(now_us, name, f"{child_name} has left, and answers would be sent there")
        if machine.children._interests or machine.children.remotes.nodes:
            self.find(now_us, name, f"needs are left: {list(machine.children._interests)}")


class EventsInOrderChecker(InOrderChecker):
    """Answers promise no order."""

    def delivered(
        self, publication: Publication, subscriber: str, node: str, now_us: int, *, is_first: bool
    ) -> None:
        if not publication.channel.startswith(ANSWERS):
            super().delivered(publication, subscriber, node, now_us, is_first=is_first)


def topology_of(random: Random) -> Topology:
    """A ring with some chords, so that any one node may fail; children linked with two each."""
    backbone = [f"b{number}" for number in range(random.randint(4, 6))]
    count = len(backbone)
    spans = [Span(backbone[at], backbone[(at + 1) % count]) for at in range(count)]
    if random.random() < 1 / 2:
        spans.append(Span(backbone[0], backbone[2]))
    children = []
    for number in range(random.randint(1, 4)):
        child = f"{CHILD}{number}"
        children.append(child)
        spans += [Span(child, parent) for parent in random.sample(backbone, 2)]
    return Topology("tiers", [*backbone, *children], spans)


def workload_of(random: Random, topology: Topology) -> Workload:
    children = [each for each in topology.nodes if is_child(each)]
    publishers = [
        Publisher(
            name=f"p{number}",
            node=random.choice(children if number % 2 == 0 else topology.nodes),
            channel=random.choice(CHANNELS),
            rate_hz=random.choice((1.0, 3.0, 6.0)),
            pattern=random.choice(("steady", "poisson", "burst")),
            begin_us=PUBLISH_US,
            end_us=PUBLISHED_US,
        )
        for number in range(random.randint(2, 4))
    ]
    subscribers = []
    for number in range(random.randint(2, 6)):
        is_restless = random.random() < 1 / 4
        subscribers.append(
            Subscriber(
                name=f"s{number}",
                node=random.choice(children if number % 3 < 2 else topology.nodes),
                filter=random.choice((*CHANNELS, "room/#")),
                begin_us=0 if random.random() < 3 / 4 else random.randrange(25) * S,
                there_us=15 * S,
                away_us=5 * S if is_restless else 0,
                end_us=LEAVE_US,
            )
        )
    return Workload(publishers=tuple(publishers), subscribers=tuple(subscribers))


def with_answers(random: Random, topology: Topology, workload: Workload) -> Workload:
    """Some who answer, mostly children, and sources at nodes of both tiers who hear them."""
    children = [each for each in topology.nodes if is_child(each)]
    publishers, subscribers = [*workload.publishers], [*workload.subscribers]
    for number in range(random.randint(2, 4)):
        source = random.choice(children if random.random() < 1 / 2 else topology.nodes)
        others = [each for each in topology.nodes if each != source]
        answering = [each for each in children if each != source]
        publishers.append(
            Publisher(
                name=f"answering {number}",
                node=random.choice(answering if answering and number % 3 < 2 else others),
                channel=f"{ANSWERS}{source}",
                rate_hz=random.choice((3.0, 10.0, 30.0)),
                pattern=random.choice(("steady", "poisson", "burst")),
                qos=1,
                begin_us=PUBLISH_US,
                end_us=PUBLISHED_US,
            )
        )
        subscribers.append(
            Subscriber(
                name=f"source {number}",
                node=source,
                filter=f"{ANSWERS}{source}",
                there_us=15 * S,
                end_us=LEAVE_US,
            )
        )
    return Workload(publishers=tuple(publishers), subscribers=tuple(subscribers))


def faults_of(random: Random, topology: Topology, until_us: int = PUBLISHED_US) -> list[Timed]:
    """One after the other: while a child has lost one parent it keeps the other."""
    backbone = [each for each in topology.nodes if not is_child(each)]
    spans = [each for each in topology.spans if is_child(each.one)]
    faults: list[Timed] = []
    at_us = FAULTS_US + random.randrange(5 * S)
    while at_us < until_us:
        lasts_us = random.choice((S // 2, 2 * S, 6 * S))
        if random.random() < 1 / 2:
            node = random.choice(backbone)
            faults.append(Timed(at_us, NodeDown(node, is_silent=random.random() < 1 / 2)))
            faults.append(Timed(at_us + lasts_us, NodeUp(node)))
        else:
            span = random.choice(spans)
            is_told = random.random() < 1 / 2
            faults.append(Timed(at_us, LinkDown(span.one, span.other, is_told=is_told)))
            faults.append(Timed(at_us + lasts_us, LinkUp(span.one, span.other)))
        at_us += lasts_us + 9 * S + random.randrange(4 * S)
    return faults


def departures(topology: Topology) -> list[Timed]:
    """The ends of all children, without a word."""
    children = [each for each in topology.nodes if is_child(each)]
    return [Timed(GONE_US, NodeDown(child, is_silent=True)) for child in children]


def model_of(random: Random, loss: float) -> Callable[[Span], LinkModel]:
    backbone = LinkModel(delay=Lognormal(random.choice((2_000, 10_000)), 0.3), dead_us=3 * S)
    lossy = LinkModel(
        delay=Lognormal(random.choice((2_000, 20_000)), 0.5),
        loss=loss,
        duplication=random.choice((0.0, 0.1)),
        mode=random.choice(("stream", "datagram", "datagram")) if loss < 1 / 2 else "datagram",
        dead_us=3 * S,
    )
    return lambda span: lossy if is_child(span.one) else backbone


def simulation(seed: int, *, is_checking: bool = True) -> tuple[Simulation, NothingLeftChecker]:
    random = Random(f"tiers {seed}")  # noqa: S311
    is_ordered = seed % 5 == 4
    template = "total_order" if is_ordered else "reliable"
    topology = topology_of(random)
    for_answers = Random(f"answers {seed}")  # noqa: S311
    left = NothingLeftChecker()
    checkers: list[Checker] = [
        NoDuplicatesChecker(),
        EventsInOrderChecker(),
        CompletenessChecker(),
        left,
    ]
    if is_ordered:
        checkers.append(SameOrderChecker())
    run = Simulation(
        topology,
        tier_nodes(
            OverlayOptions(publish_flows_us=0, publish_arrivals_us=0),
            TIERS,
            [ChannelDefinition(name="room/#", template=template)],
        ),
        seed=seed,
        model=model_of(random, random.choice((0.0, 0.05, 0.2, 0.5))),
        faults=[
            *(faults_of(random, topology) if seed % 4 else []),
            *(departures(topology) if seed % 2 else []),
        ],
        workload=with_answers(for_answers, topology, workload_of(random, topology)),
        checkers=checkers,
        options=Options(
            is_checking=is_checking, is_tracing=False, settle_us=8 * S, patience_us=PATIENCE_US
        ),
        replay=f"python scripts/tier_runs.py --seed {seed}",
    )
    for checker in checkers:
        if isinstance(checker, IncarnationChecker):
            checker.uptime = run
    return run, left


def run(seed: int, *, is_checking: bool = True) -> tuple[Outcome, NothingLeftChecker]:
    made, left = simulation(seed, is_checking=is_checking)
    return made.run(END_US), left
