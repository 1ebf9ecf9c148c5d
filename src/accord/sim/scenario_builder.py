"""Builds a scenario from its settings: topology, link models, faults, clients and checkers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from accord.core.model.channels import filter_selects
from accord.sim import topology
from accord.sim.checkers import (
    Checker,
    DeadlineChecker,
    DeliveryChecker,
    DuplicateChecker,
    OrderChecker,
    QueueChecker,
)
from accord.sim.clock import stream
from accord.sim.delays import Constant
from accord.sim.faults import (
    ChangeLoss,
    Fault,
    Heal,
    LinkDown,
    LinkUp,
    NodeDown,
    NodeUp,
    Partition,
    RandomFaults,
    SlowDown,
    Timed,
)
from accord.sim.graph_files import read_topology
from accord.sim.latencies import from_matrices, read_matrix
from accord.sim.links import LinkModel, except_for, with_delays
from accord.sim.machine import ChannelSpec
from accord.sim.scenario_settings import (
    ANY,
    FaultSettings,
    PublisherSettings,
    ScenarioSettings,
    TopologySettings,
)
from accord.sim.topology import Span, Topology
from accord.sim.workloads import Publisher, Subscriber, Workload

UNITS_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000}


def make_topology(asked: TopologySettings) -> Topology:
    """Build the topology; GraphError or SimulationError if that fails."""
    made = _make_topology(asked)
    return made.largest_part() if asked.part == "largest" else made


def _make_topology(asked: TopologySettings) -> Topology:
    seed, nodes, size_km = asked.seed, asked.nodes, asked.size_km
    match asked.kind:
        case "line":
            return topology.line(nodes, asked.delay)
        case "ring":
            return topology.ring(nodes, asked.delay)
        case "star":
            return topology.star(nodes, asked.delay)
        case "complete":
            return topology.complete(nodes, asked.delay)
        case "grid":
            return topology.grid(asked.width, asked.height, asked.delay)
        case "geometric":
            return topology.geometric(nodes, seed, asked.degree, size_km)
        case "waxman":
            return topology.waxman(nodes, seed, asked.degree, asked.reach, size_km)
        case "barabasi_albert":
            return topology.barabasi_albert(nodes, seed, asked.links, size_km)
        case "file":
            return read_topology(asked.file)
        case "latencies":
            matrices = [read_matrix(path, UNITS_US[asked.unit]) for path in asked.latencies]
            return from_matrices(matrices, nodes, seed, asked.nearest, asked.far)


def make_model(settings: ScenarioSettings) -> Callable[[Span], LinkModel]:
    asked = settings.links
    model = LinkModel(
        delay=Constant(settings.topology.delay),
        jitter_us=asked.jitter,
        loss=asked.loss,
        duplication=asked.duplication,
        is_reordering=asked.reordering,
        mode=asked.mode,
        rate_bps=asked.rate,
        queue_bytes=asked.queue_bytes,
        tries=asked.tries,
        dead_us=asked.dead,
        connect_us=asked.connect,
    )
    changes: dict[tuple[str, str], dict[str, object]] = {}
    for exception in settings.link:
        one, other = exception.between
        given: dict[str, object] = {
            "delay": None if exception.delay is None else Constant(exception.delay),
            "jitter_us": exception.jitter,
            "loss": exception.loss,
            "rate_bps": exception.rate,
        }
        changes[one, other] = {key: value for key, value in given.items() if value is not None}
    return except_for(with_delays(model, asked.shape, asked.spread, asked.step), changes)


def make_faults(settings: ScenarioSettings, topology: Topology, seed: int) -> list[Timed]:
    asked = settings.random_faults
    faults = RandomFaults(
        begin_us=asked.begin,
        end_us=max(asked.begin, settings.run.duration - asked.quiet),
        link_down_share=asked.link_down_share,
        link_down_us=asked.link_down,
        link_slow_share=asked.link_slow_share,
        link_slow_us=asked.link_slow,
        link_slow_factor=asked.link_slow_factor,
        node_down_share=asked.node_down_share,
        node_down_us=asked.node_down,
        disk_torn_share=asked.disk_torn_share,
        disk_lost_share=asked.disk_lost_share,
        silent_share=asked.silent_share,
        partition_share=asked.partition_share,
        partition_us=asked.partition,
    ).script(topology, seed)
    for fault in settings.faults:
        begin, end = _fault(fault, settings)
        faults.append(Timed(fault.at, begin))
        if fault.lasts is not None:
            faults.append(Timed(fault.at + fault.lasts, end))
    return sorted(faults, key=lambda timed: timed.at_us)


def _fault(asked: FaultSettings, settings: ScenarioSettings) -> tuple[Fault, Fault]:
    """The fault's start and end."""
    if asked.kind == "node_down":
        return NodeDown(asked.node, asked.disk, asked.silent), NodeUp(asked.node)
    if asked.kind == "partition":
        return Partition(asked.groups), Heal()
    one, other = asked.between
    one_way = asked.one_way
    if asked.kind == "slow_down":
        return SlowDown(one, other, asked.factor, one_way), SlowDown(one, other, 1.0, one_way)
    if asked.kind == "loss":
        loss = next(
            (each.loss for each in settings.link if set(each.between) == {one, other}), None
        )
        before = settings.links.loss if loss is None else loss
        return ChangeLoss(one, other, asked.share, one_way), ChangeLoss(one, other, before, one_way)
    return LinkDown(one, other, one_way, asked.told), LinkUp(one, other, one_way)


def specs(settings: ScenarioSettings) -> list[ChannelSpec]:
    return [
        ChannelSpec(each.name, each.max_delay, each.paths, each.resiliency)
        for each in settings.channels
    ]


def make_workload(settings: ScenarioSettings, topology: Topology, seed: int) -> Workload:
    publishers = [
        Publisher(
            name=name,
            node=node,
            channel=asked.channel,
            rate_hz=asked.rate_hz,
            pattern=asked.pattern,
            burst=asked.burst,
            size_bytes=asked.size_bytes,
            qos=asked.qos,
            deadline_us=_deadline_us(asked, settings),
            attributes=asked.attributes,
            begin_us=asked.begin,
            end_us=asked.end,
        )
        for asked in settings.publishers
        for name, node in _clients(
            asked.name, asked.count, asked.node, topology, stream(seed, "place", "p", asked.name)
        )
    ]
    subscribers = [
        Subscriber(
            name=name,
            node=node,
            filter=asked.filter,
            where=asked.where,
            qos=asked.qos,
            begin_us=asked.begin,
            end_us=asked.end,
            there_us=asked.there,
            away_us=asked.away,
        )
        for asked in settings.subscribers
        for name, node in _clients(
            asked.name, asked.count, asked.node, topology, stream(seed, "place", "s", asked.name)
        )
    ]
    return Workload(tuple(publishers), tuple(subscribers))


def _clients(
    name: str, count: int, node: str, topology: Topology, random: Random
) -> Iterator[tuple[str, str]]:
    """Names of clients, each with a node."""
    for number in range(1, count + 1):
        place = topology.nodes[random.randrange(len(topology.nodes))] if node == ANY else node
        yield name if count == 1 else f"{name}-{number}", place


def _deadline_us(asked: PublisherSettings, settings: ScenarioSettings) -> int:
    if asked.deadline is not None:
        return asked.deadline
    selecting = (each for each in settings.channels if filter_selects(each.name, asked.channel))
    return next((each.max_delay for each in selecting), 0)


def make_checkers(settings: ScenarioSettings) -> list[Checker]:
    asked = settings.checks
    found: list[Checker] = []
    if asked.delivered is not None:
        found.append(DeliveryChecker(asked.delivered))
    if asked.in_time is not None:
        found.append(DeadlineChecker(asked.in_time))
    if asked.duplicates:
        found.append(DuplicateChecker())
    if asked.order:
        found.append(OrderChecker())
    if asked.queue_bytes or asked.node_bytes:
        found.append(QueueChecker(asked.queue_bytes or 1 << 62, asked.node_bytes))
    return found
