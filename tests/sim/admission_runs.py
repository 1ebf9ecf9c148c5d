"""Random overlays whose nodes admit subscriptions, with loss, faults and crashes, all from a seed.

In the end, when all has been quiet for a while, what every node has promised is compared with what
was admitted. `scripts/admission_runs.py` makes many of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import Final

from msgspec.structs import replace

from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.options import AdmissionOptions, Guarantee, GuaranteeKind
from accord.core.admission.reservation import ReservationState, ReservationTimers
from accord.core.admission.resources import CPU
from accord.core.overlay.options import OverlayOptions
from accord.core.predicates.predicate import parse
from accord.sim.admission_node import (
    AdmissionSimNode,
    NodeCapacity,
    SimAdvertisement,
    admission_nodes,
)
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.delays import Constant, Lognormal
from accord.sim.faults import RandomFaults
from accord.sim.links import LinkModel
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Topology
from accord.sim.workloads import FOREVER, Subscriber, Workload
from tests.sim.overlay_runs import S, topology_of

FAULTS_END: Final = 18 * S
SETTLED: Final = 24 * S
END: Final = SETTLED + 20 * S  # leases are over, and nodes that are away for long have been so
TIMING: Final = ReservationTimers(
    ask_us=S, confirm_us=S, refresh_us=2 * S, hold_us=2_500_000, lease_us=7 * S
)
_CHANNELS: Final = ("uav/imagery", "uav/track", "sea")
_FILTERS: Final = ("uav/#", "uav/+", "sea", "#", "uav/track")
_PREDICATES: Final = ("", "altitude_m > 50", "altitude_m BETWEEN 20 AND 40")


class PromisesChecker(Checker):
    """In the end every promise is of an admitted subscription, and the other way round."""

    name = "promises"

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(ReservationState, 0)
        self.held = 0  # by nodes on the way, in the end
        self.nodes: dict[str, AdmissionSimNode] = {}

    def ended(self, world: CheckedRun, now_us: int) -> None:
        nodes = {
            name: machine
            for name, machine in world.machines().items()
            if isinstance(machine, AdmissionSimNode)
        }
        self.nodes = nodes
        expected: dict[str, dict[Hashable, int]] = {name: {} for name in nodes}
        for node in nodes.values():
            self._look_at_wishes(node, now_us)
            self._look_at_adverts(node, nodes, now_us)
            self._look_at_requests(node, expected, now_us)
        for name, node in nodes.items():
            books = node.admission.reservations
            held = {key: books.amounts(key)[CPU] for key in books}
            for key in held.keys() - expected[name].keys():
                self.find(now_us, name, f"a promise leaked: {key}")
            for key in expected[name].keys() - held.keys():
                self.find(now_us, name, f"nothing is promised to {key}")
            for key in held.keys() & expected[name].keys():
                if held[key] != expected[name][key]:
                    problem = f"{held[key]} promised to {key}, needed {expected[name][key]}"
                    self.find(now_us, name, problem)
            self.held += sum(isinstance(key, tuple) for key in held)
            for pool, state in books.state().items():
                if state.capacity is not None and state.reserved > state.capacity:
                    self.find(now_us, name, f"more of {pool} is promised than there is")
            for state_, count in node.admission.subscriptions.counts.items():
                self.counts[state_] += count

    def _look_at_wishes(self, node: AdmissionSimNode, now_us: int) -> None:
        for key, wish in node._subscriptions.items():
            outcome = node.outcomes.get(key)
            is_known = node.admission.subscriptions.get(*key) is not None
            if outcome is None:
                self.find(now_us, node.name, f"{key} has heard nothing")
            elif (outcome.state is ReservationState.ADMITTED) != is_known:
                self.find(now_us, node.name, f"{key} is {outcome.state}, and known: {is_known}")
            if is_known != (wish in node._active):
                self.find(now_us, node.name, f"{key} gets events: {not is_known}")
        if len(node.admission.subscriptions) > len(node._subscriptions) + self._guests(node):
            self.find(now_us, node.name, "subscriptions that nobody wishes")

    def _guests(self, node: AdmissionSimNode) -> int:  # noqa: ARG002
        """Subscriptions of others, that are its own in their stead."""
        return 0

    def _look_at_adverts(
        self, node: AdmissionSimNode, nodes: dict[str, AdmissionSimNode], now_us: int
    ) -> None:
        living = sum(
            len(each.overlay_admission._store.of(each.name, "advert")) for each in nodes.values()
        )
        known = node.admission.poset.advertisements
        if known != living:
            self.find(now_us, node.name, f"knows of {known} advertisements, there are {living}")

    def _look_at_requests(
        self,
        node: AdmissionSimNode,
        expected: dict[str, dict[Hashable, int]],
        now_us: int,
    ) -> None:
        for request in node.admission._protocol.requests._requests.values():
            filter_ = Filter(request.flow_spec.channel, parse(request.flow_spec.where))
            order = node.admission.poset
            if request.state is not ReservationState.ADMITTED or request.superseded:
                self.find(now_us, node.name, f"{request.id} is {request.state}")
            if request.own_verdict.is_agreed:
                expected[node.name][request.id] = order.sum_intersecting(filter_).rate
            sources = []
            for number, leg in request.legs.items():
                sources.append(leg.path[-1])
                sums = order.sum_intersecting(filter_, frozenset((leg.path[-1],)))
                for other in leg.agreed:
                    expected[other][request.id, number] = sums.rate
            ways = [way.path[-1] for way in node.overlay_admission.source_paths(filter_)]
            if sorted(sources) != sorted(ways):
                self.find(now_us, node.name, f"{request.id} asks {sources}, publishers at {ways}")


def adverts_of(random: Random, topology: Topology) -> list[SimAdvertisement]:
    return [
        SimAdvertisement(
            random.choice(topology.nodes),
            f"p{number}",
            random.choice(_CHANNELS),
            random.choice((1, 5, 10)),
            random.choice(_PREDICATES),
        )
        for number in range(random.randint(1, 6))
    ]


def workload_of(random: Random, topology: Topology, preferred: Sequence[str] = ()) -> Workload:
    """Half of the subscribers are at nodes that are `preferred`, if any are."""
    subscribers = []
    for number in range(random.randint(2, 12)):
        is_restless = random.random() < 1 / 2
        subscribers.append(
            Subscriber(
                name=f"s{number}",
                node=random.choice(preferred if preferred and number % 2 else topology.nodes),
                filter=random.choice(_FILTERS),
                where=random.choice(_PREDICATES),
                begin_us=random.choice((0, 2 * S, 6 * S)),
                there_us=4 * S,
                away_us=2 * S if is_restless else 0,
                # So that in the end nothing changes any more.
                end_us=SETTLED if is_restless else random.choice((FOREVER, FOREVER, SETTLED)),
            )
        )
    return Workload(subscribers=tuple(subscribers))


class Restless:
    """Publishers that come and go until all is to be quiet."""

    def __init__(
        self, simulation: Simulation, random: Random, adverts: list[SimAdvertisement]
    ) -> None:
        self._simulation = simulation
        self._random = random
        for number, advert in enumerate(adverts):
            restless = SimAdvertisement(advert.node, f"r{number}", advert.channel, 5, advert.where)
            self._later(0, (restless, False))

    def _later(self, now_us: int, what: tuple[SimAdvertisement, bool]) -> None:
        at_us = now_us + int(self._random.expovariate(1 / (4 * S)))
        if at_us < SETTLED:
            self._simulation.clock.at(at_us, self._turn, what)

    def _turn(self, now_us: int, what: tuple[SimAdvertisement, bool]) -> None:
        advert, is_there = what
        machine = self._simulation.machines().get(advert.node)
        if isinstance(machine, AdmissionSimNode):
            if is_there:
                machine.unadvertise(advert)
            else:
                machine.advertise(advert, now_us)
            self._simulation.touch(advert.node)
        self._later(now_us, (advert, not is_there))


def model_of(random: Random) -> LinkModel:
    return LinkModel(
        delay=Lognormal(random.choice((2_000, 20_000)), 0.3),
        loss=random.choice((0.0, 0.01, 0.1, 0.3)),
        duplication=random.choice((0.0, 0.1)),
        mode=random.choice(("stream", "stream", "datagram")),
        dead_us=3 * S,
    )


def faults_of(random: Random) -> RandomFaults:
    return RandomFaults(
        begin_us=3 * S,
        end_us=FAULTS_END,
        link_down_share=random.choice((0.0, 0.05, 0.2)),
        link_down_us=random.choice((2, 6)) * S,
        node_down_share=random.choice((0.0, 0.05, 0.15)),
        node_down_us=random.choice((1, 4)) * S,
        silent_share=0.5,
        partition_share=random.choice((0.0, 0.0, 0.1)),
        partition_us=4 * S,
    )


def simulation(seed: int, *, is_checking: bool = True) -> tuple[Simulation, PromisesChecker]:
    random = Random(f"admission {seed}")  # noqa: S311
    topology = topology_of(random)
    adverts = adverts_of(random, topology)
    model, faults = model_of(random), faults_of(random)
    guarantee = random.choice(
        (
            Guarantee(),
            Guarantee(),
            Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=75),
            Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=50),
        )
    )
    make = admission_nodes(
        adverts,
        limits=NodeCapacity(rate_hz=random.choice((15, 40, 1_000))),
        admission=AdmissionOptions(guarantee=guarantee, timing=TIMING),
        overlay=OverlayOptions(ping_us=S, refresh_us=2 * S, idle_us=8 * S),
    )
    checker = PromisesChecker()
    made = Simulation(
        topology,
        make,
        seed=seed,
        model=model,
        faults=faults.script(topology, seed),
        workload=workload_of(random, topology),
        checkers=[checker],
        options=Options(is_checking=is_checking, is_tracing=False),
        replay=f"python scripts/admission_runs.py --seed {seed}",
    )
    Restless(made, random, adverts[: random.randint(0, 3)])
    made.clock.at(SETTLED, calm, made)
    return made, checker


def calm(_: int, made: Simulation) -> None:
    """From now on all links are as good as can be, so that nothing changes any more."""
    for link in made.network.links.values():
        delay = Constant(link.model.delay.typical_us)
        link.model = replace(link.model, loss=0.0, duplication=0.0, delay=delay)


def run(seed: int, *, is_checking: bool = True) -> tuple[Outcome, PromisesChecker]:
    made, checker = simulation(seed, is_checking=is_checking)
    return made.run(END), checker
