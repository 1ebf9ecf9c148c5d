"""Membership of channels: the nodes whose clients have an interest in a channel.

Joining and leaving need no messages of their own. Interests are state records, replicated to all
nodes in batches that merge on the way and retransmitted until every node has them
(`overlay.state_store`); so is their removal. A join is therefore known wherever a join request
could be sent, a leave is confirmed everywhere, and no membership state remains after the last
client has left. Predicates are ignored: a tree carries a whole channel, and each node's router
selects from it.

Rendezvous of a channel: one node that all agree on without communication (rendezvous hashing).

Each node's weight is a hash of its name and the channel's; the highest wins. When that node fails,
the next highest becomes the rendezvous, and no other channel's changes; when it returns, it is the
rendezvous again. Only reachable nodes count, so each part of a divided overlay has one. While the
nodes' maps differ, they may disagree for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from accord.core.model.channels import ChannelMap
from accord.core.model.errors import decode_or_none
from accord.core.overlay.interests import Interest
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.validation import problem_with_interest

INTEREST: Final = "need"
_CHANNELS: Final = 16_384

_decoder: Final = msgspec.msgpack.Decoder(Interest)

Watch = Callable[[str, Callable[[str, str, bytes | None], None]], None]


class Members:
    """Members by channel; `version` changes with anything that may change a result."""

    def __init__(self, watch: Watch) -> None:
        self.version = 0
        self._filters: dict[tuple[str, str], str] = {}  # by node and key of its interest
        self._by_filter: ChannelMap[dict[str, int]] = ChannelMap()  # count of interests per node
        self._found: dict[str, tuple[str, ...]] = {}
        watch(INTEREST, self._on_change)

    def of(self, channel: str) -> tuple[str, ...]:
        """Member nodes of a channel, sorted by name."""
        found = self._found.get(channel)
        if found is None:
            while len(self._found) >= _CHANNELS:
                del self._found[next(iter(self._found))]
            nodes = {node: True for each in self._by_filter.select(channel) for node in each}
            found = self._found[channel] = tuple(sorted(nodes))
        return found

    def has(self, channel: str, node: str) -> bool:
        return node in self.of(channel)

    def check_invariants(self) -> None:
        assert len(self._found) <= _CHANNELS
        for (node, _), pattern in self._filters.items():
            counts = self._by_filter.get(pattern)
            assert counts is not None
            assert counts[node] > 0

    def _on_change(self, node: str, key: str, value: bytes | None) -> None:
        before = self._filters.pop((node, key), None)
        if before is not None:
            self._remove(node, before)
        pattern = None if value is None else _filter(value)
        if pattern is not None:
            self._filters[node, key] = pattern
            counts = self._by_filter.get(pattern)
            if counts is None:
                counts = {}
                self._by_filter.set(pattern, counts)
            counts[node] = counts.get(node, 0) + 1
        self.version += 1
        self._found.clear()

    def _remove(self, node: str, pattern: str) -> None:
        counts = self._by_filter.get(pattern)
        assert counts is not None
        counts[node] -= 1
        if not counts[node]:
            del counts[node]
        if not counts:
            self._by_filter.remove(pattern)


def _filter(value: bytes) -> str | None:
    """Return the filter of an interest record; None if the record is invalid."""
    need = decode_or_none(_decoder, value)
    return None if need is None or problem_with_interest(need) else need.filter


_RENDEZVOUS_CHANNELS: Final = 1_024


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
            while len(self._found) >= _RENDEZVOUS_CHANNELS:
                del self._found[next(iter(self._found))]
            found = self._found[channel] = rendezvous(channel, nodes)
        return found

    def check_invariants(self) -> None:
        assert len(self._found) <= _RENDEZVOUS_CHANNELS
        assert all(node in self._nodes or node == self._name for node in self._found.values())
