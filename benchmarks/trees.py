"""The trees that templates grow, beside the cheapest and the fastest there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean
from typing import Final

from accord.core.channels.trees.tree import FACTOR, Graph, Tree, build_tree, distances, spanner
from accord.sim.graph_files import read_topology
from accord.sim.topology import Topology
from benchmarks.options import Options, progress
from benchmarks.report import Table, number, significant

ABOUT: Final = (
    "Trees from a source to members, both chosen by chance, on real networks. Cost: the delays of "
    "all links of the tree together, beside those of the part of the minimum spanning tree that "
    "leads to the members. Delay: from the source to a member, beside the shortest way there is. "
    "Each figure is a mean over many choices. Templates grow shortest ways on a spanner graph, in "
    f"which no two nodes are farther apart than a factor ({FACTOR} unless a channel says otherwise)"
    " times their distance; with a factor of 1 that is the shortest-path tree, with a very large "
    "one the minimum spanning tree. Where sources share a tree (`unreliable`) it is rooted at "
    "another node, the rendezvous, and events go from their source along its links."
)
_DATA: Final = Path(__file__).parents[2] / "shared" / "data" / "topologies"
_PATHS: Final = (
    "sndlib/abilene.json",
    "sndlib/geant.json",
    "sndlib/germany50.json",
    "topozoo/Surfnet.json",
    "topozoo/TataNld.json",
    "backbone/north_america.json",
    "backbone/europe.json",
    "backbone/world.json",
)
_CHEAPEST: Final = 1e9
_FACTORS: Final = (("shortest paths", 1.0), ("templates", FACTOR), ("spanner of 3", 3.0),
                   ("minimum spanning", _CHEAPEST))  # fmt: skip
_SHARED: Final = "templates, shared"
_SHARES: Final = (1.0, 0.1)


@dataclass(frozen=True)
class Measured:
    """Of one tree: cost and delays beside the best there are, and hops of the farthest member."""

    cost: float
    mean_delay: float
    worst_delay: float
    hops: int


def run(options: Options) -> list[Table]:
    table = Table(
        "Cost and depth of trees",
        ["network", "nodes", "links", "members", "tree", "cost", "delay", "worst delay", "hops"],
    )
    paths = _PATHS[:4] if options.is_quick else _PATHS
    for path in paths:
        if (_DATA / path).is_file():
            _add(table, path, draws=5 if options.is_quick else 50)
        else:
            table.notes.append(f"{path}: skipped, there is no such file beside the project.")
    table.notes += [
        "Delays: times the least possible. Cost: times that of the minimum spanning tree, of which",
        "the part that leads to few members is not always the cheapest there is. Members: with the",
        "source. Hops: to the farthest member.",
    ]
    return [table]


def _add(table: Table, path: str, draws: int) -> None:
    topology = read_topology(_DATA / path)
    graph = graph_of(topology)
    progress(f"trees: {path}, {len(graph)} nodes")
    graphs = {factor: spanner(graph, factor) for _, factor in _FACTORS}
    for share in _SHARES:
        count = max(2, round(share * len(graph)))
        for name, factor in (*_FACTORS, (_SHARED, FACTOR)):
            is_shared = name == _SHARED
            found = list(_measure(graph, graphs, factor, count, draws, is_shared=is_shared))
            table.add(
                Path(path).stem,
                number(len(graph)),
                number(sum(map(len, graph.values())) / 2),
                number(count),
                name,
                *_cells(found),
            )


def _measure(  # noqa: PLR0913
    graph: Graph,
    graphs: dict[float, Graph],
    factor: float,
    count: int,
    draws: int,
    *,
    is_shared: bool,
) -> Iterator[Measured]:
    random, meeting = Random(count), Random(f"rendezvous {count}")
    for _ in range(draws if len(graph) < 1_000 else max(3, draws // 10)):
        source, *members = chosen = random.sample(sorted(graph), count)
        cheapest = cost(graph, build_tree(graphs[_CHEAPEST], source, members))
        root = meeting.choice(sorted(graph)) if is_shared else source
        tree = build_tree(graphs[factor], root, [each for each in chosen if each != root])
        yield measure(graph, tree, source, members, cheapest)


def measure(
    graph: Graph, tree: Tree, source: str, members: Sequence[str], cheapest: int
) -> Measured:
    nearest, _ = distances(graph, source)
    delays, hops = depths(graph, tree, source)
    stretches = [delays[each] / nearest[each] for each in members if nearest.get(each)]
    return Measured(
        cost=cost(graph, tree) / cheapest,
        mean_delay=mean(stretches),
        worst_delay=max(stretches),
        hops=max(hops[each] for each in members if each in hops),
    )


def graph_of(topology: Topology) -> Graph:
    """Delays, both ways; the largest part where a network is in several."""
    graph: Graph = {}
    for span in topology.spans:
        length = max(1, span.delay_us or 0)
        graph.setdefault(span.one, {})[span.other] = length
        graph.setdefault(span.other, {})[span.one] = length
    parts = [distances(graph, root)[0] for root in _one_of_each_part(graph)]
    largest = max(parts, key=len)
    return {name: ends for name, ends in graph.items() if name in largest}


def cost(graph: Graph, tree: Tree) -> int:
    return sum(graph[one][other] for one, other in tree.links())


def depths(graph: Graph, tree: Tree, source: str) -> tuple[dict[str, int], dict[str, int]]:
    """How far every node is from one of them along the tree, in time and in hops."""
    ends: dict[str, list[str]] = {}
    for one, other in tree.links():
        ends.setdefault(one, []).append(other)
        ends.setdefault(other, []).append(one)
    delays, hops = {source: 0}, {source: 0}
    reached = [source]
    for one in reached:  # grows while it is walked over
        for other in ends.get(one, ()):
            if other not in delays:
                delays[other] = delays[one] + graph[one][other]
                hops[other] = hops[one] + 1
                reached.append(other)
    return delays, hops


def _one_of_each_part(graph: Graph) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in graph:
        if name not in seen:
            seen.update(distances(graph, name)[0])
            yield name


def _cells(found: Sequence[Measured]) -> Sequence[str]:
    return (
        significant(mean(each.cost for each in found)),
        significant(mean(each.mean_delay for each in found)),
        significant(mean(each.worst_delay for each in found)),
        significant(mean(each.hops for each in found)),
    )
