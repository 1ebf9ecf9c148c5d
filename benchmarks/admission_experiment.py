"""The paper's experiment: what admission is good for, with a growing number of subscriptions.

A grid of nodes whose processors and links have limits. Publishers advertise truthfully what they
publish; subscriptions come one after the other at random nodes. Once all have been decided, events
flow for a while, and are counted.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from random import Random
from statistics import mean
from typing import Final

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
from accord.sim.run import Options as RunOptions
from accord.sim.run import Simulation
from accord.sim.topology import grid
from accord.sim.workloads import Publisher, Range, Subscriber, Workload
from benchmarks.admission_plots import draw
from benchmarks.options import Options, progress
from benchmarks.report import RESULTS, Table, number

S: Final = 1_000_000
_WIDTH: Final = 3
_PUBLISHERS: Final = 45
_RATES_HZ: Final = (2, 4, 8)
_EVENT_BYTES: Final = 250  # payload; with all that goes along:
_FRAME_BYTES: Final = 400
_NODE_HZ: Final = 150
_LINK_BPS: Final = 200_000
_PROMISED: Final = 0.85  # of a link: what nodes say to each other needs some of it, too
_MOST_WAITING: Final = 64_000  # bytes in front of a link
_BEGIN: Final = 6 * S  # nodes know each other, and what is advertised
_APART: Final = S // 10  # between two subscriptions
_DECIDED: Final = 6 * S  # after the last of them
_MEASURED: Final = 12 * S
_COUNTS: Final = (30, 60, 90, 120, 150, 180, 210, 240)
_QUICK_COUNTS: Final = (60, 180)
_SEEDS: Final = 2

ABOUT: Final = (
    f"{_WIDTH * _WIDTH} nodes in a grid, each of which handles {_NODE_HZ} copies of events per "
    f"second, links of {_LINK_BPS // 1000} kbit/s; {_PUBLISHERS} publishers with "
    f"{_RATES_HZ[0]} to {_RATES_HZ[-1]} events/s of {_EVENT_BYTES} bytes, as they advertise; "
    "subscriptions at random nodes to one publisher each, half of them to a part of its events. "
    "Discarded: of the events that admitted subscriptions should have got; refused: of all "
    "subscriptions; CPU and bandwidth: means over nodes and links, and the busiest of each. Means "
    f"of {_SEEDS} seeds."
)

GUARANTEES: Final = {
    "none": Guarantee(kind=GuaranteeKind.NONE),
    "50 %": Guarantee(kind=GuaranteeKind.PERCENTAGE, percent=50),
    "full": Guarantee(kind=GuaranteeKind.FULL),
}


@dataclass(frozen=True)
class Point:
    """What came of one run; all shares are from 0 to 1."""

    guarantee: str
    subscriptions: int
    seed: int
    discarded: float
    refused: float
    cpu: float
    busiest_cpu: float
    bandwidth: float
    busiest_bandwidth: float
    wanted: int
    lost: int
    discarded_by_nodes: int


def run(options: Options) -> list[Table]:
    counts = _QUICK_COUNTS if options.is_quick else _COUNTS
    seeds = 1 if options.is_quick else _SEEDS
    wanted = [
        (name, count, seed) for count in counts for name in GUARANTEES for seed in range(seeds)
    ]
    progress(f"admission: experiment, {len(wanted)} runs")
    with get_context("spawn").Pool(2) as pool:
        points = pool.starmap(point, wanted, chunksize=1)
    means = [_mean([each for each in points if _key(each) == key]) for key in _keys(points)]
    if not options.is_quick:
        _write(points)
        draw(means, RESULTS)
    return [_table(means)]


def point(guarantee: str, subscriptions: int, seed: int) -> Point:
    """One run."""
    simulation, checker = _simulation(guarantee, subscriptions, seed)
    begin_us = _BEGIN + subscriptions * _APART + _DECIDED
    simulation.advance(begin_us)
    nodes = _nodes(simulation)
    handled = {name: node.handled for name, node in nodes.items()}
    sent = {ends: link.counts.bytes for ends, link in simulation.network.links.items()}
    simulation.advance(begin_us + _MEASURED)
    spent_s = _MEASURED / S
    cpu = [(node.handled - handled[name]) / spent_s / _NODE_HZ for name, node in nodes.items()]
    links = [
        (link.counts.bytes - sent[ends]) * 8 / spent_s / _LINK_BPS
        for ends, link in simulation.network.links.items()
    ]
    simulation.advance(begin_us + _MEASURED + 12 * S)
    assert simulation.error is None, simulation.found
    simulation.finish()
    states = {key: each.state for node in nodes.values() for key, each in node.outcomes.items()}
    assert len(states) == subscriptions
    admitted = [
        client for (client, _), state in states.items() if state is ReservationState.ADMITTED
    ]
    got = sum(checker.received.get(client, 0) for client in admitted)
    lost = sum(checker.lost.get(client, 0) for client in admitted)
    return Point(
        guarantee=guarantee,
        subscriptions=subscriptions,
        seed=seed,
        discarded=lost / max(got + lost, 1),
        refused=1 - len(admitted) / subscriptions,
        cpu=mean(cpu),
        busiest_cpu=max(cpu),
        bandwidth=mean(links),
        busiest_bandwidth=max(links),
        wanted=got + lost,
        lost=lost,
        discarded_by_nodes=sum(
            node.discarded + sum(node.node.overlay.dropped.values()) for node in nodes.values()
        ),
    )


def _simulation(guarantee: str, subscriptions: int, seed: int) -> tuple[Simulation, LostChecker]:
    random = Random(f"experiment {subscriptions} {seed}")  # the same for all guarantees
    topology = grid(_WIDTH, _WIDTH, delay_us=5_000)
    begin_us = _BEGIN + subscriptions * _APART + _DECIDED
    publishers = [
        Publisher(
            name=f"p{each}",
            node=random.choice(topology.nodes),
            channel=f"market/{each}",
            rate_hz=random.choice(_RATES_HZ),
            size_bytes=_EVENT_BYTES,
            attributes={"price": Range(0, 99)},
            begin_us=begin_us - S,
            end_us=begin_us + _MEASURED,
        )
        for each in range(_PUBLISHERS)
    ]
    subscribers = [
        Subscriber(
            name=f"s{each}",
            node=random.choice(topology.nodes),
            filter=f"market/{random.randrange(_PUBLISHERS)}",
            where=random.choice(("", f"price >= {random.randrange(50)}")),
            begin_us=_BEGIN + each * _APART,
        )
        for each in range(subscriptions)
    ]
    adverts = [
        SimAdvertisement(each.node, each.name, each.channel, each.rate_hz, "price BETWEEN 0 AND 99")
        for each in publishers
    ]
    make = admission_nodes(
        adverts,
        limits=NodeCapacity(rate_hz=_NODE_HZ, link_bps=round(_PROMISED * _LINK_BPS)),
        admission=AdmissionOptions(guarantee=GUARANTEES[guarantee], event_bytes=_FRAME_BYTES),
        overlay=OverlayOptions(transit_bytes=_MOST_WAITING, publish_flows_us=0),
    )
    checker = LostChecker()
    simulation = Simulation(
        topology,
        make,
        seed=seed,
        model=LinkModel(delay=Constant(5_000), rate_bps=_LINK_BPS),
        workload=Workload(tuple(publishers), tuple(subscribers)),
        checkers=[checker],
        options=RunOptions(settle_us=5 * S, patience_us=10 * S, is_tracing=False),
    )
    return simulation, checker


def _nodes(simulation: Simulation) -> dict[str, AdmissionSimNode]:
    return {
        name: machine
        for name, machine in simulation.machines().items()
        if isinstance(machine, AdmissionSimNode)
    }


def _key(point: Point) -> tuple[int, str]:
    return point.subscriptions, point.guarantee


def _keys(points: Sequence[Point]) -> list[tuple[int, str]]:
    return list(dict.fromkeys(map(_key, points)))


def _mean(points: Sequence[Point]) -> Point:
    """Of several seeds; counts are added up."""
    first = points[0]
    known = {
        field.name: mean(getattr(each, field.name) for each in points)
        for field in fields(Point)
        if field.type == "float"
    }
    counts = {
        field.name: sum(getattr(each, field.name) for each in points)
        for field in fields(Point)
        if field.type == "int" and field.name not in ("subscriptions", "seed")
    }
    return Point(first.guarantee, first.subscriptions, 0, **known, **counts)


def _write(points: Sequence[Point]) -> None:
    with (RESULTS / "admission.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Point)])
        writer.writeheader()
        for each in points:
            writer.writerow(asdict(each))


def _table(means: Sequence[Point]) -> Table:
    columns = ["guarantee", "subscriptions", "discarded %", "refused %", "CPU %", "busiest",
               "bandwidth %", "busiest", "events wanted", "lost"]  # fmt: skip
    table = Table("Figures 9 and 10: with a growing number of subscriptions", columns)
    for name in GUARANTEES:
        for each in means:
            if each.guarantee == name:
                shares = (each.discarded, each.refused, each.cpu, each.busiest_cpu, each.bandwidth,
                          each.busiest_bandwidth)  # fmt: skip
                table.add(
                    name,
                    number(each.subscriptions),
                    *(number(100 * share, 1) for share in shares),
                    number(each.wanted),
                    number(each.lost),
                )
    table.notes = [
        "As plots: admission-figure-9.svg, admission-figure-10.svg; each run: admission.csv.",
    ]
    return table
