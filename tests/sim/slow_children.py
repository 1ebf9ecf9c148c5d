"""A child whose links carry less than is published: its publishers wait, and nobody loses anything.

Clients at nodes of both tiers publish faster than the slow child's links can take it, and go on
when there is room. Parents keep little for it, so that it is the streams that hold the sources
back. In some worlds a link of the child fails on the way: the other parent has what was kept, and
the one that lost the child holds nobody back. Nothing is lost, and nowhere is more than may be.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.tiers.messages import TierOptions
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.delays import Constant
from accord.sim.faults import LinkDown, LinkUp, Timed
from accord.sim.guarantee_checkers import (
    CompletenessChecker,
    IncarnationChecker,
    InOrderChecker,
    NoDuplicatesChecker,
    SameOrderChecker,
)
from accord.sim.links import LinkModel
from accord.sim.machine import Make, Publication, Start
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Span, Topology
from accord.sim.workloads import Publisher, Subscriber, Workload
from tests.sim.tier_nodes import BackboneNode, SecondaryNode, is_child

S: Final = 1_000_000
SLOW: Final = "x0"
PUBLISH_US: Final = 8 * S
PUBLISHED_US: Final = 18 * S
LEAVE_US: Final = 130 * S
END_US: Final = LEAVE_US + 10 * S
KEPT: Final = 512
TIERS: Final = TierOptions(
    pulse_us=200_000, return_us=5 * S, lease_us=12 * S, kept_events=KEPT, up_events=64
)


class _Waiting:
    """Publications of clients that may not go on yet."""

    def __init__(self) -> None:
        self.queue: deque[Publication] = deque()
        self.held = 0  # how many had to wait


class PatientBackbone(BackboneNode):
    def __init__(self, start: Start, definitions: list[ChannelDefinition]) -> None:
        options = OverlayOptions(publish_flows_us=0, publish_arrivals_us=0)
        super().__init__(start, options, TIERS, definitions)
        self.waiting = _Waiting()

    def publish(self, publication: Publication, now_us: int) -> None:
        self.waiting.queue.append(publication)
        if not self._go_on(now_us):
            self.waiting.held += 1

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self._go_on(now_us)

    def next_due_us(self) -> int:
        due_us = super().next_due_us()
        return min(due_us, self._now_us + 20_000) if self.waiting.queue else due_us

    def _go_on(self, now_us: int) -> bool:
        queue = self.waiting.queue
        while queue and self.channels.has_room(queue[0].channel):
            super().publish(queue.popleft(), now_us)
        return not queue


class PatientSecondary(SecondaryNode):
    def __init__(self, start: Start) -> None:
        super().__init__(start, TIERS)
        self.waiting = _Waiting()

    def publish(self, publication: Publication, now_us: int) -> None:
        self.waiting.queue.append(publication)
        if not self._go_on(now_us):
            self.waiting.held += 1

    def advance(self, now_us: int) -> None:
        super().advance(now_us)
        self._go_on(now_us)

    def next_due_us(self) -> int | None:
        due_us = super().next_due_us()
        soon_us = self._now_us + 20_000
        if not self.waiting.queue:
            return due_us
        return soon_us if due_us is None else min(due_us, soon_us)

    def _go_on(self, now_us: int) -> bool:
        queue = self.waiting.queue
        while queue and self.child.has_room(queue[0].channel):
            super().publish(queue.popleft(), now_us)
        return not queue


def nodes(definitions: list[ChannelDefinition]) -> Make:
    def make(start: Start) -> BackboneNode | SecondaryNode:
        if is_child(start.name):
            return PatientSecondary(start)
        return PatientBackbone(start, definitions)

    return make


class NothingGivenUpChecker(Checker):
    """Publishers have waited, parents were full, and nobody has given anything up."""

    name = "given up"

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.most = 0  # that was kept for the slow child

    def sampled(self, world: CheckedRun, now_us: int) -> None:
        for name, machine in world.machines().items():
            if isinstance(machine, BackboneNode):
                for child in machine.parent.status():
                    self._look_at(child.name, child.waiting, child.lost, name, now_us)

    def ended(self, world: CheckedRun, now_us: int) -> None:
        for name, machine in world.machines().items():
            if isinstance(machine, PatientBackbone | PatientSecondary):
                self.held += machine.waiting.held
                if machine.waiting.queue:
                    self.find(now_us, name, f"{len(machine.waiting.queue)} are still waiting")
            if isinstance(machine, SecondaryNode) and machine.child.status().lost:
                self.find(now_us, name, f"lost on the way up: {machine.child.status().lost}")

    def _look_at(
        self, child: str, waiting: int, lost: dict[str, int], name: str, now_us: int
    ) -> None:
        if child == SLOW:
            self.most = max(self.most, waiting)
        if lost or waiting > 9 * KEPT:
            self.find(now_us, name, f"{waiting} for {child}, lost {lost}")


def simulation(
    seed: int, template: str, *, is_checking: bool
) -> tuple[Simulation, NothingGivenUpChecker]:
    random = Random(f"slow {seed}")  # noqa: S311
    backbone = ["b0", "b1", "b2", "b3"]
    spans = [Span(one, other) for one, other in zip(backbone, [*backbone[1:], "b0"], strict=True)]
    spans += [Span(SLOW, "b0"), Span(SLOW, "b1"), Span("x1", "b1"), Span("x1", "b2")]
    topology = Topology("slow", [*backbone, SLOW, "x1"], spans)
    publishers = [
        Publisher(
            name=f"p{number}",
            node=node,
            channel="room",
            rate_hz=180.0,
            pattern=random.choice(("steady", "poisson", "burst")),
            begin_us=PUBLISH_US,
            end_us=PUBLISHED_US,
        )
        for number, node in enumerate(("b3", random.choice(("b0", "b1")), "x1"))
    ]
    subscribers = [
        Subscriber(name=f"s{number}", node=node, filter="room", end_us=LEAVE_US)
        for number, node in enumerate((SLOW, SLOW, "b2", "x1"))
    ]
    slow = LinkModel(delay=Constant(10_000), rate_bps=160_000, dead_us=3 * S)
    fast = LinkModel(delay=Constant(2_000), dead_us=3 * S)
    left = NothingGivenUpChecker()
    checkers: list[Checker] = [NoDuplicatesChecker(), InOrderChecker(), CompletenessChecker(), left]
    if template == "total_order":
        checkers.append(SameOrderChecker())
    definition = ChannelDefinition(
        name="room",
        template=template,
        options={"slow_members": "wait"} if random.random() < 1 / 2 else {},
    )
    made = Simulation(
        topology,
        nodes([definition]),
        seed=seed,
        model=lambda span: slow if span.one == SLOW else fast,
        faults=faults_of(random, seed),
        workload=Workload(publishers=tuple(publishers), subscribers=tuple(subscribers)),
        checkers=checkers,
        options=Options(
            is_checking=is_checking, is_tracing=False, settle_us=8 * S, patience_us=100 * S
        ),
        replay=f"tests.sim.slow_children.run({seed}, {template!r})",
    )
    for checker in checkers:
        if isinstance(checker, IncarnationChecker):
            checker.uptime = made
    return made, left


def faults_of(random: Random, seed: int) -> list[Timed]:
    """In every second world a link of the slow child fails; the other one for long."""
    at_us = PUBLISH_US + random.randrange(2 * S, 30 * S)
    if seed % 4 == 1:
        return [
            Timed(at_us, LinkDown(SLOW, "b0", is_told=random.random() < 1 / 2)),
            Timed(at_us + 4 * S, LinkUp(SLOW, "b0")),
        ]
    if seed % 4 == 2:
        return [
            Timed(at_us, LinkDown(SLOW, "b1", is_told=random.random() < 1 / 2)),
            Timed(at_us + 20 * S, LinkUp(SLOW, "b1")),
        ]
    return []


def run(
    seed: int, template: str = "reliable", *, is_checking: bool = True
) -> tuple[Outcome, NothingGivenUpChecker]:
    made, left = simulation(seed, template, is_checking=is_checking)
    return made.run(END_US), left
