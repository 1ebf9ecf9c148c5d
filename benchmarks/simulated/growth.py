"""How an overlay grows: what it takes until all nodes know all others, and to keep it so.

All nodes start at once, which is the most there is to tell: each node has to learn of every other.
Everybody subscribes to something of its own. Converged means that all stores are equal, and that
each map has all links up.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time
from typing import Final

from accord.core.overlay.options import OverlayOptions
from accord.sim.faults import LinkDown
from accord.sim.links import LinkModel
from accord.sim.node import overlay_nodes
from accord.sim.run import Options, Simulation
from accord.sim.topology import Topology, waxman
from accord.sim.workloads import Subscriber, Workload
from benchmarks.measure import no_collection, resident_bytes
from benchmarks.simulated.endurance import overlays_of

S: Final = 1_000_000
DEGREE: Final = 5.0
_PATIENCE_S: Final = 300
_QUIET_S: Final = 20


@dataclass(frozen=True)
class Grown:
    """CPU time is of the whole simulation, bytes are of its process, messages on all links."""

    nodes: int
    links: int
    converged_s: int  # of virtual time
    cpu_s: float
    bytes: int
    messages: int
    sent_bytes: int
    quiet_cpu_s: float  # in a second of virtual time in which nothing happens
    failure_cpu_s: float  # beyond that, until all know that a link has failed


def measure(count: int) -> Grown:
    with no_collection():
        return _measure(count)


def _measure(count: int) -> Grown:
    before = resident_bytes()
    topology = waxman(count, seed=1, degree=DEGREE)
    failing = topology.spans[0]
    world = _simulation(topology)
    started = process_time()
    converged_s = _converge(world)
    cpu_s = process_time() - started
    links = list(world.network.links.values())
    messages = sum(link.counts.messages for link in links)
    sent_bytes = sum(link.counts.bytes for link in links)
    grown = resident_bytes() - before
    quiet_cpu_s = _pass(world, _QUIET_S) / _QUIET_S
    LinkDown(failing.one, failing.other, is_told=True).apply(world, world.clock.now_us)
    failure_s = 5
    failure_cpu_s = _pass(world, failure_s) - failure_s * quiet_cpu_s
    return Grown(
        nodes=count,
        links=len(topology.spans),
        converged_s=converged_s,
        cpu_s=cpu_s,
        bytes=grown,
        messages=messages,
        sent_bytes=sent_bytes,
        quiet_cpu_s=quiet_cpu_s,
        failure_cpu_s=failure_cpu_s,
    )


def _simulation(topology: Topology) -> Simulation:
    subscribers = tuple(
        Subscriber(name=f"s{name}", node=name, filter=f"area/{name}/#") for name in topology.nodes
    )
    return Simulation(
        topology,
        overlay_nodes(OverlayOptions(publish_flows_us=0, publish_arrivals_us=0)),
        seed=1,
        model=LinkModel(),
        workload=Workload((), subscribers),
        options=Options(is_tracing=False, sample_us=3_600 * S),
    )


def _converge(world: Simulation) -> int:
    for second in range(1, _PATIENCE_S):
        world.advance(second * S)
        if world.error is not None:
            raise world.error
        if _is_converged(world):
            return second
    raise AssertionError(f"not converged after {_PATIENCE_S} s")


def _is_converged(world: Simulation) -> bool:
    links = 2 * len(world.topology.spans)
    first = ""
    for overlay in overlays_of(world):
        digest = f"{overlay.store.digest} {len(overlay.store.origins())}"
        first = first or digest
        if digest != first:
            return False
    return all(
        sum(link.is_usable for _, _, link in overlay.map.links()) == links
        for overlay in overlays_of(world)
    )


def _pass(world: Simulation, seconds: int) -> float:
    started = process_time()
    world.advance(world.clock.now_us + seconds * S)
    return process_time() - started
