"""Random overlays: topologies, links, faults, clients and channels, all from a seed.

`scripts/sim_runs.py` makes many thousands of them.
"""

from __future__ import annotations

from random import Random
from typing import Final, TypeGuard

from accord.core.overlay.channel_directory import CHANNEL
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import INTEREST
from accord.sim.checkers import CheckedRun, Checker, DuplicateChecker
from accord.sim.delays import Lognormal
from accord.sim.faults import RandomFaults
from accord.sim.links import LinkModel
from accord.sim.machine import ChannelSpec, Machine, Publication
from accord.sim.node import OverlayNode, overlay_nodes
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Topology, barabasi_albert, geometric, grid, line, ring, waxman
from accord.sim.workloads import FOREVER, Publisher, Range, Subscriber, Workload

S: Final = 1_000_000
FAULTS_END: Final = 30 * S
SETTLED: Final = 45 * S
END: Final = 105 * S  # flows that nothing uses are gone, and what leads nowhere is forgotten
GIVE_UP: Final = 30 * S
_CHANNELS: Final = ("uav/imagery", "uav/track", "sea")
_FILTERS: Final = ("uav/#", "uav/+", "sea", "#", "uav/track")


class AcknowledgedChecker(Checker):
    """What was published with QoS 1 arrives, whatever fails but the nodes themselves."""

    name = "acknowledged"

    def missed(self, publication: Publication, subscriber: str, node: str, now_us: int) -> None:
        if publication.qos:
            what = f"{publication.publisher} {publication.channel} {publication.sequence}"
            at_s = publication.published_us / S
            self.find(now_us, node, f"{subscriber} did not get {what} of {at_s:.1f} s")


class ConvergedChecker(Checker):
    """In the end all nodes know who needs what, and nothing is left of routes and promises."""

    name = "converged"

    def ended(self, world: CheckedRun, now_us: int) -> None:
        nodes = [each.overlay for each in world.machines().values() if _is_node(each)]
        for kind in (INTEREST, CHANNEL):
            known = [sorted(overlay.store.all(kind)) for overlay in nodes]
            for overlay, found in zip(nodes, known, strict=True):
                if found != known[0]:
                    problem = f"knows other facts of kind {kind} than {nodes[0].name}"
                    self.find(now_us, overlay.name, problem)
        for overlay in nodes:
            for destination, outgoing in overlay.sender.buffers.items():
                if outgoing.unacked:
                    problem = f"{len(outgoing.unacked)} for {destination} not acknowledged"
                    self.find(now_us, overlay.name, problem)
            left = {
                "flows": len(overlay.routes.flows),
                "ways": len(overlay.forwarding.entries),
                "budgets": len(overlay.budgets.all()),
                "events waiting": sum(
                    not each.is_empty() for each in overlay.outboxes.all.values()
                ),
            }
            for what, count in left.items():
                if count:
                    self.find(now_us, overlay.name, f"{count} {what} left")


def _is_node(machine: Machine) -> TypeGuard[OverlayNode]:
    return isinstance(machine, OverlayNode)


def topology_of(random: Random) -> Topology:
    count = random.randint(3, 9)
    seed = random.randrange(1 << 30)
    return random.choice(
        (
            lambda: ring(count),
            lambda: line(count),
            lambda: grid(3, random.randint(2, 3)),
            lambda: geometric(count, seed),
            lambda: waxman(count, seed),
            lambda: barabasi_albert(count, seed),
        )
    )()


def workload_of(random: Random, topology: Topology) -> Workload:
    publishers = [
        Publisher(
            name=f"p{number}",
            node=random.choice(topology.nodes),
            channel=random.choice(_CHANNELS),
            rate_hz=random.choice((0.5, 2, 5)),
            qos=random.choice((0, 1)),
            pattern=random.choice(("steady", "poisson", "burst")),
            attributes={"altitude_m": Range(0, 100)},
            end_us=SETTLED + 5 * S,
        )
        for number in range(random.randint(1, 3))
    ]
    subscribers = []
    for number in range(random.randint(1, 4)):
        is_restless = random.random() < 1 / 3
        subscribers.append(
            Subscriber(
                name=f"s{number}",
                node=random.choice(topology.nodes),
                filter=random.choice(_FILTERS),
                where=random.choice(("", "altitude_m > 50", "altitude_m BETWEEN 20 AND 40")),
                there_us=20 * S,
                away_us=10 * S if is_restless else 0,
                # So that in the end nothing changes any more.
                end_us=SETTLED if is_restless else random.choice((FOREVER, SETTLED)),
            )
        )
    return Workload(publishers=tuple(publishers), subscribers=tuple(subscribers))


def simulation(seed: int, *, is_checking: bool = True) -> Simulation:
    random = Random(f"overlay {seed}")  # noqa: S311
    topology = topology_of(random)
    loss = random.choice((0.0, 0.01, 0.1, 0.5))
    model = LinkModel(
        delay=Lognormal(random.choice((2_000, 20_000)), 0.3),
        loss=loss,
        duplication=random.choice((0.0, 0.1)),
        mode=random.choice(("stream", "stream", "datagram")),
        rate_bps=random.choice((0, 0, 1_000_000)),
        dead_us=3 * S,
    )
    faults = RandomFaults(
        begin_us=4 * S,
        end_us=FAULTS_END,
        link_down_share=random.choice((0.0, 0.05, 0.2)),
        link_down_us=random.choice((2, 10)) * S,
        link_slow_share=random.choice((0.0, 0.1)),
        node_down_share=random.choice((0.0, 0.0, 0.05)),
        node_down_us=5 * S,
        silent_share=0.5,
        partition_share=random.choice((0.0, 0.0, 0.1)),
        partition_us=6 * S,
    )
    channels = [
        ChannelSpec(
            random.choice(_CHANNELS),
            random.choice((0, 200_000, 1_000_000)),
            random.randint(1, 3),
            random.choice((0.0, 0.0, 0.999)),
        )
    ]
    options = OverlayOptions(
        ping_us=S, refresh_us=2 * S, idle_us=8 * S, delivery_timeout_us=GIVE_UP
    )
    checkers: list[Checker] = [ConvergedChecker()]
    if not faults.node_down_share:
        checkers.append(DuplicateChecker())  # a node that begins anew does not know what it had
    if loss < 0.5:
        checkers.append(AcknowledgedChecker())  # else there may be no way through in time
    return Simulation(
        topology,
        overlay_nodes(options),
        seed=seed,
        model=model,
        faults=faults.script(topology, seed),
        workload=workload_of(random, topology),
        channels=channels,
        checkers=checkers,
        options=Options(is_checking=is_checking, settle_us=10 * S, patience_us=40 * S),
        replay=f"python scripts/sim_runs.py --seed {seed}",
    )


def run(seed: int, *, is_checking: bool = True) -> Outcome:
    return simulation(seed, is_checking=is_checking).run(END)
