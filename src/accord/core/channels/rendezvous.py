"""The rendezvous of a channel: one node that all agree on without talking about it.

Each node is given a number by hashing its name with the channel's, and the highest wins. When that
node fails the next highest is the rendezvous, and no other channel's changes; when it comes back it
is the rendezvous again. Who can be reached decides, so that each part of a divided overlay has one.
While the maps of nodes differ they may take different ones for it for a moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from accord.core.overlay.link_state import LinkStateMap

_CHANNELS: Final = 1_024


def rendezvous(channel: str, nodes: Iterable[str]) -> str:
    """The best match among `nodes`, of which there is at least one."""
    return max(nodes, key=lambda node: (_weight(channel, node), node))


def _weight(channel: str, node: str) -> bytes:
    return blake2b(f"{channel}\0{node}".encode(), digest_size=8).digest()


class Rendezvous:
    """As one node sees it; an answer serves until the map changes."""

    def __init__(self, name: str, net: LinkStateMap) -> None:
        self._name = name
        self._map = net
        self._version = -1
        self._nodes: list[str] = []
        self._found: dict[str, str] = {}

    def nodes(self) -> list[str]:
        """All that can be reached, with this one, by name."""
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
