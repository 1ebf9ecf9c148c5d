"""Rendezvous of a channel: one node that all agree on without communication (rendezvous hashing).

Each node's weight is a hash of its name and the channel's; the highest wins. When that node fails,
the next highest becomes the rendezvous, and no other channel's changes; when it returns, it is the
rendezvous again. Only reachable nodes count, so each part of a divided overlay has one. While the
nodes' maps differ, they may disagree for a moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from accord.core.overlay.link_state import LinkStateMap

_CHANNELS: Final = 1_024


def rendezvous(channel: str, nodes: Iterable[str]) -> str:
    """Return the node with the highest weight; `nodes` is not empty."""
    return max(nodes, key=lambda node: (_weight(channel, node), node))


def _weight(channel: str, node: str) -> bytes:
    return blake2b(f"{channel}\0{node}".encode(), digest_size=8).digest()


class Rendezvous:
    """One node's view; results are cached until the map changes."""

    def __init__(self, name: str, net: LinkStateMap) -> None:
        self._name = name
        self._map = net
        self._version = -1
        self._nodes: list[str] = []
        self._found: dict[str, str] = {}

    def nodes(self) -> list[str]:
        """All reachable nodes, including this one, sorted by name."""
        if self._version != self._map.version:
            self._version = self._map.version
            reachable = sorted(self._map.distances(self._name).costs)
            if reachable != self._nodes:
                self._nodes = reachable
                self._found.clear()
        return self._nodes

    def of(self, channel: str) -> str:
        nodes = self.nodes() or [self._name]
        found = self._found.get(channel)
        if found is None:
            while len(self._found) >= _CHANNELS:
                del self._found[next(iter(self._found))]
            found = self._found[channel] = rendezvous(channel, nodes)
        return found

    def check_invariants(self) -> None:
        assert len(self._found) <= _CHANNELS
        assert all(node in self._nodes or node == self._name for node in self._found.values())
