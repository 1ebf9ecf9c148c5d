"""The trees a node can forward by, and which of its neighbours know which.

A tree comes with the events that travel on it, until the neighbour has said that it has it: nobody
waits for a tree, none is lost on its own, and a tree that nothing travels on costs nothing. Who
gets an event of a tree it does not know says so, and gets the tree with the next. What was not used
for a while is forgotten, at the sending end earlier than at the receiving one.
"""

from __future__ import annotations

from typing import Final

from accord.core.channels.trees.tree import Digest, Tree

IDLE_US: Final = 60_000_000
_TRUST_US: Final = 30_000_000  # so long a neighbour is believed to know a tree
_TREES: Final = 4_096
NODES: Final = 1 << 20  # of all of them together; one tree is always known
_CONFIRMED: Final = 16_384


class _Known:
    __slots__ = ("around", "beyond", "tree", "used_us")

    def __init__(self, tree: Tree, now_us: int) -> None:
        self.tree = tree
        self.around = tree.around()
        self.beyond: dict[str, list[str]] = {}
        self.used_us = now_us


class KnownTrees:
    """Of one node."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[Digest, _Known] = {}
        self._nodes = 0
        self._confirmed: dict[tuple[str, Digest], int] = {}  # when something went there

    def learn(self, tree: Tree, digest: Digest, now_us: int) -> None:
        known = self._known.get(digest)
        if known is not None:
            known.used_us = now_us
            return
        more = len(tree.nodes)
        while self._known and (len(self._known) >= _TREES or self._nodes + more > NODES):
            self._drop(next(iter(self._known)))
        self._known[digest] = _Known(tree, now_us)
        self._nodes += more

    def next_to(self, digest: Digest, now_us: int) -> tuple[str, ...] | None:
        """The nodes next to this one on a tree; None where it is not known."""
        known = self._known.get(digest)
        if known is None:
            return None
        known.used_us = now_us
        return known.around.get(self._name, ())

    def beyond(self, digest: Digest, neighbour: str) -> list[str]:
        """All nodes to which the way from here begins with that neighbour."""
        known = self._known.get(digest)
        if known is None:
            return []
        beyond = known.beyond.get(neighbour)
        if beyond is None:
            beyond = known.beyond[neighbour] = self._walk(known, neighbour)
        return beyond

    def towards(self, digest: Digest, node: str) -> str:
        """The neighbour with which the way there begins; empty where none leads there."""
        known = self._known.get(digest)
        around = () if known is None else known.around.get(self._name, ())
        return next((each for each in around if node in self.beyond(digest, each)), "")

    def _walk(self, known: _Known, neighbour: str) -> list[str]:
        found = [neighbour]
        came = {self._name: True, neighbour: True}
        for node in found:  # grows while it is walked over
            for each in known.around.get(node, ()):
                if each not in came:
                    came[each] = True
                    found.append(each)
        return found

    def to_attach(self, neighbour: str, digest: Digest, now_us: int) -> Tree | None:
        """The tree, where a neighbour needs it with what it is sent now."""
        used_us = self._confirmed.get((neighbour, digest))
        if used_us is not None and now_us - used_us < _TRUST_US:
            self._confirmed[neighbour, digest] = now_us
            return None
        self._confirmed.pop((neighbour, digest), None)
        known = self._known.get(digest)
        return None if known is None else known.tree

    def confirm(self, neighbour: str, digest: Digest, now_us: int) -> None:
        """The neighbour has it."""
        if digest in self._known:
            while len(self._confirmed) >= _CONFIRMED:
                del self._confirmed[next(iter(self._confirmed))]
            self._confirmed[neighbour, digest] = now_us

    def lack(self, neighbour: str, digest: Digest) -> None:
        """The neighbour has it not."""
        self._confirmed.pop((neighbour, digest), None)

    def forget(self, now_us: int) -> None:
        """What has not been used for a while."""
        for digest, known in list(self._known.items()):
            if now_us - known.used_us >= IDLE_US:
                self._drop(digest)
        for key, used_us in list(self._confirmed.items()):
            if now_us - used_us >= _TRUST_US or key[1] not in self._known:
                del self._confirmed[key]

    def __len__(self) -> int:
        return len(self._known) + len(self._confirmed)

    def check_invariants(self) -> None:
        assert len(self._known) <= _TREES
        assert len(self._confirmed) <= _CONFIRMED
        assert self._nodes == sum(len(known.tree.nodes) for known in self._known.values())
        assert self._nodes <= NODES or len(self._known) == 1

    def _drop(self, digest: Digest) -> None:
        self._nodes -= len(self._known.pop(digest).tree.nodes)
