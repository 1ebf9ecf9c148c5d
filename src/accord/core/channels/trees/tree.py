"""A tree of nodes, as it is told: events travel on it away from where they came from.

A tree is known by a digest of what it says. So whoever computes the same tree means the same one,
whichever channel and source it is for, and what a node knows of a tree can't be out of date.
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
    """The parent of each node but the first, which is the root, as a place before its own."""

    nodes: tuple[str, ...]
    parents: tuple[int, ...]

    def digest(self) -> Digest:
        return blake2b(msgspec.msgpack.encode(self), digest_size=8).digest()

    def around(self) -> dict[str, tuple[str, ...]]:
        """For each node those next to it."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for place, parent in enumerate(self.parents, start=1):
            found[self.nodes[place]].append(self.nodes[parent])
            found[self.nodes[parent]].append(self.nodes[place])
        return {name: tuple(each) for name, each in found.items()}

    def links(self) -> list[tuple[str, str]]:
        """From parents to children."""
        return [
            (self.nodes[parent], self.nodes[place])
            for place, parent in enumerate(self.parents, start=1)
        ]


def problem_with_tree(tree: Tree) -> str | None:
    """Why it is none, or None where it is one."""
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
    """The shortest ways on `graph` from the root to all members that can be reached."""
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
            continue  # no way leads there
        for each in reversed(way):
            parents.append(places[before[each]])
            places[each] = len(nodes)
            nodes.append(each)
    return Tree(tuple(nodes), tuple(parents))
