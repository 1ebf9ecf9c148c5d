"""Shortest-path tree from one node to all others (Dijkstra), with deterministic ties.

A cost is delay and hop count in one integer, so of two paths with equal delay the one with fewer
hops is shorter, and no link is free. Of paths equal in both, the one whose node names, read
backwards from its end, sort first wins: the result does not depend on the order in which links
became known.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

# The low bits of a cost count hops, enough for any simple path.
_HOP_BITS: Final = 16


def cost(delay_us: int) -> int:
    """Cost of one hop with that delay."""
    return (delay_us << _HOP_BITS) + 1


def max_cost(delay_us: int) -> int:
    """Highest cost of a path with at most that delay."""
    return ((delay_us + 1) << _HOP_BITS) - 1


def delay_us_of(total: int) -> int:
    return total >> _HOP_BITS


class DirectedLink:
    """One direction of a link, as reported by its source node.

    It `is_usable`, and can be used, if both ends report it up.
    """

    __slots__ = ("failure", "is_up", "is_usable", "latency_us", "loss")

    def __init__(self, latency_us: int, loss: float, is_up: bool, failure: float) -> None:
        self.latency_us = latency_us
        self.loss = loss
        self.is_up = is_up
        self.failure = failure
        self.is_usable = False

    def is_same(self, other: DirectedLink) -> bool:
        return (
            self.latency_us == other.latency_us
            and self.is_up == other.is_up
            and self.loss == other.loss
            and self.failure == other.failure
        )


Links = dict[str, dict[str, DirectedLink]]  # by source and target node


class ShortestPathTree:
    """Shortest paths from `source` to all reachable nodes, over the links that count."""

    def __init__(self, links: Links, processing_us: dict[str, int], source: str) -> None:
        self.source = source
        self.processing_us = processing_us  # by node, where known
        self.costs: dict[str, int] = {source: 0}
        self.previous: dict[str, str] = {}  # predecessor on the shortest path
        self.predecessors: dict[str, list[tuple[str, int]]] = {}  # cache of `k_shortest_paths`
        self._compute(links)

    def path_back(self, node: str) -> Iterator[str]:
        """The shortest path to `node`, backwards to the source."""
        yield node
        while node != self.source:
            node = self.previous[node]
            yield node

    def _compute(self, links: Links) -> None:
        costs = self.costs
        before = self.previous
        processing_us = self.processing_us
        none: dict[str, DirectedLink] = {}
        done: dict[str, bool] = {}
        heap = [(0, self.source)]
        while heap:
            reached, node = heappop(heap)
            if node in done:
                continue
            done[node] = True
            for target, link in links.get(node, none).items():
                if not link.is_usable or target in done:
                    continue
                # `cost`, inlined: the call would take longer than all the rest.
                delay_us = link.latency_us + processing_us.get(target, 0)
                total = reached + (delay_us << _HOP_BITS) + 1
                known = costs.get(target, -1)
                if known < 0 or total < known:
                    costs[target] = total
                    before[target] = node
                    heappush(heap, (total, target))
                elif total == known and node < before[target]:
                    before[target] = node
