"""Maximally disjoint paths: candidates that share as little as possible with given paths.

In a map with many short links the shortest paths are variations of one another, and all of them may
use the same long link: however many are found, no two are disjoint. So besides the shortest paths
there are candidates chosen for being different: of all paths within the bound, the one that shares
the fewest links and nodes with the given ones, and the shortest of these.

The search goes backwards, as in `k_shortest_paths`, ordered by shared parts and then by delay. A
node is visited again only at a lower delay than before: a path that shares more is worth following
only if it is quicker. So the result is exact, and the path is simple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

from accord.core.overlay.k_shortest_paths import OverlayPath
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.shortest_path_tree import cost, delay_us_of, max_cost

_MAX_STEPS: Final = 20_000


def disjoint_paths(
    map_: LinkStateMap,
    first: OverlayPath,
    count: int,
    bound_us: int = 0,
    *,
    channel_class: str = "",
) -> list[OverlayPath]:
    """Alternatives to `first`, so that up to `count + 1` paths can be used together.

    Each avoids up to `count` paths before it. One more than `count` is sought, which avoids the
    others but not `first`: it is needed if `first` is in the way of all others.
    """
    found = [first]
    for _ in range(count + 1):
        path = most_disjoint_path(map_, found[-count:], bound_us, channel_class=channel_class)
        if path is None or path in found:
            break
        found.append(path)
    return found[1:]


def most_disjoint_path(
    map_: LinkStateMap,
    avoided: Sequence[OverlayPath],
    bound_us: int = 0,
    *,
    channel_class: str = "",
) -> OverlayPath | None:
    """The path within `bound_us` (0: any) that shares the fewest links and nodes with `avoided`.

    None if there is none, or if the search would take too long.
    """
    search = _Search(map_, avoided, bound_us, channel_class)
    return search.run()


def are_disjoint(paths: Sequence[OverlayPath]) -> bool:
    """Whether no two of them share a link or an intermediate node."""
    parts = [part for path in paths for part in _parts_of(path)]
    return len(dict.fromkeys(parts)) == len(parts)


def _parts_of(path: OverlayPath) -> Iterator[tuple[str, str]]:
    """Undirected links, and intermediate nodes as (node, "")."""
    for node in path.nodes[1:-1]:
        yield node, ""
    for one, other in pairwise(path.nodes):
        yield (one, other) if one < other else (other, one)


class _Search:
    def __init__(
        self, map_: LinkStateMap, avoided: Sequence[OverlayPath], bound_us: int, channel_class: str
    ) -> None:
        self._source, self._target = avoided[0].nodes[0], avoided[0].nodes[-1]
        self._map = map_
        self._distances = map_.distances(self._source, channel_class)
        self._limit = max_cost(bound_us) if bound_us > 0 else -1
        self._users: dict[tuple[str, str], int] = {}  # number of avoided paths by link or node
        for path in avoided:
            for part in _parts_of(path):
                self._users[part] = self._users.get(part, 0) + 1
        # Shared parts, lower bound of the cost, and the path so far, backwards from the target.
        self._open: list[tuple[int, int, tuple[str, ...]]] = []

    def run(self) -> OverlayPath | None:
        costs = self._distances.costs
        least = costs.get(self._target, -1)
        if least < 0 or 0 <= self._limit < least:
            return None
        reached: dict[str, int] = {}
        heappush(self._open, (0, least, (self._target,)))
        for _ in range(_MAX_STEPS):
            if not self._open:
                break
            shared, total, back = heappop(self._open)
            node = back[-1]
            if node == self._source:
                return OverlayPath(back[::-1], delay_us_of(total))
            spent = total - costs[node]
            if reached.get(node, spent + 1) <= spent:
                continue
            reached[node] = spent
            self._expand(shared, spent, back, reached)
        return None

    def _expand(
        self, shared: int, spent: int, back: tuple[str, ...], reached: dict[str, int]
    ) -> None:
        node = back[-1]
        for other in self._map.neighbours(node):
            rest = self._distances.costs.get(other, -1)
            link = self._map.link(other, node)
            if rest < 0 or link is None:
                continue
            own = spent + cost(link.latency_us + self._distances.processing_us.get(node, 0))
            if own >= reached.get(other, own + 1) or 0 <= self._limit < own + rest:
                continue
            ends = (other, node) if other < node else (node, other)
            more = self._users.get(ends, 0) + self._users.get((other, ""), 0)
            heappush(self._open, (shared + more, own + rest, (*back, other)))
