"""The k shortest simple paths between two nodes in order of delay (Yen's algorithm).

All paths are partitioned by where they deviate from those already found. A part is described by the
end that its paths share (the search goes backwards, from target to source) and by the nodes that
must not come next; its shortest path is the next candidate.

Most of that needs no search. The shortest-path tree of the source, computed once for all targets
until the map changes, gives a lower bound for the paths of a part; and if the shortest path from
the source does not meet the shared end, it is the result. Only if it does, and only when such a
part could come next, an A* search runs, guided by the same tree.

The result is exact and the same for equal maps: `shortest_path_tree` defines how ties are broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.shortest_path_tree import ShortestPathTree, cost, delay_us_of, max_cost

_NO_BOUND: Final = (1 << 62) - 1
_OPEN: Final = 0  # sorts before `_FOUND`: the part may hold a path that comes earlier
_FOUND: Final = 1


@dataclass(frozen=True)
class OverlayPath:
    """A path from source to target, both included, with its delay."""

    nodes: tuple[str, ...]
    delay_us: int


class _Part:
    """Paths that end with `back[: shared + 1]`, read backwards, not preceded by any of `banned`.

    Once its shortest path is found, `back` is that path.
    """

    __slots__ = ("back", "banned", "shared", "shared_cost")

    def __init__(
        self, back: tuple[str, ...], shared: int, shared_cost: int, banned: tuple[str, ...]
    ) -> None:
        self.back = back
        self.shared = shared
        self.shared_cost = shared_cost
        self.banned = banned


def shortest_paths(  # noqa: PLR0913
    map_: LinkStateMap,
    source: str,
    target: str,
    k: int,
    bound_us: int = 0,
    *,
    channel_class: str = "",
) -> list[OverlayPath]:
    """Up to `k` simple paths with a delay of at most `bound_us` (0: any), the shortest first."""
    if source == target:
        return []
    search = _Search(map_, map_.distances(source, channel_class), bound_us)
    return search.run(target, k)


class _Search:
    """Search for the paths from one source to one target."""

    def __init__(self, map_: LinkStateMap, distances: ShortestPathTree, bound_us: int) -> None:
        self._map = map_
        self._distances = distances
        self._limit = max_cost(bound_us) if bound_us > 0 else _NO_BOUND
        # By lower bound of the cost; the counter keeps parts from being compared.
        self._parts: list[tuple[int, int, tuple[str, ...], int, _Part]] = []
        self._count = 0

    def run(self, target: str, k: int) -> list[OverlayPath]:
        total = self._distances.costs.get(target, -1)
        if not 0 <= total <= self._limit:
            return []
        first = _Part(tuple(self._distances.path_back(target)), 0, 0, ())
        self._add(total, _FOUND, first)
        found: list[OverlayPath] = []
        while self._parts and len(found) < k:
            total, state, _, _, part = heappop(self._parts)
            if state == _FOUND:
                found.append(OverlayPath(part.back[::-1], delay_us_of(total)))
                if len(found) < k:
                    self._partition(part)
            else:
                self._find(part)
        return found

    def _add(self, total: int, state: int, part: _Part) -> None:
        self._count += 1
        heappush(self._parts, (total, state, part.back, self._count, part))

    def _partition(self, part: _Part) -> None:
        """Partition a part, without its shortest path, by where the others deviate from that."""
        back = part.back
        places: dict[str, int] = {}
        for place, node in enumerate(back):
            places[node] = place
        shared_cost = part.shared_cost
        for shared in range(part.shared, len(back) - 1):
            following = back[shared + 1]
            banned = (*part.banned, following) if shared == part.shared else (following,)
            self._add_part(back, shared, shared_cost, banned, places)
            shared_cost += self._cost(following, back[shared])

    def _add_part(
        self,
        back: tuple[str, ...],
        shared: int,
        shared_cost: int,
        banned: tuple[str, ...],
        places: dict[str, int],
    ) -> None:
        """Add a part with its lower bound, and its shortest path if that needs no search."""
        best = self._limit + 1
        best_node = ""
        node = back[shared]
        for other, least in self._predecessors(node):
            total = shared_cost + least
            if total > best or places.get(other, shared + 1) <= shared or other in banned:
                continue
            if total < best or other < best_node:
                best = total
                best_node = other
        if best > self._limit:
            return
        end = back[: shared + 1]
        rest: list[str] = []
        for passed in self._distances.path_back(best_node):
            if places.get(passed, shared + 1) <= shared:
                self._add(best, _OPEN, _Part(end, shared, shared_cost, banned))
                return
            rest.append(passed)
        self._add(best, _FOUND, _Part((*end, *rest), shared, shared_cost, banned))

    def _find(self, part: _Part) -> None:
        """Search for a part's shortest path that does not meet the shared end again."""
        closed = dict.fromkeys(part.back, True)
        node = part.back[part.shared]
        heap: list[tuple[int, tuple[str, ...]]] = []
        barred = closed | dict.fromkeys(part.banned, True)
        self._expand(heap, (), node, part.shared_cost, barred)
        while heap:
            total, rest = heappop(heap)
            node = rest[-1]
            if node in closed:
                continue
            if node == self._distances.source:
                found = _Part((*part.back, *rest), part.shared, part.shared_cost, part.banned)
                self._add(total, _FOUND, found)
                return
            closed[node] = True
            self._expand(heap, rest, node, total - self._distances.costs[node], closed)

    def _expand(
        self,
        heap: list[tuple[int, tuple[str, ...]]],
        rest: tuple[str, ...],
        node: str,
        spent: int,
        closed: dict[str, bool],
    ) -> None:
        for other, least in self._predecessors(node):
            if other not in closed and spent + least <= self._limit:
                heappush(heap, (spent + least, (*rest, other)))

    def _predecessors(self, node: str) -> list[tuple[str, int]]:
        """Reachable nodes that may precede `node`, with the least cost of arriving over each."""
        found = self._distances.predecessors.get(node)
        if found is None:
            costs = self._distances.costs
            found = self._distances.predecessors[node] = [
                (other, costs[other] + self._cost(other, node))
                for other in self._map.neighbours(node)
                if other in costs
            ]
        return found

    def _cost(self, source: str, target: str) -> int:
        link = self._map.link(source, target)
        assert link is not None
        return cost(link.latency_us + self._distances.processing_us.get(target, 0))
