"""A distribution tree in wire form; events travel on it away from the node they came from.

A tree is identified by a digest of its content. Nodes that compute the same tree share it across
channels and sources, and a stored tree cannot be out of date.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from accord.core.channels.trees.spanner import Graph, distances
from accord.core.overlay.state_messages import is_name

MAX_NODES: Final = 4_096

Digest = bytes


class Tree(msgspec.Struct, frozen=True, array_like=True):
    """A tree; `nodes[0]` is the root, and each other node's parent is an earlier index."""

    nodes: tuple[str, ...]
    parents: tuple[int, ...]

    def digest(self) -> Digest:
        return blake2b(msgspec.msgpack.encode(self), digest_size=8).digest()

    def around(self) -> dict[str, tuple[str, ...]]:
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
    if not all(map(is_name, tree.nodes)):
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
        way = []
        node = member
        while node not in places and node in before:
            way.append(node)
            node = before[node]
        if node not in places:
            continue  # unreachable
        for each in reversed(way):
            parents.append(places[before[each]])
            places[each] = len(nodes)
            nodes.append(each)
    return Tree(tuple(nodes), tuple(parents))
