"""The official tree: one tree of all nodes, equal at all nodes with equal maps.

It is the shortest-path tree of the node whose name comes first, on a spanner graph. A node floods a
message for all nodes along it, so each link of the tree carries the message once. Each part of a
divided overlay has its own tree. While maps differ, trees may differ too: a sender that needs
reliability retransmits, or attaches the tree to its messages.
"""

from __future__ import annotations

from accord.core.channels.trees.spanner import FACTOR, graph_of, spanner
from accord.core.channels.trees.tree import Tree, build_tree
from accord.core.overlay.link_state import LinkStateMap


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
            self._next_to = self._tree.around().get(self._name, ())
        return self._tree

    def next_to(self) -> tuple[str, ...]:
        """Neighbours of this node on the tree."""
        self.tree()
        return self._next_to
