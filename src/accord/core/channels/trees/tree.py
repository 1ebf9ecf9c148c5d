"""Distribution trees: their wire form, the official tree of all nodes, and spanner graphs.

Events travel on a tree away from the node they came from. A tree is identified by a digest of its
content. Nodes that compute the same tree share it across channels and sources, and a stored tree
cannot be out of date.

The official tree is equal at all nodes with equal maps. It is the shortest-path tree of the node
whose name comes first, on a spanner graph. A node floods a message for all nodes along it, so each
link of the tree carries the message once. Each part of a divided overlay has its own tree. While
maps differ, trees may differ too: a sender that needs reliability retransmits, or attaches the tree
to its messages.

A spanner graph has few links and bounded stretch of paths. The minimum spanning tree is cheapest,
but two neighbours may be far apart on it. The greedy spanner considers links from the shortest to
the longest, and omits a link only if the links chosen so far connect its ends within `factor` times
its length. The result contains the minimum spanning tree, and no two nodes are farther apart than
`factor` times their distance on all links. A factor of 1 keeps every useful link, a very large one
only the tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final

import msgspec

from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.state_messages import is_valid_name

FACTOR: Final = 1.5
DOWN: Final = 1 << 44

Graph = dict[str, dict[str, int]]  # lengths, in both directions


def graph_of(net: LinkStateMap) -> Graph:
    """All links; the length of a usable link is its round-trip time.

    Other links are longer than any path, so they are used only where no others lead: a link may be
    up before the map knows it.
    """
    graph: Graph = {}
    for source, target, link in net.links():
        length = max(1, 2 * link.latency_us)
        back = net.link(target, source)
        if link.is_usable and back is not None:
            length = max(1, link.latency_us + back.latency_us)
        else:
            length += DOWN
        known = graph.setdefault(source, {}).get(target, length)
        graph[source][target] = min(length, known)
        graph.setdefault(target, {})[source] = graph[source][target]
    return graph


def spanner(graph: Graph, factor: float = FACTOR) -> Graph:
    if factor < 1:
        raise ValueError(f"factor: expected at least 1, got {factor}")
    chosen: Graph = {}
    links = [
        (length, source, target)
        for source, ends in graph.items()
        for target, length in ends.items()
        if source < target
    ]
    for length, source, target in sorted(links):
        if not _is_within(chosen, source, target, factor * length):
            chosen.setdefault(source, {})[target] = length
            chosen.setdefault(target, {})[source] = length
    return chosen


def distances(graph: Graph, root: str) -> tuple[dict[str, int], dict[str, str]]:
    """Distance of every node from `root`, and its predecessor on the shortest path (Dijkstra)."""
    far = {root: 0}
    before: dict[str, str] = {}
    done: dict[str, bool] = {}
    heap = [(0, root)]
    while heap:
        reached, node = heappop(heap)
        if node in done:
            continue
        done[node] = True
        for target, length in graph.get(node, {}).items():
            total = reached + length
            known = far.get(target)
            if known is None or total < known:
                far[target] = total
                before[target] = node
                heappush(heap, (total, target))
            elif total == known and target not in done and node < before[target]:
                before[target] = node
    return far, before


def _is_within(graph: Graph, source: str, target: str, limit: float) -> bool:
    far = {source: 0}
    heap = [(0, source)]
    while heap:
        reached, node = heappop(heap)
        if node == target:
            return True
        if reached > far[node]:
            continue
        for end, length in graph.get(node, {}).items():
            total = reached + length
            if total <= limit and total < far.get(end, total + 1):
                far[end] = total
                heappush(heap, (total, end))
    return False


MAX_NODES: Final = 4_096

Digest = bytes


class Tree(msgspec.Struct, frozen=True, array_like=True):
    """A tree; `nodes[0]` is the root, and each other node's parent is an earlier index."""

    nodes: tuple[str, ...]
    parents: tuple[int, ...]

    def digest(self) -> Digest:
        return blake2b(msgspec.msgpack.encode(self), digest_size=8).digest()

    def adjacency(self) -> dict[str, tuple[str, ...]]:
        """Neighbours of each node."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for place, parent in enumerate(self.parents, start=1):
            found[self.nodes[place]].append(self.nodes[parent])
            found[self.nodes[parent]].append(self.nodes[place])
        return {name: tuple(each) for name, each in found.items()}

    def links(self) -> list[tuple[str, str]]:
        """Links from parent to child."""
        return [
            (self.nodes[parent], self.nodes[place])
            for place, parent in enumerate(self.parents, start=1)
        ]


def problem_with_tree(tree: Tree) -> str | None:
    """Return why the tree is invalid, or None."""
    if not 0 < len(tree.nodes) <= MAX_NODES:
        return f"expected 1 to {MAX_NODES} nodes, got {len(tree.nodes)}"
    if not all(map(is_valid_name, tree.nodes)):
        return "expected names of nodes"
    if len(dict.fromkeys(tree.nodes)) != len(tree.nodes):
        return "expected each node once"
    if len(tree.parents) != len(tree.nodes) - 1:
        return "expected a parent for each node but the first"
    if not all(0 <= parent <= place for place, parent in enumerate(tree.parents)):
        return "expected parents before their children"
    return None


def build_tree(graph: Graph, root: str, members: Iterable[str]) -> Tree:
    """Union of the shortest paths on `graph` from the root to all reachable members."""
    _, before = distances(graph, root)
    nodes = [root]
    places = {root: 0}
    parents: list[int] = []
    for member in sorted(members):
        path = []
        node = member
        while node not in places and node in before:
            path.append(node)
            node = before[node]
        if node not in places:
            continue  # unreachable
        for each in reversed(path):
            parents.append(places[before[each]])
            places[each] = len(nodes)
            nodes.append(each)
    return Tree(tuple(nodes), tuple(parents))


class OfficialTree:
    """One node's view; recomputed when the map changes."""

    def __init__(self, name: str, net: LinkStateMap, factor: float = FACTOR) -> None:
        self._name = name
        self._map = net
        self._factor = factor
        self._version = -1
        self._tree = Tree((name,), ())
        self._next_to: tuple[str, ...] = ()

    def tree(self) -> Tree:
        """The tree over all reachable nodes, including this one."""
        if self._version != self._map.version:
            self._version = self._map.version
            reachable = sorted(self._map.distances(self._name).costs) or [self._name]
            root = reachable[0]
            self._tree = build_tree(spanner(graph_of(self._map), self._factor), root, reachable)
            self._next_to = self._tree.adjacency().get(self._name, ())
        return self._tree

    def neighbours(self) -> tuple[str, ...]:
        """Neighbours of this node on the tree."""
        self.tree()
        return self._next_to
