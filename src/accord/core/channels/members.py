"""Which nodes are members of a channel: those whose clients want something of it.

Joining and leaving take no messages here. What each node needs is replicated to all nodes anyway,
in batches that merge on the way, and repeated until every node has it (`overlay.facts`); a need
that is taken back is told the same way. So a join is known wherever a join request could be sent
to, a leave is confirmed everywhere, and no state of a membership is left when the last client is
gone. Predicates don't count: a tree carries a channel, and each node's router chooses from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.model.channels import ChannelMap
from accord.core.model.decoding import decode_or_none
from accord.core.overlay.interests import Need
from accord.core.overlay.validation import problem_with_need

NEED: Final = "need"
_CHANNELS: Final = 16_384

_decoder: Final = msgspec.msgpack.Decoder(Need)

Watch = Callable[[str, Callable[[str, str, bytes | None], None]], None]


class Members:
    """`version` changes with everything that may change an answer."""

    def __init__(self, watch: Watch) -> None:
        self.version = 0
        self._filters: dict[tuple[str, str], str] = {}  # by node and key of its need
        self._by_filter: ChannelMap[dict[str, int]] = ChannelMap()  # how many needs of which node
        self._found: dict[str, tuple[str, ...]] = {}
        watch(NEED, self._told)

    def of(self, channel: str) -> tuple[str, ...]:
        """By name."""
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

    def _told(self, node: str, key: str, value: bytes | None) -> None:
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
    """None where it is nothing that a node could have said."""
    need = decode_or_none(_decoder, value)
    return None if need is None or problem_with_need(need) else need.filter
