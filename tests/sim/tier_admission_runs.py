"""Random overlays of two tiers whose nodes admit subscriptions: as in `admission_runs`.

In the end what a child has admitted its active parent holds in its stead, and nobody else does; and
what is advertised at a child all backbone nodes know once. `scripts/tier_admission_runs.py` makes
many of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from random import Random
from typing import Final, cast

from accord.core.admission.child_advertisements import ADVERT
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.options import AdmissionOptions, Guarantee, GuaranteeKind
from accord.core.admission.reservation import ReservationState, ReservationTimers
from accord.core.admission.resources import CPU
from accord.core.overlay.options import OverlayOptions
from accord.core.predicates.predicate import parse
from accord.sim.admission_node import AdmissionSimNode, NodeCapacity
from accord.sim.checkers import CheckedRun
from accord.sim.run import Options, Outcome, Simulation
from accord.sim.topology import Span, Topology
from tests.sim.admission_runs import (
    END,
    SETTLED,
    PromisesChecker,
    Restless,
    adverts_of,
    calm,
    faults_of,
    model_of,
    workload_of,
)
from tests.sim.overlay_runs import S
from tests.sim.tier_admission_nodes import (
    BackboneAdmission,
    SecondaryAdmissionNode,
    tier_admitting_nodes,
)
from tests.sim.tier_nodes import CHILD, is_child

TIMING: Final = ReservationTimers(
    ask_us=S, confirm_us=S, refresh_us=2 * S, hold_us=2_500_000, lease_us=8 * S
)


class TierPromisesChecker(PromisesChecker):
    name = "promises across tiers"

    def __init__(self) -> None:
        super().__init__()
        self.carried = 0  # by parents for children, in the end
        self.switches = 0

    def ended(self, world: CheckedRun, now_us: int) -> None:
        super().ended(world, now_us)
        nodes = world.machines()
        wanted: dict[str, set[Hashable]] = {name: set() for name in nodes}
        for node in nodes.values():
            if isinstance(node, SecondaryAdmissionNode):
                self.switches += node.child.status().switches
                for request in _requests(node):
                    for number, leg in request.legs.items():
                        if leg.agreed:
                            wanted[leg.path[-1]].add((request.id, number))
        for name, node in nodes.items():
            if isinstance(node, BackboneAdmission):
                guests = {
                    leg
                    for leg, each in node.overlay_admission.child_reservations._reservations.items()
                }
                there = {
                    leg
                    for leg in guests
                    if node.overlay_admission.child_reservations._reservations[leg].is_reserved
                }
                self.carried += len(there)
                if there != wanted[name]:
                    self.find(now_us, name, f"carries {there}, wanted {wanted[name]}")

    def _guests(self, node: AdmissionSimNode) -> int:
        return (
            len(node.overlay_admission.child_reservations)
            if isinstance(node, BackboneAdmission)
            else 0
        )

    def _look_at_adverts(
        self, node: AdmissionSimNode, nodes: dict[str, AdmissionSimNode], now_us: int
    ) -> None:
        if is_child(node.name):
            return
        living: set[tuple[str, str]] = set()
        for each in nodes.values():
            if is_child(each.name):
                for publisher in each.admission.enforcement._publishers:
                    names = each.admission.enforcement.names(publisher)
                    living |= {("", f"{each.name}\0{publisher}\n{name}") for name in names}
            else:
                keys = each.overlay_admission._store.of(each.name, ADVERT)
                living |= {("" if "\0" in key else each.name, key) for key in keys}
        known = node.admission.poset.advertisements
        if known != len(living):
            self.find(now_us, node.name, f"knows {known} advertisements, there are {len(living)}")

    def _look_at_requests(
        self,
        node: AdmissionSimNode,
        expected: dict[str, dict[Hashable, int]],
        now_us: int,
    ) -> None:
        if not isinstance(node, SecondaryAdmissionNode):
            super()._look_at_requests(node, expected, now_us)
            return
        active = node.child.selector.active
        parent = cast("Mapping[str, AdmissionSimNode]", self.nodes).get(active)
        if parent is None:
            self.find(now_us, node.name, "no active parent")
            return
        for request in _requests(node):
            filter_ = Filter(request.flow_spec.channel, parse(request.flow_spec.where))
            if request.state is not ReservationState.ADMITTED or request.superseded:
                self.find(now_us, node.name, f"{request.id} is {request.state}")
            if request.own_verdict.is_agreed:
                rate = parent.admission.poset.sum_intersecting(filter_).rate
                if not any(leg.agreed for leg in request.legs.values()):
                    # A share is enough, and the parent did not answer when it was asked.
                    rate = node.admission.reservations.amounts(request.id)[CPU]
                expected[node.name][request.id] = rate
            paths = [leg.path for leg in request.legs.values()]
            if paths != [(node.name, active)]:
                self.find(now_us, node.name, f"{request.id} asks {paths}, active is {active}")


def _requests(node: AdmissionSimNode):  # type: ignore[no-untyped-def]
    return list(node.admission._protocol.requests._requests.values())


def topology_of(random: Random) -> Topology:
    """A ring of backbone nodes, children of one to three of them each."""
    backbone = [f"b{number}" for number in range(random.randint(3, 5))]
    count = len(backbone)
    spans = [Span(backbone[at], backbone[(at + 1) % count]) for at in range(count)]
    children = [f"{CHILD}{number}" for number in range(random.randint(1, 3))]
    for child in children:
        spans += [
            Span(child, each) for each in random.sample(backbone, random.choice((1, 2, 2, 3)))
        ]
    return Topology("tiers", [*backbone, *children], spans)


def simulation(seed: int, *, is_checking: bool = True) -> tuple[Simulation, TierPromisesChecker]:
    random = Random(f"tier admission {seed}")  # noqa: S311
    topology = topology_of(random)
    adverts = adverts_of(random, topology)
    model, faults = model_of(random), faults_of(random)
    percent = random.choice((100, 100, 75, 50))
    kind = GuaranteeKind.FULL if percent == 100 else GuaranteeKind.PERCENTAGE
    make = tier_admitting_nodes(
        adverts,
        NodeCapacity(rate_hz=random.choice((15, 40, 1_000))),
        AdmissionOptions(guarantee=Guarantee(kind=kind, percent=percent), timing=TIMING),
        OverlayOptions(ping_us=S, refresh_us=2 * S, idle_us=8 * S),
    )
    checker = TierPromisesChecker()
    made = Simulation(
        topology,
        make,
        seed=seed,
        model=model,
        faults=faults.script(topology, seed),
        workload=workload_of(random, topology, [each for each in topology.nodes if is_child(each)]),
        checkers=[checker],
        options=Options(is_checking=is_checking, is_tracing=False),
        replay=f"python scripts/tier_admission_runs.py --seed {seed}",
    )
    Restless(made, random, adverts[: random.randint(0, 3)])
    made.clock.at(SETTLED, calm, made)
    return made, checker


def run(seed: int, *, is_checking: bool = True) -> tuple[Outcome, TierPromisesChecker]:
    made, checker = simulation(seed, is_checking=is_checking)
    return made.run(END), checker
