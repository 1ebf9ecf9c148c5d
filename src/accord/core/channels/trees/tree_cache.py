"""Cache of the trees that a node has computed.

A tree is kept while all its links are usable and it reaches all members: other nodes know it, and a
slightly shorter one is not worth distributing. It is recomputed after a while nevertheless, because
latencies change.

Trees that a node can forward by, and which neighbours know them.

A tree is attached to the events that follow it until the neighbour acknowledges it: no event waits
for a tree, no tree is lost separately, and an unused tree costs nothing. A node that receives an
event of an unknown tree reports it, and gets the tree with the next event. Unused trees expire, at
the sending end earlier than at the receiving one.
"""

from __future__ import annotations

from typing import Final

from accord.core.channels.trees.tree import Digest, Graph, Tree, build_tree, graph_of, spanner
from accord.core.overlay.link_state import LinkStateMap

REFRESH_US: Final = 60_000_000
_TREES: Final = 256

_Key = tuple[str, tuple[str, ...], float]


class CachedTree:
    """A tree, and the version of the map for which it was last valid."""

    __slots__ = ("built_us", "digest", "missing", "tree", "version")

    def __init__(self, tree: Tree, members: tuple[str, ...], version: int, now_us: int) -> None:
        self.tree = tree
        self.digest: Digest = tree.digest()
        self.version = version
        self.built_us = now_us
        known = dict.fromkeys(tree.nodes, True)
        self.missing = tuple(each for each in members if each not in known)


class TreeCache:
    """Trees by root, members and stretch factor, and spanners by factor."""

    def __init__(self, net: LinkStateMap) -> None:
        self.built = 0  # trees computed so far
        self._map = net
        self._trees: dict[_Key, CachedTree] = {}
        self._spanners: dict[float, Graph] = {}
        self._version = -1

    def tree(self, root: str, members: tuple[str, ...], factor: float, now_us: int) -> CachedTree:
        """The tree from `root` over all `members` reachable from there."""
        key = (root, members, factor)
        known = self._trees.get(key)
        if known is not None and self._is_usable(known, now_us):
            known.version = self._map.version
            return known
        self.built += 1
        tree = build_tree(self._spanner(factor), root, members)
        self._trees.pop(key, None)
        while len(self._trees) >= _TREES:
            del self._trees[next(iter(self._trees))]
        grown = self._trees[key] = CachedTree(tree, members, self._map.version, now_us)
        return grown

    def cached(self, root: str, members: tuple[str, ...], factor: float) -> Tree | None:
        """The cached tree, without computing or refreshing it."""
        grown = self._trees.get((root, members, factor))
        return None if grown is None else grown.tree

    def expire(self, now_us: int) -> None:
        """Expire trees that were not requested since they were due for recomputation."""
        for key, grown in list(self._trees.items()):
            if now_us - grown.built_us >= 2 * REFRESH_US:
                del self._trees[key]

    def __len__(self) -> int:
        return len(self._trees)

    def check_invariants(self) -> None:
        assert len(self._trees) <= _TREES
        for (root, members, _), grown in self._trees.items():
            assert grown.tree.nodes[0] == root
            assert all(each in grown.tree.nodes or each in grown.missing for each in members)

    def _is_usable(self, grown: CachedTree, now_us: int) -> bool:
        if now_us - grown.built_us >= REFRESH_US:
            return False
        if grown.version == self._map.version:
            return True
        links = grown.tree.links()
        return not grown.missing and all(self._map.link(*ends) is not None for ends in links)

    def _spanner(self, factor: float) -> Graph:
        if self._version != self._map.version:
            self._version = self._map.version
            self._spanners.clear()
        found = self._spanners.get(factor)
        if found is None:
            while len(self._spanners) >= 8:
                del self._spanners[next(iter(self._spanners))]
            found = self._spanners[factor] = spanner(graph_of(self._map), factor)
        return found


IDLE_US: Final = 60_000_000
_TRUST_US: Final = 30_000_000  # an acknowledgement by a neighbour is valid for this long
_MAX_KNOWN: Final = 4_096
NODES: Final = 1 << 20  # nodes over all trees; one tree is always kept
_CONFIRMED: Final = 16_384


class _Known:
    __slots__ = ("adjacency", "beyond", "tree", "used_us")

    def __init__(self, tree: Tree, now_us: int) -> None:
        self.tree = tree
        self.adjacency = tree.adjacency()
        self.beyond: dict[str, list[str]] = {}
        self.used_us = now_us


class KnownTrees:
    """Bounded table of trees by digest, and of acknowledgements by neighbour and digest."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[Digest, _Known] = {}
        self._nodes = 0
        self._confirmed: dict[tuple[str, Digest], int] = {}  # time of the last use

    def learn(self, tree: Tree, digest: Digest, now_us: int) -> None:
        known = self._known.get(digest)
        if known is not None:
            known.used_us = now_us
            return
        more = len(tree.nodes)
        while self._known and (len(self._known) >= _MAX_KNOWN or self._nodes + more > NODES):
            self._drop(next(iter(self._known)))
        self._known[digest] = _Known(tree, now_us)
        self._nodes += more

    def neighbours(self, digest: Digest, now_us: int) -> tuple[str, ...] | None:
        """Tree neighbours of this node; None if the tree is unknown."""
        known = self._known.get(digest)
        if known is None:
            return None
        known.used_us = now_us
        return known.adjacency.get(self._name, ())

    def beyond(self, digest: Digest, neighbour: str) -> list[str]:
        """All nodes whose path from here starts with that neighbour."""
        known = self._known.get(digest)
        if known is None:
            return []
        beyond = known.beyond.get(neighbour)
        if beyond is None:
            beyond = known.beyond[neighbour] = self._walk(known, neighbour)
        return beyond

    def next_hop(self, digest: Digest, node: str) -> str:
        """The next hop to a node on the tree; "" if there is none."""
        known = self._known.get(digest)
        around = () if known is None else known.adjacency.get(self._name, ())
        return next((each for each in around if node in self.beyond(digest, each)), "")

    def _walk(self, known: _Known, neighbour: str) -> list[str]:
        found = [neighbour]
        came = {self._name: True, neighbour: True}
        for node in found:  # breadth first: `found` grows during the loop
            for each in known.adjacency.get(node, ()):
                if each not in came:
                    came[each] = True
                    found.append(each)
        return found

    def to_attach(self, neighbour: str, digest: Digest, now_us: int) -> Tree | None:
        """Return the tree if the neighbour needs it with the next event."""
        used_us = self._confirmed.get((neighbour, digest))
        if used_us is not None and now_us - used_us < _TRUST_US:
            self._confirmed[neighbour, digest] = now_us
            return None
        self._confirmed.pop((neighbour, digest), None)
        known = self._known.get(digest)
        return None if known is None else known.tree

    def confirm(self, neighbour: str, digest: Digest, now_us: int) -> None:
        """Record that the neighbour has the tree."""
        if digest in self._known:
            while len(self._confirmed) >= _CONFIRMED:
                del self._confirmed[next(iter(self._confirmed))]
            self._confirmed[neighbour, digest] = now_us

    def unconfirm(self, neighbour: str, digest: Digest) -> None:
        """Record that the neighbour does not have the tree."""
        self._confirmed.pop((neighbour, digest), None)

    def expire(self, now_us: int) -> None:
        """Expire unused trees and acknowledgements."""
        for digest, known in list(self._known.items()):
            if now_us - known.used_us >= IDLE_US:
                self._drop(digest)
        for key, used_us in list(self._confirmed.items()):
            if now_us - used_us >= _TRUST_US or key[1] not in self._known:
                del self._confirmed[key]

    def __len__(self) -> int:
        return len(self._known) + len(self._confirmed)

    def check_invariants(self) -> None:
        assert len(self._known) <= _MAX_KNOWN
        assert len(self._confirmed) <= _CONFIRMED
        assert self._nodes == sum(len(known.tree.nodes) for known in self._known.values())
        assert self._nodes <= NODES or len(self._known) == 1

    def _drop(self, digest: Digest) -> None:
        self._nodes -= len(self._known.pop(digest).tree.nodes)
