"""Small random maps beside what they are made of, for brute force to look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final

from hypothesis import strategies as st

from accord.core.overlay.link_state import LinkStateMap

NAMES: Final = ("a", "b", "c", "d", "e", "f", "g")
# Few values, so that paths tie; all are sums of powers of two, so that nothing is rounded.
LATENCIES_US: Final = (1, 2, 0, 1_000)
FAILURES: Final = (0.0, 0.25, 0.5, 0.125, 1.0)


@dataclass
class Reports:
    """What was said of links (latency, whether up, failure) and nodes (processing, failure)."""

    links: dict[tuple[str, str], tuple[int, bool, float]] = field(default_factory=dict)
    nodes: dict[str, tuple[dict[str, int], float]] = field(default_factory=dict)

    def map(self) -> LinkStateMap:
        built = LinkStateMap()
        for (source, target), (latency_us, is_up, failure) in self.links.items():
            built.set_link(source, target, latency_us, 0.0, is_up, failure)
        for name, (processing_us, failure) in self.nodes.items():
            built.set_node(name, processing_us, failure)
        return built

    def counts(self, source: str, target: str) -> bool:
        there, back = self.links.get((source, target)), self.links.get((target, source))
        return there is not None and back is not None and there[1] and back[1]

    def delay_us(self, nodes: tuple[str, ...], channel_class: str = "") -> int | None:
        total_us = 0
        for source, target in pairwise(nodes):
            if not self.counts(source, target):
                return None
            processing_us = self.nodes[target][0] if target in self.nodes else {}
            total_us += self.links[source, target][0] + processing_us.get(channel_class, 0)
        return total_us

    def simple_paths(self, source: str, target: str) -> Iterator[tuple[str, ...]]:
        yield from self._onwards((source,), target)

    def _onwards(self, begun: tuple[str, ...], target: str) -> Iterator[tuple[str, ...]]:
        if begun[-1] == target:
            yield begun
            return
        for name in NAMES:
            if name not in begun and self.counts(begun[-1], name):
                yield from self._onwards((*begun, name), target)

    def node_failure(self, name: str) -> float:
        return self.nodes[name][1] if name in self.nodes else 0.0

    def link_failure(self, source: str, target: str) -> float:
        if not self.counts(source, target):
            return 1.0
        return max(self.links[source, target][2], self.links[target, source][2])


def tied(random: Random) -> Reports:
    """Of all `NAMES`, half of them neighbours, with as many ties as can be."""
    made = Reports()
    for one in NAMES:
        made.nodes[one] = ({}, random.choice((0.0, 0.0, 0.5)))
        for other in NAMES:
            if one < other and random.random() < 0.5:
                for pair in ((one, other), (other, one)):
                    made.links[pair] = (random.randrange(1, 3), True, random.choice((0.0, 0.5)))
    return made


def failures() -> st.SearchStrategy[float]:
    return st.sampled_from(FAILURES)


def reports(size: int = 6) -> st.SearchStrategy[Reports]:
    """Of `size` nodes, from hardly connected to all with all, mostly by links that take alike."""
    names = NAMES[:size]
    pairs = [(one, other) for one in names for other in names if one != other]
    # Only above its luck a link is up; some are not even spoken of.
    report = st.tuples(st.sampled_from(LATENCIES_US), st.integers(0, 99), failures())
    processing_us = st.dictionaries(st.sampled_from(("", "video")), st.integers(0, 2))
    return st.builds(
        _reports,
        st.fixed_dictionaries(dict.fromkeys(pairs, report)),
        st.sampled_from((0, 5, 20, 40)),
        st.dictionaries(st.sampled_from(names), st.tuples(processing_us, failures())),
    )


def _reports(
    links: dict[tuple[str, str], tuple[int, int, float]],
    least_luck: int,
    nodes: dict[str, tuple[dict[str, int], float]],
) -> Reports:
    made = Reports(nodes=nodes)
    for pair, (latency_us, luck, failure) in links.items():
        if luck >= least_luck // 2:
            made.links[pair] = (latency_us, luck >= least_luck, failure)
    return made
