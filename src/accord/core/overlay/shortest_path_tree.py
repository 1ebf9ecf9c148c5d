"""How far everything is from one node, and over which node the shortest path comes there.

Costs are delays and hops in one number, so that of two paths that take equally long the one with
fewer hops is shorter, and no link is free. Of paths that are the same in both the one comes first
whose names, read backwards from its end, come first: what is found does not depend on the order in
which links became known.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

# Below the delay there is room for the hops of any simple path.
_HOP_BITS: Final = 16


def cost(delay_us: int) -> int:
    """Of one hop that takes so long."""
    return (delay_us << _HOP_BITS) + 1


def most(delay_us: int) -> int:
    """What paths cost at most that take no longer."""
    return ((delay_us + 1) << _HOP_BITS) - 1


def delay_us_of(total: int) -> int:
    return total >> _HOP_BITS


class DirectedLink:
    """What the node at its beginning reports of one direction of a link.

    It `counts`, and can be used, where both ends report that it is up.
    """

    __slots__ = ("counts", "failure", "is_up", "latency_us", "loss")

    def __init__(self, latency_us: int, loss: float, is_up: bool, failure: float) -> None:
        self.latency_us = latency_us
        self.loss = loss
        self.is_up = is_up
        self.failure = failure
        self.counts = False

    def is_same(self, other: DirectedLink) -> bool:
        """Whether both say the same."""
        return (
            self.latency_us == other.latency_us
            and self.is_up == other.is_up
            and self.loss == other.loss
            and self.failure == other.failure
        )


Links = dict[str, dict[str, DirectedLink]]  # by the nodes where they begin and end


class ShortestPathTree:
    """From `source`, over the links that count, to all that can be reached."""

    def __init__(self, links: Links, processing_us: dict[str, int], source: str) -> None:
        self.source = source
        self.processing_us = processing_us  # of the nodes for which it is known
        self.costs: dict[str, int] = {source: 0}
        self.before: dict[str, str] = {}  # on the shortest path
        self.ways: dict[str, list[tuple[str, int]]] = {}  # for `paths`, as far as they were asked
        self._spread(links)

    def back(self, node: str) -> Iterator[str]:
        """The shortest path, from where it ends to its source."""
        yield node
        while node != self.source:
            node = self.before[node]
            yield node

    def _spread(self, links: Links) -> None:
        costs = self.costs
        before = self.before
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
                if not link.counts or target in done:
                    continue
                # As `cost` says: a call would take longer than all the rest.
                delay_us = link.latency_us + processing_us.get(target, 0)
                total = reached + (delay_us << _HOP_BITS) + 1
                known = costs.get(target, -1)
                if known < 0 or total < known:
                    costs[target] = total
                    before[target] = node
                    heappush(heap, (total, target))
                elif total == known and node < before[target]:
                    before[target] = node
