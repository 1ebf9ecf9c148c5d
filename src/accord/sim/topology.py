"""Topology: which nodes are linked, and their delays."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

from msgspec import Struct

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
