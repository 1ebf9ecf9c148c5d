"""Spanner graphs: few links, with bounded stretch of paths (greedy spanner).

The minimum spanning tree is cheapest, but two neighbours may be far apart on it. The greedy spanner
considers links from the shortest to the longest, and omits a link only if the links chosen so far
connect its ends within `factor` times its length. The result contains the minimum spanning tree,
and no two nodes are farther apart than `factor` times their distance on all links. A factor of 1
keeps every useful link, a very large one only the tree.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from accord.core.overlay.link_state import LinkStateMap

FACTOR: Final = 1.5
DOWN: Final = 1 << 44

Graph = dict[str, dict[str, int]]  # lengths, in both directions


def graph_of(net: LinkStateMap) -> Graph:
    """All links; the length of a usable link is its round-trip time.

    Other links are longer than any path, so they are used only where no others lead: a link may be
    up before the map knows it.
    """
    graph: Graph = {}
    for source, target, link in net.links():
        length = max(1, 2 * link.latency_us)
        back = net.link(target, source)
        if link.counts and back is not None:
            length = max(1, link.latency_us + back.latency_us)
        else:
            length += DOWN
        known = graph.setdefault(source, {}).get(target, length)
        graph[source][target] = min(length, known)
        graph.setdefault(target, {})[source] = graph[source][target]
    return graph


def spanner(graph: Graph, factor: float = FACTOR) -> Graph:
    if factor < 1:
        raise ValueError(f"factor: expected at least 1, got {factor}")
    chosen: Graph = {}
    links = [
        (length, source, target)
        for source, ends in graph.items()
        for target, length in ends.items()
        if source < target
    ]
    for length, source, target in sorted(links):
        if not _is_within(chosen, source, target, factor * length):
            chosen.setdefault(source, {})[target] = length
            chosen.setdefault(target, {})[source] = length
    return chosen


def distances(graph: Graph, root: str) -> tuple[dict[str, int], dict[str, str]]:
    """Distance of every node from `root`, and its predecessor on the shortest path (Dijkstra)."""
    far = {root: 0}
    before: dict[str, str] = {}
    done: dict[str, bool] = {}
    heap = [(0, root)]
    while heap:
        reached, node = heappop(heap)
        if node in done:
            continue
        done[node] = True
        for target, length in graph.get(node, {}).items():
            total = reached + length
            known = far.get(target)
            if known is None or total < known:
                far[target] = total
                before[target] = node
                heappush(heap, (total, target))
            elif total == known and target not in done and node < before[target]:
                before[target] = node
    return far, before


def _is_within(graph: Graph, source: str, target: str, limit: float) -> bool:
    far = {source: 0}
    heap = [(0, source)]
    while heap:
        reached, node = heappop(heap)
        if node == target:
            return True
        if reached > far[node]:
            continue
        for end, length in graph.get(node, {}).items():
            total = reached + length
            if total <= limit and total < far.get(end, total + 1):
                far[end] = total
                heappush(heap, (total, end))
    return False
