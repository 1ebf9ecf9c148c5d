"""More subscriptions than nodes and links can carry, with admission and without."""

from __future__ import annotations

import pytest

from accord.core.admission.options import AdmissionOptions, Guarantee, GuaranteeKind
from accord.core.admission.reservation import ReservationState
from accord.core.overlay.options import OverlayOptions
from accord.sim.admission_node import (
    AdmissionSimNode,
    NodeCapacity,
    SimAdvertisement,
    admission_nodes,
)
from accord.sim.checkers import LostChecker
from accord.sim.delays import Constant
from accord.sim.links import LinkModel
from accord.sim.run import Options, Simulation
from accord.sim.topology import line
from accord.sim.workloads import Publisher, Subscriber, Workload

S = 1_000_000
BEGIN = 5 * S
PUBLISHERS = 6
RATE_HZ = 10
SUBSCRIBERS = 24
NONE = Guarantee(kind=GuaranteeKind.NONE)
FULL = Guarantee(kind=GuaranteeKind.FULL)
HALF = Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=50)


def overload(
    guarantee: Guarantee, limits: NodeCapacity, link_bps: int = 0
) -> tuple[int, int, float]:
    """Events that admitted subscriptions got, those they did not, and the share of the refused."""
    topology = line(3, 5_000)
    publishers = [
        Publisher(
            name=f"p{number}",
            node="n0",
            channel=f"c/{number}",
            rate_hz=RATE_HZ,
            begin_us=BEGIN + 4 * S,
            end_us=BEGIN + 9 * S,
        )
        for number in range(PUBLISHERS)
    ]
    subscribers = [
        Subscriber(
            name=f"s{number}",
            node=("n1", "n2")[number % 2],
            filter=f"c/{number % PUBLISHERS}",
            begin_us=BEGIN + number * S // 20,
        )
        for number in range(SUBSCRIBERS)
    ]
    checker = LostChecker()
    simulation = Simulation(
        topology,
        admission_nodes(
            [
                SimAdvertisement(each.node, each.name, each.channel, each.rate_hz)
                for each in publishers
            ],
            limits=limits,
            admission=AdmissionOptions(guarantee=guarantee, event_bytes=250),
            overlay=OverlayOptions(transit_bytes=4_000, publish_flows_us=0),
        ),
        seed=1,
        model=LinkModel(delay=Constant(5_000), rate_bps=link_bps),
        workload=Workload(tuple(publishers), tuple(subscribers)),
        checkers=[checker],
        options=Options(settle_us=2 * S, patience_us=5 * S, is_tracing=False),
    )
    simulation.run(BEGIN + 16 * S)
    outcomes = {
        client: outcome.state
        for node in simulation.machines().values()
        if isinstance(node, AdmissionSimNode)
        for (client, _), outcome in node.outcomes.items()
    }
    assert len(outcomes) == SUBSCRIBERS
    admitted = [client for client, state in outcomes.items() if state is ReservationState.ADMITTED]
    got = sum(checker.received.get(client, 0) for client in admitted)
    lost = sum(checker.lost.get(client, 0) for client in admitted)
    return got, lost, 1 - len(admitted) / SUBSCRIBERS


SLOW_NODES = NodeCapacity(rate_hz=100, wait_us=S // 5)
THIN_LINKS = NodeCapacity(link_bps=45_000)


@pytest.mark.parametrize(
    ("limits", "link_bps"), [(SLOW_NODES, 0), (THIN_LINKS, 60_000)], ids=["nodes", "links"]
)
def test_nothing_is_discarded_of_what_is_fully_guaranteed(
    limits: NodeCapacity, link_bps: int
) -> None:
    got, lost, refused = overload(NONE, limits, link_bps)
    assert lost > 0.1 * got, "there must be too much for all"
    assert refused == 0
    got, lost, refused = overload(FULL, limits, link_bps)
    assert lost == 0
    assert got > 0
    assert 0 < refused < 1


def test_a_percentage_is_between_the_two() -> None:
    _, _, refused_fully = overload(FULL, SLOW_NODES)
    _, _, refused = overload(HALF, SLOW_NODES)
    assert 0 <= refused <= refused_fully
