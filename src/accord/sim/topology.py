"""Topology: which nodes are linked, and their delays.

Topologies generated from a seed.

They are always connected: if randomness leaves separate components, the shortest span between each
and the rest is added. If nodes have positions, delays follow from distances, at the speed of light
in fibre.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Final

from msgspec import Struct

from accord.sim.clock import stream
from accord.sim.trace import SimulationError

MAX_NODES: Final = 10_000
MAX_SPANS: Final = 200_000


class Span(Struct, frozen=True):
    """Two linked nodes; `delay_us` is None if unknown.

    `series` are successive measured delays.
    """

    one: str
    other: str
    delay_us: int | None = None
    series: tuple[int, ...] = ()


class Topology:
    """Nodes by name, and spans between them; raises SimulationError if inconsistent."""

    def __init__(self, name: str, nodes: Iterable[str], spans: Iterable[Span]) -> None:
        self.name = name
        self.nodes = tuple(nodes)
        self.spans = tuple(spans)
        self._check()

    def _check(self) -> None:
        if not 1 <= len(self.nodes) <= MAX_NODES:
            raise SimulationError(f"expected 1 to {MAX_NODES} nodes, got {len(self.nodes)}")
        if len(self.spans) > MAX_SPANS:
            raise SimulationError(f"expected at most {MAX_SPANS} links, got {len(self.spans)}")
        if len(self._known) != len(self.nodes):
            raise SimulationError("expected names of nodes that differ")
        for span in self.spans:
            for name in (span.one, span.other):
                if name not in self._known:
                    raise SimulationError(f"expected links between nodes, got {name!r} in one")
            if span.one == span.other:
                raise SimulationError(f"expected links of two nodes, got {span.one} twice")
        if len(self._pairs) != len(self.spans):
            raise SimulationError("expected two nodes to be linked only once")

    @cached_property
    def _known(self) -> dict[str, bool]:
        return dict.fromkeys(self.nodes, True)

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], Span]:
        return {_pair(span.one, span.other): span for span in self.spans}

    def has_span(self, one: str, other: str) -> bool:
        return _pair(one, other) in self._pairs

    def span(self, one: str, other: str) -> Span | None:
        return self._pairs.get(_pair(one, other))

    def neighbours(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for span in self.spans:
            found[span.one].append(span.other)
            found[span.other].append(span.one)
        return found

    def parts(self) -> list[list[str]]:
        """The connected components, the largest first."""
        neighbours = self.neighbours()
        seen: dict[str, bool] = {}
        parts = []
        for first in self.nodes:
            if first in seen:
                continue
            seen[first] = True
            part = [first]
            for name in part:  # grows during iteration
                fresh = [each for each in neighbours[name] if each not in seen]
                seen.update(dict.fromkeys(fresh, True))
                part += dict.fromkeys(fresh)
            parts.append(part)
        return sorted(parts, key=len, reverse=True)

    @property
    def is_connected(self) -> bool:
        return len(self.parts()) == 1

    def largest_part(self) -> Topology:
        kept = dict.fromkeys(self.parts()[0], True)
        nodes = [name for name in self.nodes if name in kept]
        return Topology(self.name, nodes, [span for span in self.spans if span.one in kept])


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


MAX_PLACED: Final = 3_000  # all pairs are examined

US_PER_KM: Final = 5
MIN_US: Final = 50  # nodes at one position are still distinct
DELAY_US: Final = 10_000
SIZE_KM: Final = 4_000


def line(count: int, delay_us: int = DELAY_US) -> Topology:
    nodes = names(count)
    return Topology("line", nodes, _chain(nodes, delay_us))


def ring(count: int, delay_us: int = DELAY_US) -> Topology:
    nodes = names(count)
    spans = _chain(nodes, delay_us)
    if count > 2:
        spans.append(Span(nodes[-1], nodes[0], delay_us))
    return Topology("ring", nodes, spans)


def star(count: int, delay_us: int = DELAY_US) -> Topology:
    """The first node is the centre."""
    nodes = names(count)
    return Topology("star", nodes, [Span(nodes[0], other, delay_us) for other in nodes[1:]])


def complete(count: int, delay_us: int = DELAY_US) -> Topology:
    nodes = names(count)
    return Topology(
        "complete", nodes, (Span(one, other, delay_us) for one, other in _pairs_of(nodes))
    )


def grid(width: int, height: int, delay_us: int = DELAY_US) -> Topology:
    nodes = names(width * height)
    spans = []
    for number, name in enumerate(nodes):
        if (number + 1) % width:
            spans.append(Span(name, nodes[number + 1], delay_us))
        if number + width < len(nodes):
            spans.append(Span(name, nodes[number + width], delay_us))
    return Topology("grid", nodes, spans)


def geometric(count: int, seed: int, degree: float = 4.0, size_km: int = SIZE_KM) -> Topology:
    """Random nodes in a square, linked to near ones: about `degree` links each."""
    nodes, places, _ = _scatter("geometric", count, seed, size_km)
    # A circle of this radius holds `degree` nodes on average, except at the border.
    radius_km = size_km * math.sqrt(degree / (math.pi * max(count - 1, 1)))
    near = ((one, other) for one, other in _pairs_of(nodes) if _km(places, one, other) <= radius_km)
    return _placed("geometric", nodes, places, near)


def waxman(
    count: int,
    seed: int,
    degree: float = 4.0,
    reach: float = 0.2,
    size_km: int = SIZE_KM,
) -> Topology:
    """Link probability falls with distance: by e at `reach` times the diagonal."""
    nodes, places, random = _scatter("waxman", count, seed, size_km)
    scale_km = reach * size_km * math.sqrt(2.0)
    chances = [
        (one, other, math.exp(-_km(places, one, other) / scale_km))
        for one, other in _pairs_of(nodes)
    ]
    wanted = degree * count / 2.0 / max(sum(chance for _, _, chance in chances), 1e-9)
    chosen = [(one, other) for one, other, chance in chances if random.random() < wanted * chance]
    return _placed("waxman", nodes, places, chosen)


def barabasi_albert(count: int, seed: int, links: int = 2, size_km: int = SIZE_KM) -> Topology:
    """Preferential attachment: each node links to `links` earlier ones, weighted by degree."""
    nodes, places, random = _scatter("barabasi_albert", count, seed, size_km)
    spans: list[tuple[str, str]] = []
    ends: list[str] = [nodes[0]]  # each as often as its degree
    for number, name in enumerate(nodes[1:], 1):
        chosen: dict[str, bool] = {}
        while len(chosen) < min(links, number):
            chosen[ends[random.randrange(len(ends))]] = True
        spans += [(other, name) for other in chosen]
        ends += [*chosen, *[name] * len(chosen)]
    return _placed("barabasi_albert", nodes, places, spans)


def names(count: int) -> list[str]:
    """Node names that sort in numeric order: n00, n01, …"""
    if not 1 <= count <= MAX_NODES:
        raise SimulationError(f"expected 1 to {MAX_NODES} nodes, got {count}")
    width = len(str(count - 1))
    return [f"n{number:0{width}}" for number in range(count)]


def delay_of_km(distance_km: float) -> int:
    return max(MIN_US, round(distance_km * US_PER_KM))


Places = dict[str, tuple[float, float]]


def _scatter(kind: str, count: int, seed: int, size_km: int) -> tuple[list[str], Places, Random]:
    if count > MAX_PLACED:
        raise SimulationError(f"{kind}: expected at most {MAX_PLACED} nodes, got {count}")
    random = stream(seed, "topology", kind)
    nodes = names(count)
    places = {name: (random.random() * size_km, random.random() * size_km) for name in nodes}
    return nodes, places, random


def _placed(
    kind: str, nodes: list[str], places: Places, chosen: Iterable[tuple[str, str]]
) -> Topology:
    """Spans with lengths from positions, and those added to connect everything."""

    def span(one: str, other: str) -> Span:
        return Span(one, other, delay_of_km(_km(places, one, other)))

    topology = Topology(kind, nodes, [span(one, other) for one, other in chosen])
    bridges = [span(one, other) for one, other in _bridges(topology.parts(), places)]
    return Topology(kind, nodes, [*topology.spans, *bridges])


def _bridges(parts: list[list[str]], places: Places) -> Iterator[tuple[str, str]]:
    """The shortest spans that connect all components, by Prim's algorithm."""
    part_of = {name: part for part in parts for name in part}
    added = parts[0]
    nearest = {name: (math.inf, "") for part in parts[1:] for name in part}
    while nearest:
        for name, best in nearest.items():
            nearest[name] = min(best, *((_km(places, name, other), other) for other in added))
        name = min(nearest, key=nearest.__getitem__)
        yield nearest[name][1], name
        added = part_of[name]
        for each in added:
            del nearest[each]


def _km(places: Places, one: str, other: str) -> float:
    return math.dist(places[one], places[other])


def _chain(nodes: list[str], delay_us: int) -> list[Span]:
    return [Span(one, other, delay_us) for one, other in pairwise(nodes)]


def _pairs_of(nodes: list[str]) -> Iterator[tuple[str, str]]:
    for number, one in enumerate(nodes):
        for other in nodes[number + 1 :]:
            yield one, other
