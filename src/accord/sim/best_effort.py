"""Checks the guarantee of `BEST_EFFORT`: only links lose events, on paths as short as required.

Losing more than the path does, and using a lossy path, are two separate faults, and neither may
mask the other. So the template reports the tree an event follows. `LossChecker` compares arrivals
with what the links of that tree let through: a template that loses more, or uses another path, has
fewer arrivals. `PathChecker` compares the tree with the shortest paths: no node may be farther from
the tree's prescribed root than `factor` times its distance. On a tree that sources share, a member
may be as far from a source as both are from its root.

For a template without trees only the arrivals are known. It may lose as much as the shortest paths
would if they had half as many links again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import log, sqrt
from typing import Final

from msgspec import Struct

from accord.core.channels.trees.tree import Graph, Tree, distances
from accord.sim.checkers import CheckedRun, Checker
from accord.sim.delays import Constant
from accord.sim.guarantee_checkers import describe
from accord.sim.machine import Machine, Publication
from accord.sim.network import Network

_DETOUR: Final = 1.5
_SURPRISE: Final = -log(1e-6)
_ROUNDED: Final = 1.01  # nodes measure links in whole microseconds
_VARIED: Final = 1.25  # and with errors if delays vary

# The tree that a node sends a channel's publications on, if the template reports it.
TreeOf = Callable[[Machine, str], Tree | None]

Paths = dict[str, tuple[str, ...]]  # by node: the path from the source to it, both included


class LossStatistics(Struct):
    """Outcomes of many random trials with known probabilities; those of several runs add up."""

    delivered: int = 0
    expected: float = 0.0
    variance: float = 0.0
    max_outcome: int = 1  # maximum outcome of one trial

    @property
    def lower_bound(self) -> float:
        """Lower bound that chance alone violates once in a million (Freedman's inequality)."""
        third = _SURPRISE * self.max_outcome / 3
        return self.expected - third - sqrt(third**2 + 2 * _SURPRISE * self.variance)

    @property
    def problem(self) -> str:
        if self.delivered >= self.lower_bound:
            return ""
        bounds = f"expected {self.expected:.0f}, at least {self.lower_bound:.0f}"
        return f"{self.delivered} delivered, {bounds}"

    def add_trial(self, chances: list[float], got: int) -> None:
        """Add one trial for several deliveries, which may be lost together."""
        self.delivered += got
        self.expected += sum(chances)
        self.variance += sum(sqrt(chance * (1 - chance)) for chance in chances) ** 2
        self.max_outcome = max(self.max_outcome, len(chances))


class PathChecker(Checker):
    """Trees start at the prescribed root, and contain no detour beyond the limit."""

    name = "ways"

    def __init__(
        self, tree_of: TreeOf, root_of: Callable[[Publication], str | None], factor: float
    ) -> None:
        super().__init__()
        self.longest = 0.0  # the worst path, as a multiple of the distance
        self._tree_of = tree_of
        self._root_of = root_of
        self._factor = factor
        self._lengths: Graph = {}
        self._seen: dict[tuple[Tree, str], bool] = {}

    def sampled(self, world: CheckedRun, now_us: int) -> None:  # noqa: ARG002
        if not self._lengths:
            self._lengths = _lengths(world.network)
            is_varied = not all(
                isinstance(each.model.delay, Constant) for each in world.network.links.values()
            )
            self._factor *= _VARIED if is_varied else _ROUNDED

    def published(self, publication: Publication, machine: Machine, now_us: int) -> None:
        tree = self._tree_of(machine, publication.channel)
        root = self._root_of(publication)
        if tree is None or root is None or (tree, root) in self._seen:
            return
        self._seen[tree, root] = True
        for problem in self._problems_with(tree, root):
            self.find(now_us, publication.node, f"{publication.channel}: {problem}")

    def _problems_with(self, tree: Tree, root: str) -> Iterable[str]:
        if tree.nodes[0] != root:
            yield f"the tree begins at {tree.nodes[0]}, expected {root}"
            return
        far, _ = distances(self._lengths, root)
        depths = {root: 0}
        for parent, child in tree.links():
            length = self._lengths[parent].get(child)
            if length is None:
                yield f"no link leads from {parent} to {child}"
                return
            depths[child] = depths[parent] + length
            self.longest = max(self.longest, depths[child] / far[child])
            if depths[child] > self._factor * far[child]:
                yield f"{depths[child]} µs from {root} to {child} and back, of {far[child]}"


class LossChecker(Checker):
    """No more is lost than links lose on the paths that events follow.

    On a tree a node can only lose an event towards the next, so each member's arrivals are compared
    with those of its predecessors on the path, and a loss counts once, however many members are
    downstream. `since_us` is when each subscriber starts to be owed everything, to the end; misses
    of others are not reported here, so their arrivals carry no information. Each member's node is
    also judged separately: a surplus at one does not offset a loss at another.
    """

    name = "best effort"

    def __init__(self, loss: float, tree_of: TreeOf, since_us: Mapping[str, int]) -> None:
        super().__init__()
        self.statistics = LossStatistics()
        self.by_node: dict[str, LossStatistics] = {}
        self._loss = loss
        self._tree_of = tree_of
        self._since_us = since_us
        self._lengths: Graph = {}
        self._paths: dict[tuple[Tree | None, str], Paths] = {}
        self._keys: dict[int, tuple[Tree | None, str]] = {}
        self._received: dict[int, dict[str, bool]] = {}  # publication: members' nodes

    def sampled(self, world: CheckedRun, now_us: int) -> None:  # noqa: ARG002
        self._lengths = self._lengths or _lengths(world.network)

    def published(self, publication: Publication, machine: Machine, now_us: int) -> None:  # noqa: ARG002
        tree = self._tree_of(machine, publication.channel)
        key = self._keys[publication.number] = (tree, publication.node)
        if key not in self._paths:
            graph = self._lengths if tree is None else _graph(tree)
            self._paths[key] = _paths_from(graph, publication.node)

    def delivered(
        self,
        publication: Publication,
        subscriber: str,
        node: str,
        now_us: int,  # noqa: ARG002
        *,
        is_first: bool,
    ) -> None:
        if is_first:
            self._record(publication, subscriber, node, has_it=True)

    def missed(self, publication: Publication, subscriber: str, node: str, now_us: int) -> None:
        self._record(publication, subscriber, node, has_it=False)
        is_on_way = node in self._paths[self._keys[publication.number]]
        if not self._loss or not is_on_way:
            where = "" if is_on_way else f", no way led to {node}"
            self.find(now_us, node, f"{subscriber} did not get {describe(publication)}{where}")

    def ended(self, world: CheckedRun, now_us: int) -> None:  # noqa: ARG002
        for number, has in self._received.items():
            key = self._keys[number]
            if key[0] is None:
                self._compare_all(self._paths[key], has)
            else:
                self._compare_steps(self._paths[key], has)
        for node, shares in (("", self.statistics), *self.by_node.items()):
            if shares.problem:
                self.find(now_us, node, shares.problem)

    def _record(
        self, publication: Publication, subscriber: str, node: str, *, has_it: bool
    ) -> None:
        since_us = self._since_us.get(subscriber)
        if since_us is None or publication.published_us < since_us or node == publication.node:
            return
        self._received.setdefault(publication.number, {})[node] = has_it

    def _compare_steps(self, paths: Paths, has: Mapping[str, bool]) -> None:
        for node, has_it in has.items():
            path = paths.get(node, ())
            # The nearest upstream member: its arrivals are the base for the rest of the path.
            place = max((at for at, each in enumerate(path[:-1]) if each in has), default=0)
            if len(path) > 1 and (place == 0 or has[path[place]]):
                chance = (1 - self._loss) ** (len(path) - 1 - place)
                self.statistics.add_trial([chance], int(has_it))
                self.by_node.setdefault(node, LossStatistics()).add_trial([chance], int(has_it))

    def _compare_all(self, paths: Paths, has: Mapping[str, bool]) -> None:
        """Copies of one event may be lost together, so it is one trial for all its members."""
        far = {node: _DETOUR * (len(paths[node]) - 1) for node in has}
        self.statistics.add_trial(
            [(1 - self._loss) ** each for each in far.values()], sum(has.values())
        )


def _lengths(network: Network) -> Graph:
    """Round-trip time of each link."""
    graph: Graph = {}
    for (source, target), link in network.links.items():
        length = link.typical_us + network.links[target, source].typical_us
        graph.setdefault(source, {})[target] = max(1, length)
    return graph


def _graph(tree: Tree) -> Graph:
    return {node: dict.fromkeys(ends, 1) for node, ends in tree.adjacency().items()}


def _paths_from(graph: Graph, source: str) -> Paths:
    far, before = distances(graph, source)
    paths: Paths = {source: (source,)}
    for node in sorted(before, key=lambda each: far[each]):
        paths[node] = (*paths[before[node]], node)
    return paths
