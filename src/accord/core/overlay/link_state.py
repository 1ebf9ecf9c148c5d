"""The link-state map of the overlay, as in OSPF: all nodes' reports of their links and themselves.

Links are directed because latencies differ, but a link counts only if both ends report it up (a
two-way check). Entering a node costs the link's latency, as reported by the link's source, plus the
processing time of the node entered.

A source must find out quickly whether a change concerns it. So every change of a link that counts
or counted before advances `version` and is logged; `changed_since` returns the links that changed
after a given version. A change of a node's processing time or reliability is logged as a change of
all links that enter it. The last few hundred changes are kept: a reader further behind has to
re-examine everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from sys import intern
from types import MappingProxyType
from typing import Final

from accord.core.overlay.shortest_path_tree import DirectedLink, Links, ShortestPathTree

MAX_US: Final = 1 << 36  # of one hop: nineteen hours
_CHANGES: Final = 512
_DISTANCES: Final = 8


class _Node:
    """Processing times and failure probability that a node reports."""

    __slots__ = ("failure", "processing_us")

    def __init__(self, processing_us: dict[str, int], failure: float) -> None:
        self.processing_us = processing_us
        self.failure = failure


class LinkStateMap:
    """One node's view of all links and nodes; also provides their failure probabilities."""

    def __init__(self, node_failures: Mapping[str, float] = MappingProxyType({})) -> None:
        self.version = 0
        self.openings = 0  # how often a link began to count
        self._links: Links = {}
        self._nodes: dict[str, _Node] = {}
        self._node_failures: Mapping[str, float] = {}
        self._changes: deque[tuple[str, str]] = deque(maxlen=_CHANGES)
        self.set_node_failures(node_failures)
        # Cache by source and channel class, valid for one version of the map.
        self._distances: dict[tuple[str, str], ShortestPathTree] = {}
        self._distances_version = 0

    def set_link(  # noqa: PLR0913, PLR0917
        self,
        source: str,
        target: str,
        latency_us: int,
        loss: float,
        is_up: bool,
        failure: float,
    ) -> None:
        """Record the report of `source` on its link to `target`."""
        if source == target:
            raise ValueError(f"link: expected two different nodes, got {source} twice")
        place = f"link {source} to {target}"
        _check_us(place, "latency_us", latency_us)
        _check_share(place, "loss", loss)
        _check_share(place, "failure", failure)
        link = DirectedLink(latency_us, loss, is_up, failure)
        # Every report is decoded into new strings: keep one copy of each name.
        source, target = intern(source), intern(target)
        ends = self._links.setdefault(source, {})
        old = ends.get(target)
        if old is not None and old.is_same(link):
            return
        ends[target] = link
        self._recount(source, target, old)

    def drop_link(self, source: str, target: str) -> None:
        """Remove the report of `source` on its link to `target`."""
        ends = self._links.get(source)
        old = ends.pop(target, None) if ends is not None else None
        if old is None:
            return
        if not ends:
            del self._links[source]
        self._recount(source, target, old)

    def set_node(self, name: str, processing_us: Mapping[str, int], failure: float) -> None:
        """Record a node's processing times, by channel class, and failure probability."""
        place = f"node {name}"
        for channel_class, spent_us in processing_us.items():
            _check_us(place, f"processing_us of {channel_class!r}", spent_us)
        _check_share(place, "failure", failure)
        new = _Node(dict(processing_us), failure)
        old = self._nodes.get(name)
        self._nodes[name] = new
        if old is None:
            is_same = not any(new.processing_us.values()) and failure == 0
        else:
            is_same = (old.processing_us, old.failure) == (new.processing_us, failure)
        if not is_same:
            self._log_node_change(name)

    def drop_node(self, name: str) -> None:
        """Remove a node and its reports on its links."""
        if self._nodes.pop(name, None) is not None:
            self._log_node_change(name)
        for target in list(self._links.get(name, ())):
            self.drop_link(name, target)

    def set_node_failures(self, failures: Mapping[str, float]) -> None:
        """Set all probabilities of failure that count instead of what nodes report of themselves.

        They are rounded: what hardly changes need not be examined.
        """
        for name, failure in failures.items():
            _check_share(f"node {name}", "failure", failure)
        before = self._node_failures
        self._node_failures = {name: round(each, 2) for name, each in failures.items()}
        for name in dict.fromkeys([*before, *self._node_failures]):
            if before.get(name) != self._node_failures.get(name):
                self._log_node_change(name)

    def changed_since(self, version: int) -> list[tuple[str, str]] | None:
        """Links that changed after `version`, each once; None if any may have."""
        count = self.version - version
        if count <= 0:
            return []
        if count > len(self._changes):
            return None
        if count == 1:
            return [self._changes[-1]]
        return list(dict.fromkeys(islice(reversed(self._changes), count)))

    def reported(self, source: str, target: str) -> DirectedLink | None:
        """What `source` reports of its link, whether or not it counts."""
        return self._links.get(source, {}).get(target)

    def link(self, source: str, target: str) -> DirectedLink | None:
        """The link, or None if it does not count."""
        ends = self._links.get(source)
        found = ends.get(target) if ends is not None else None
        return found if found is not None and found.is_usable else None

    def latency_us(self, source: str, target: str) -> int | None:
        found = self.link(source, target)
        return None if found is None else found.latency_us

    def delay_us(self, nodes: Sequence[str], channel_class: str = "") -> int | None:
        """Delay of a path; None if one of its links does not count."""
        total_us = 0
        for place in range(1, len(nodes)):
            link = self.link(nodes[place - 1], nodes[place])
            if link is None:
                return None
            total_us += link.latency_us + self.processing_us(nodes[place], channel_class)
        return total_us

    def processing_us(self, name: str, channel_class: str = "") -> int:
        """Processing time of a node; 0 if unknown."""
        node = self._nodes.get(name)
        return 0 if node is None else node.processing_us.get(channel_class, 0)

    def node_failure(self, name: str) -> float:
        """Probability that a node is down."""
        known = self._node_failures.get(name)
        if known is not None:
            return known
        node = self._nodes.get(name)
        return 0.0 if node is None else node.failure

    def link_failure(self, source: str, target: str) -> float:
        """Probability that a link is down: the higher one of its two directions."""
        there = self.link(source, target)
        back = self.link(target, source)
        return 1.0 if there is None or back is None else max(there.failure, back.failure)

    def nodes(self) -> list[str]:
        """All nodes that reported something or are reported as a neighbour, sorted by name."""
        known = dict.fromkeys(self._nodes, True)
        for source, ends in self._links.items():
            known[source] = True
            for target in ends:
                known[target] = True
        return sorted(known)

    def links(self) -> list[tuple[str, str, DirectedLink]]:
        """All reported links, sorted by name."""
        return [
            (source, target, ends[target])
            for source, ends in sorted(self._links.items())
            for target in sorted(ends)
        ]

    def neighbours(self, name: str) -> list[str]:
        """Neighbours over links that count; a link counts in both directions or in none."""
        return [end for end, link in self._links.get(name, {}).items() if link.is_usable]

    def is_reachable(self, source: str, target: str) -> bool:
        return target in self.distances(source).costs

    def distances(self, source: str, channel_class: str = "") -> ShortestPathTree:
        """Shortest-path tree from `source`; cached until the map changes."""
        if self._distances_version != self.version:
            self._distances.clear()
            self._distances_version = self.version
        key = (source, channel_class)
        found = self._distances.get(key)
        if found is None:
            while len(self._distances) >= _DISTANCES:
                del self._distances[next(iter(self._distances))]
            found = ShortestPathTree(self._links, self._processing(channel_class), source)
            self._distances[key] = found
        return found

    def check_invariants(self) -> None:
        assert len(self._changes) == min(self.version, _CHANGES)
        for source, ends in self._links.items():
            assert ends
            for target, link in ends.items():
                back = self._links.get(target, {}).get(source)
                assert link.is_usable == (back is not None and link.is_up and back.is_up)

    def _processing(self, channel_class: str) -> dict[str, int]:
        spent = {}
        for name, node in self._nodes.items():
            if spent_us := node.processing_us.get(channel_class, 0):
                spent[name] = spent_us
        return spent

    def _recount(self, source: str, target: str, old: DirectedLink | None) -> None:
        """Update whether a link counts after its report by `source` changed from `old`."""
        there = self._links.get(source, {}).get(target)
        back = self._links.get(target, {}).get(source)
        counts = there is not None and back is not None and there.is_up and back.is_up
        counted = old is not None and old.is_usable
        # The failure probability concerns both directions (see `link_failure`).
        is_other = there is None or old is None or there.failure != old.failure
        if there is not None:
            there.is_usable = counts
        if back is not None:
            back.is_usable = counts
        self.openings += counts and not counted
        if counts or counted:
            self._log_change(source, target)
            if counts != counted or is_other:
                self._log_change(target, source)

    def _log_node_change(self, name: str) -> None:
        for neighbour in self.neighbours(name):
            self._log_change(neighbour, name)

    def _log_change(self, source: str, target: str) -> None:
        self.version += 1
        self._changes.append((source, target))


def _check_us(place: str, field: str, value: int) -> None:
    if not 0 <= value < MAX_US:
        raise ValueError(f"{place}: {field}: expected 0 to {MAX_US:,}, got {value:,}")


def _check_share(place: str, field: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{place}: {field}: expected 0 to 1, got {value}")
