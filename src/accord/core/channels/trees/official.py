"""The official tree: one tree of all nodes, the same for all that know the same map.

It is that of the node whose name comes first, on a spanner graph. Who has something for everybody
sends it to those next to it, and they to those next to them: each link of the tree carries it once.
Each part of a divided overlay has its own. While the maps of nodes differ so may their trees, for a
moment: whoever needs more than that repeats, or has the tree told with what goes over it.
"""

from __future__ import annotations

from accord.core.channels.trees.spanner import FACTOR, graph_of, spanner
from accord.core.channels.trees.tree import Tree, build_tree
from accord.core.overlay.link_state import LinkStateMap


class OfficialTree:
    """As one node sees it; an answer serves until the map changes."""

    def __init__(self, name: str, net: LinkStateMap, factor: float = FACTOR) -> None:
        self._name = name
        self._map = net
        self._factor = factor
        self._version = -1
        self._tree = Tree((name,), ())
        self._next_to: tuple[str, ...] = ()

    def tree(self) -> Tree:
        """Over all nodes that can be reached, this one among them."""
        if self._version != self._map.version:
            self._version = self._map.version
            reachable = sorted(self._map.distances(self._name).costs) or [self._name]
            root = reachable[0]
            self._tree = build_tree(spanner(graph_of(self._map), self._factor), root, reachable)
            self._next_to = self._tree.around().get(self._name, ())
        return self._tree

    def next_to(self) -> tuple[str, ...]:
        """The neighbours of this node on it."""
        self.tree()
        return self._next_to
