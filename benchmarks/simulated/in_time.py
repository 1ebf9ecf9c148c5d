"""How much arrives in time while links fail, by which way of sending, and at what cost.

Each channel has one publisher and one subscriber at nodes chosen by chance, and a bound that is
some multiple of the delay of the shortest path between them. In time is counted by the simulation,
of all events for which there was any way when they were published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple, replace

from accord.core.channels.channels import SHIPPED, Channels
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.sim.faults import RandomFaults
from accord.sim.graph_files import read_topology
from accord.sim.latencies import from_matrices, read_matrix
from accord.sim.links import LinkModel, with_delays
from accord.sim.machine import Make, Publication, Start
from accord.sim.node import OverlayNode
from accord.sim.run import Options, Simulation
from accord.sim.topology import Span, Topology
from accord.sim.workloads import Publisher, Subscriber, Workload
from benchmarks.simulated.flood import Flood

S: Final = 1_000_000
DOWN_SHARE: Final = 0.04
DOWN_US: Final = 20 * S
RATE_HZ: Final = 2.0
NODES: Final = 50
FLOOD: Final = "flood"
_MARGIN: Final = 1.2
_BEGIN_US: Final = 20 * S  # by then all subscriptions are known
_COUNTED_US: Final = 30 * S  # and routes established: from here on it counts
_SHARED: Final = Path(__file__).parents[3] / "shared" / "data"
_SMALL: Final = Path(__file__).parents[2] / "tests" / "sim" / "data"

Delays = dict[tuple[str, str], int]


@dataclass(frozen=True)
class Net:
    """A network with delays from somewhere."""

    name: str
    topology: Topology
    model: Callable[[Span], LinkModel]


@dataclass(frozen=True)
class Way:
    """How events are sent."""

    name: str
    qos: int = 0
    paths: int = 1
    has_bound: bool = True
    template: str = "routed"
    ping_us: int = S


@dataclass(frozen=True)
class Pair:
    """A channel, from one node to another."""

    channel: str
    source: str
    target: str
    bound_us: int


class Counts(Struct, frozen=True):
    """`copies` and `bytes` are of events on links, `control_bytes` all else there."""

    copies: int
    bytes: int
    control_bytes: int
    delivered: int
    in_time: int
    lost: int

    @classmethod
    def of(cls, world: Simulation) -> Counts:
        """Until now."""
        nodes = [each for each in world.machines().values() if isinstance(each, CountingNode)]
        sent_bytes = sum(node.sent_bytes for node in nodes)
        tallies = world.tally.channels.values()
        links = world.network.links.values()
        return cls(
            copies=sum(node.sent_copies for node in nodes),
            bytes=sent_bytes,
            control_bytes=sum(link.counts.bytes for link in links) - sent_bytes,
            delivered=sum(each.delivered for each in tallies),
            in_time=sum(each.in_time for each in tallies),
            lost=sum(each.lost for each in tallies),
        )

    def since(self, before: Counts) -> Counts:
        ours, theirs = astuple(self), astuple(before)
        return Counts(*(now - then for now, then in zip(ours, theirs, strict=True)))

    @property
    def due(self) -> int:
        return self.delivered + self.lost


class CountingNode(OverlayNode):
    """A node that can also flood, and counts what it sends."""

    def __init__(
        self, start: Start, options: OverlayOptions, definitions: Iterable[ChannelDefinition]
    ) -> None:
        super().__init__(start, options)
        self.channels = Channels(self.overlay, {**SHIPPED, FLOOD: Flood})
        self._copies = 0
        self._bytes = 0
        for definition in definitions:
            self.overlay.directory.create(definition)

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        frames = super().take(neighbour, bytes_wanted)
        self._copies += len(frames)
        self._bytes += sum(map(len, frames))
        return frames

    @property
    def sent_copies(self) -> int:
        return self._copies + self._flood.copies

    @property
    def sent_bytes(self) -> int:
        return self._bytes + self._flood.bytes

    @property
    def _flood(self) -> Flood:
        flood = self.channels.templates[FLOOD]
        assert isinstance(flood, Flood)
        return flood

    def publish(self, publication: Publication, now_us: int) -> None:
        # The bound is the channel's; what is late is to arrive all the same, and be counted.
        super().publish(replace(publication, deadline_us=0), now_us)


def nets(count: int = NODES) -> Iterator[Net]:
    """Recorded ones where they are at hand."""
    model = LinkModel(dead_us=10 * S)
    jittered = with_delays(model, "lognormal", 0.05)
    if not _SHARED.exists():
        files = sorted(_SMALL.glob("seattle_*.txt"))
        matrices = [read_matrix(file, S) for file in files]
        few = min(count, len(matrices[0]))
        yield Net(
            "Seattle (small)", from_matrices(matrices, few, 1), with_delays(model, step_us=60 * S)
        )
        return
    planetlab = [read_matrix(_SHARED / "latency" / "PlanetLab" / "PlanetLabData_1", 1_000)]
    yield Net("PlanetLab", from_matrices(planetlab, count, 1), jittered)
    frames = sorted((_SHARED / "latency" / "Seattle").glob("SeattleData_*"))
    seattle = [read_matrix(file, S) for file in frames]
    yield Net("Seattle", from_matrices(seattle, count, 1), with_delays(model, step_us=60 * S))
    germany = read_topology(_SHARED / "topologies" / "sndlib" / "germany50.json")
    yield Net("Germany", germany, jittered)


def pairs(net: Net, count: int, seed: int) -> list[Pair]:
    """Channels between nodes chosen by chance."""
    random = Random(f"pairs {seed}")
    found = []
    for number in range(count):
        source, target = random.sample(net.topology.nodes, 2)
        bound_us = round(_MARGIN * possible_us(net.topology, source, target))
        found.append(Pair(f"c{number:03}", source, target, bound_us))
    return found


def possible_us(topology: Topology, source: str, target: str) -> int:
    """What it takes at the worst moment if any one link of the shortest path has failed.

    Where a link is the only way, it is not missed.
    """
    longest_us = 0
    for moment in range(max(len(span.series) for span in topology.spans) or 1):
        delays_us = _delays_us(topology, moment)
        path = _shortest(delays_us, source, target)
        longest_us = max(longest_us, _sum_us(delays_us, path))
        for one, other in pairwise(path):
            rest = {
                ends: us
                for ends, us in delays_us.items()
                if ends not in ((one, other), (other, one))
            }
            longest_us = max(longest_us, _sum_us(delays_us, _shortest(rest, source, target)))
    return longest_us


def _delays_us(topology: Topology, moment: int) -> Delays:
    found: Delays = {}
    for span in topology.spans:
        delay_us = span.series[moment] if span.series else span.delay_us or 0
        found[span.one, span.other] = found[span.other, span.one] = delay_us
    return found


def _shortest(delays_us: Delays, source: str, target: str) -> list[str]:
    """The nodes of the shortest path; none where there is no path."""
    ends: dict[str, list[str]] = {}
    for one, other in delays_us:
        ends.setdefault(one, []).append(other)
    before: dict[str, str] = {}
    heap = [(0, source, source)]
    while heap and target not in before:
        delay_us, node, last = heappop(heap)
        if node in before:
            continue
        before[node] = last
        for other in ends.get(node, ()):
            if other not in before:
                heappush(heap, (delay_us + delays_us[node, other], other, node))
    path = [target] if target in before else []
    while path and path[-1] != source:
        path.append(before[path[-1]])
    return path[::-1]


def _sum_us(delays_us: Delays, path: Sequence[str]) -> int:
    return sum(delays_us[ends] for ends in pairwise(path))


def measure(net: Net, way: Way, channels: Sequence[Pair], *, seconds: int, seed: int) -> Counts:
    world = simulation(net, way, channels, seconds=seconds, seed=seed)
    world.advance(_COUNTED_US)
    before = Counts.of(world)
    world.run(_COUNTED_US + (seconds + 30) * S).check()
    return Counts.of(world).since(before)


def simulation(
    net: Net, way: Way, channels: Sequence[Pair], *, seconds: int, seed: int
) -> Simulation:
    end_us = _COUNTED_US + seconds * S
    faults = RandomFaults(
        begin_us=_BEGIN_US,
        end_us=end_us,
        link_down_share=DOWN_SHARE,
        link_down_us=DOWN_US,
    )
    return Simulation(
        net.topology,
        _nodes(way, channels),
        seed=seed,
        model=net.model,
        faults=faults.script(net.topology, seed),
        workload=_workload(way, channels, end_us),
        options=Options(settle_us=10 * S, patience_us=20 * S, is_tracing=False),
    )


def _nodes(way: Way, channels: Sequence[Pair]) -> Make:
    options = OverlayOptions(ping_us=way.ping_us, publish_flows_us=0, publish_arrivals_us=0)

    def make(start: Start) -> CountingNode:
        own = [pair for pair in channels if pair.source == start.name]
        return CountingNode(start, options, (_definition(way, pair) for pair in own))

    return make


def _definition(way: Way, pair: Pair) -> ChannelDefinition:
    return ChannelDefinition(
        name=pair.channel,
        template=way.template,
        max_delay_us=pair.bound_us if way.has_bound else 0,
        paths=way.paths,
    )


def _workload(way: Way, channels: Sequence[Pair], end_us: int) -> Workload:
    return Workload(
        tuple(
            Publisher(
                name=f"p{pair.channel}",
                node=pair.source,
                channel=pair.channel,
                rate_hz=RATE_HZ,
                qos=way.qos,
                deadline_us=pair.bound_us,
                begin_us=_BEGIN_US,
                end_us=end_us,
            )
            for pair in channels
        ),
        tuple(
            Subscriber(name=f"s{pair.channel}", node=pair.target, filter=pair.channel, qos=way.qos)
            for pair in channels
        ),
    )
