"""Routes through many nodes: computing them, and finding out that a change does not concern one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import dist
from random import Random
from statistics import mean, median, quantiles
from time import process_time
from typing import Final

from accord.core.overlay.k_shortest_paths import OverlayPath, shortest_paths
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.resiliency import choose
from benchmarks.measure import no_collection
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "Random maps: every node is connected to the two nearest of those before it, half of them also "
    "to any other; latencies grow with distance, failures are random. Of each source the "
    "16 shortest paths to a destination are found, within twice the shortest delay, and the "
    "2 of them that are most resilient together. The changes are of the latency of links that no "
    "route of the source goes over. CPU time of single calls."
)
_SIZES: Final = (100, 1_000)
_DEPTH: Final = 16
_PATHS: Final = 2
_FARTHEST_US: Final = 50_000
_AIM_US: Final = 1_000


@dataclass(frozen=True)
class Measured:
    """Seconds each."""

    nodes: int
    degree: float
    hops: float
    found: float
    first: list[float]
    further: list[float]
    chosen: list[float]
    routes: int
    changes: list[float]


def run(options: Options) -> list[Table]:
    measured = [_measured(size, options) for size in _SIZES]
    return [_computing(measured), _unconcerned(measured)]


def _measured(size: int, options: Options) -> Measured:
    progress(f"routes: {size:,} nodes")
    with no_collection():
        return measure(size, sources=10 if options.is_quick else 100, changes=options.changes)


def measure(size: int, *, sources: int, changes: int) -> Measured:
    random = Random(size)
    map_ = random_map(size, random)
    names = map_.nodes()
    first: list[float] = []
    further: list[float] = []
    chosen: list[float] = []
    found: list[list[OverlayPath]] = []
    for source in random.sample(names, min(sources, size)):
        # Another source means other distances; for its second destination they are known.
        for times in (first, further):
            target = random.choice([name for name in names if name != source])
            bound_us = 2 * shortest_paths(map_, source, target, 1)[0].delay_us
            if times is first:
                _forget_distances(map_, random)
            started = process_time()
            paths = shortest_paths(map_, source, target, _DEPTH, bound_us)
            times.append(process_time() - started)
            started = process_time()
            choose(paths, _PATHS, map_)
            chosen.append(process_time() - started)
            found.append(paths)
    return Measured(
        nodes=size,
        degree=len(map_.links()) / size,
        hops=median(len(paths[0].nodes) - 1 for paths in found),
        found=mean(len(paths) for paths in found),
        first=first,
        further=further,
        chosen=chosen,
        routes=_PATHS * (size - 1),
        changes=_change(map_, names, random, changes),
    )


def random_map(size: int, random: Random) -> LinkStateMap:
    map_ = LinkStateMap()
    places = [(random.random(), random.random()) for _ in range(size)]
    for one in range(1, size):
        nearest = sorted(range(one), key=lambda other: dist(places[one], places[other]))
        ends = dict.fromkeys(nearest[:2])
        if random.random() < 0.5:
            ends[random.randrange(one)] = None
        for other in ends:
            latency_us = round(_FARTHEST_US * dist(places[one], places[other]))
            failure = 0.05 * random.random()
            for source, target in ((one, other), (other, one)):
                reported_us = latency_us + random.randrange(2_000)
                map_.set_link(_name(source), _name(target), reported_us, 0.0, True, failure)
    for one in range(size):
        map_.set_node(_name(one), {"": random.randrange(500)}, 0.02 * random.random())
    return map_


def _name(place: int) -> str:
    return f"node{place:04}"


def _forget_distances(map_: LinkStateMap, random: Random) -> None:
    source, target, link = random.choice(map_.links())
    map_.set_link(source, target, link.latency_us + 1, link.loss, link.is_up, link.failure)


def _change(map_: LinkStateMap, names: Sequence[str], random: Random, changes: int) -> list[float]:
    """A source with routes to all others hears of links that none of them goes over."""
    source = names[0]
    users: dict[tuple[str, str], list[str]] = {}
    for target in names[1:]:
        paths = shortest_paths(map_, source, target, _PATHS)
        for path in paths:
            for ends in pairwise(path.nodes):
                users.setdefault(ends, []).append(target)
    others = [each for each in map_.links() if each[:2] not in users]
    seen = map_.version
    spent: list[float] = []
    for step in range(1, changes + 1):
        one, other, link = random.choice(others)
        latency_us = link.latency_us + step  # never what it was before
        started = process_time()
        map_.set_link(one, other, latency_us, link.loss, link.is_up, link.failure)
        concerned = _concerned(map_, seen, users)
        seen = map_.version
        spent.append(process_time() - started)
        assert concerned == []
    return spent


def _concerned(map_: LinkStateMap, seen: int, users: dict[tuple[str, str], list[str]]) -> list[str]:
    changed = map_.changed_since(seen)
    assert changed
    return [target for link in changed for target in users.get(link, ())]


def _computing(measured: Sequence[Measured]) -> Table:
    columns = ["nodes", "links per node", "hops", "paths", "first ms", "p95", "further ms", "p95",
               "choose ms", "p95"]  # fmt: skip
    table = Table(f"Computing routes, k = {_DEPTH}, n = {_PATHS}", columns)
    for each in measured:
        table.add(
            number(each.nodes),
            significant(each.degree),
            significant(each.hops),
            significant(each.found),
            *(cell for times in (each.first, each.further, each.chosen) for cell in _ms(times)),
        )
    table.notes = [
        "hops: of the shortest path; paths: found within the bound, of at most 16.",
        "first: paths to a source's first destination after the map changed; further: to others.",
        "choose: the best two of these paths.",
    ]
    return table


def _ms(times: list[float]) -> tuple[str, str]:
    return significant(median(times) * 1e3), significant(quantiles(times, n=20)[-1] * 1e3)


def _unconcerned(measured: Sequence[Measured]) -> Table:
    columns = ["nodes", "routes", "median µs", "p95 µs", "most µs", "aim"]
    table = Table("A change that does not concern a source", columns)
    for each in measured:
        spent_us = [spent * 1e6 for spent in each.changes]
        verdict = "met" if max(spent_us) < _AIM_US else "missed"
        table.add(
            number(each.nodes),
            number(each.routes),
            significant(median(spent_us)),
            significant(quantiles(spent_us, n=20)[-1]),
            significant(max(spent_us)),
            f"< {_AIM_US:,} µs: {verdict}",
        )
    table.notes = [
        "From the report of a link until the source knows that none of its routes is on it."
    ]
    return table
