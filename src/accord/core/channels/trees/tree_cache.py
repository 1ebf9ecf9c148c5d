"""Cache of the trees that a node has computed.

A tree is kept while all its links are usable and it reaches all members: other nodes know it, and a
slightly shorter one is not worth distributing. It is recomputed after a while nevertheless, because
latencies change.
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
