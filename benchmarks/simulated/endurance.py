"""A long run of an overlay whose links lose much, while nodes and subscribers come and go.

In the end, a while after the last fault, all nodes must know the same needs and channels, and the
same links to be up. Until then the invariants of all machines are checked again
and again, and what was published with QoS 1 must arrive, unless a node of its way was the one that
failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import process_time
from typing import Final

from accord.core.overlay.channel_directory import CHANNEL
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import INTEREST, LINK, Overlay
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.faults import RandomFaults
from accord.sim.links import LinkModel, with_delays
from accord.sim.machine import ChannelSpec, Publication
from accord.sim.node import OverlayNode, overlay_nodes
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Span, Topology, waxman
from accord.sim.workloads import Publisher, Range, Subscriber, Workload

S: Final = 1_000_000
NODES: Final = 100
LOSSES: Final = (0.0, 0.05, 0.2, 0.5)
_BEGIN_US: Final = 30 * S
_QUIET_US: Final = 180 * S  # without faults, in the end
_CHECK_US: Final = 10 * S


@dataclass(frozen=True)
class Endured:
    hours: float
    outcome: Outcome
    cpu_s: float
    checks: int  # of the invariants of one node
    acknowledged: int
    missed: int
    sent_again: int
    computed: int


class InvariantChecker(Checker):
    name = "invariants"

    def __init__(self) -> None:
        super().__init__()
        self.checks = 0

    def sampled(self, world: CheckedRun, now_us: int) -> None:
        for name, machine in world.machines().items():
            self.checks += 1
            try:
                machine.check_invariants()
            except AssertionError as error:
                self.find(now_us, name, str(error))


class ConvergedChecker(Checker):
    name = "converged"

    def ended(self, world: CheckedRun, now_us: int) -> None:
        overlays = overlays_of(world)
        for kind in (INTEREST, CHANNEL):
            self._compare(now_us, kind, [sorted(each.store.all(kind)) for each in overlays])
        # What links take is measured all the time: news of it are always on their way.
        ups = [[(a, b) for a, b, link in each.map.links() if link.is_up] for each in overlays]
        self._compare(now_us, LINK, [sorted(each) for each in ups])

    def _compare(self, now_us: int, kind: str, known: Sequence[Sequence[object]]) -> None:
        for number, found in enumerate(known):
            if found != known[0]:
                self.find(now_us, f"number {number}", f"knows other facts of kind {kind}")


class AcknowledgedChecker(Checker):
    name = "acknowledged"

    def __init__(self) -> None:
        super().__init__()
        self.got = 0

    def delivered(
        self,
        publication: Publication,
        subscriber: str,  # noqa: ARG002
        node: str,  # noqa: ARG002
        now_us: int,  # noqa: ARG002
        *,
        is_first: bool,
    ) -> None:
        self.got += publication.qos and is_first

    def missed(self, publication: Publication, subscriber: str, node: str, now_us: int) -> None:
        if publication.qos:
            what = f"{publication.publisher} {publication.sequence}"
            self.find(now_us, node, f"{subscriber} did not get {what}")


def overlays_of(world: CheckedRun) -> list[Overlay]:
    machines = world.machines().values()
    return [machine.overlay for machine in machines if isinstance(machine, OverlayNode)]


def simulation(count: int, seconds: int, checkers: list[Checker], seed: int = 1) -> Simulation:
    topology = waxman(count, seed, degree=3.0)
    end_us = seconds * S - _QUIET_US
    faults = RandomFaults(
        begin_us=_BEGIN_US,
        end_us=end_us,
        link_down_share=0.01,
        link_down_us=30 * S,
        link_slow_share=0.01,
        node_down_share=0.02,
        node_down_us=60 * S,
        silent_share=0.5,
        partition_share=0.02,
        partition_us=30 * S,
    )
    return Simulation(
        topology,
        overlay_nodes(OverlayOptions(ping_us=10 * S, advertise_slowly_us=120 * S)),
        seed=seed,
        model=_lossy(seed),
        faults=faults.script(topology, seed),
        workload=_workload(topology, end_us, seed),
        channels=[ChannelSpec("area/#")],
        checkers=checkers,
        options=Options(
            settle_us=60 * S, patience_us=120 * S, sample_us=_CHECK_US, is_tracing=False
        ),
    )


def _lossy(seed: int) -> Callable[[Span], LinkModel]:
    """Each link loses another share of what is sent."""
    placed = with_delays(LinkModel(dead_us=10 * S))

    def choose(span: Span) -> LinkModel:
        random = Random(f"loss {seed} {span.one} {span.other}")
        model = placed(span)
        return LinkModel(delay=model.delay, loss=random.choice(LOSSES), dead_us=model.dead_us)

    return choose


def _workload(topology: Topology, end_us: int, seed: int) -> Workload:
    random = Random(f"clients {seed}")
    publishers = [
        Publisher(
            name=f"p{number}",
            node=random.choice(topology.nodes),
            channel=f"area/{number}",
            rate_hz=0.2,
            qos=number % 2,
            attributes={"altitude_m": Range(0, 100)},
            begin_us=_BEGIN_US,
            end_us=end_us,
        )
        for number in range(4)
    ]
    subscribers = [
        Subscriber(
            name=f"s{number}",
            node=random.choice(topology.nodes),
            filter=random.choice(("area/#", f"area/{number % 4}", "area/+")),
            where=random.choice(("", "altitude_m > 50")),
            there_us=300 * S,
            away_us=60 * S if number % 2 else 0,
            end_us=end_us,
        )
        for number in range(30)
    ]
    return Workload(tuple(publishers), tuple(subscribers))


def measure(seconds: int, count: int = NODES) -> Endured:
    invariants, acknowledged = InvariantChecker(), AcknowledgedChecker()
    world = simulation(count, seconds, [invariants, acknowledged, ConvergedChecker()])
    started = process_time()
    outcome = world.run(seconds * S)
    cpu_s = process_time() - started
    overlays = overlays_of(world)
    return Endured(
        hours=seconds / 3_600,
        outcome=outcome,
        cpu_s=cpu_s,
        checks=invariants.checks,
        acknowledged=acknowledged.got,
        missed=acknowledged.count,
        sent_again=sum(
            each.retransmitted for overlay in overlays for each in overlay.sender.buffers.values()
        ),
        computed=sum(overlay.routes.computed for overlay in overlays),
    )
