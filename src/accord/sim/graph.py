"""A graph as read from a file, and its conversion to a topology.

Files differ in the keys for a node's name, position or distance; those understood are listed below.
Nodes get valid node names: letters, digits and `_.-`, with a number appended to duplicates. Of
several edges between two nodes the shortest counts; self-loops are ignored. Delays are those in the
file, or follow from its distances in km, or from the coordinates of the nodes; otherwise they are
unknown.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from accord.core.model.errors import file_problem
from accord.sim.topology import MAX_NODES, MAX_SPANS, Span, Topology, delay_of_km
from accord.sim.trace import GraphError, SimulationError

MAX_BYTES: Final = 32_000_000
MAX_NAME: Final = 64

# In order of precedence, in lower case.
NAMES: Final = ("name", "label")
LONGITUDES: Final = ("longitude", "lon", "lng")
LATITUDES: Final = ("latitude", "lat")
KILOMETRES: Final = ("dist", "distance", "length", "km", "dist_km")
MILLISECONDS: Final = ("delay_ms", "latency_ms", "delay", "latency")

_EARTH_KM: Final = 6_371.0
_MAX_KM: Final = 1_000_000.0
_MAX_MS: Final = 3_600_000.0


class GraphNode(Struct, frozen=True):
    """A node; `location` is its location in the file."""

    location: str
    id: str
    facts: Mapping[str, object]  # keys in lower case


class GraphEdge(Struct, frozen=True):
    location: str
    source: str
    target: str
    facts: Mapping[str, object]


class Graph(Struct, frozen=True):
    name: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]


def assemble(graph: Graph, file: str) -> Topology:
    """Build names, spans and delays from the file's contents."""
    if not 1 <= len(graph.nodes) <= MAX_NODES:
        raise GraphError(file, f"expected 1 to {MAX_NODES} nodes, got {len(graph.nodes)}")
    if len(graph.edges) > MAX_SPANS:
        raise GraphError(file, f"expected at most {MAX_SPANS} edges, got {len(graph.edges)}")
    names = _names(graph.nodes)
    places = {node.id: _coordinates(node) for node in graph.nodes}
    spans: dict[tuple[str, str], Span] = {}
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end not in names:
                raise GraphError(edge.location, f"expected the id of a node, got {end!r}")
        if edge.source == edge.target:
            continue
        one, other = names[edge.source], names[edge.target]
        delay_us = _delay_us(edge, places[edge.source], places[edge.target])
        key = (min(one, other), max(one, other))
        known = spans.get(key)
        if known is None or (delay_us or 0) < (known.delay_us or 0):
            spans[key] = Span(one, other, delay_us)
    try:
        return Topology(graph.name or Path(file).stem, names.values(), spans.values())
    except SimulationError as error:
        raise GraphError(file, str(error)) from None


def _names(nodes: list[GraphNode]) -> dict[str, str]:
    """A name for each id."""
    names: dict[str, str] = {}
    taken: dict[str, bool] = {}
    for node in nodes:
        if node.id in names:
            raise GraphError(node.location, f"expected ids that differ, got {node.id!r} again")
        wanted = _cleaned(str(_first(node.facts, NAMES) or "")) or f"n{_cleaned(node.id)}"
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted[: MAX_NAME - 6]}-{number}"
        names[node.id] = name
        taken[name] = True
    return names


def _cleaned(text: str) -> str:
    """Reduced to the characters valid in a node name."""
    plain = unicodedata.normalize("NFKD", text[: 4 * MAX_NAME]).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", plain).strip("_")[:MAX_NAME]


def _coordinates(node: GraphNode) -> tuple[float, float] | None:
    """Longitude and latitude, if the node has them."""
    both = node.facts.get("pos")
    if isinstance(both, list) and len(both) == 2:
        longitude, latitude = both
    else:
        longitude, latitude = _first(node.facts, LONGITUDES), _first(node.facts, LATITUDES)
    if longitude is None or latitude is None:
        return None
    east = _number(longitude, 360.0, f"{node.location}: longitude", least=-360.0)
    return east, _number(latitude, 90.0, f"{node.location}: latitude", least=-90.0)


def _delay_us(
    edge: GraphEdge, one: tuple[float, float] | None, other: tuple[float, float] | None
) -> int | None:
    delay_ms = _first(edge.facts, MILLISECONDS)
    if delay_ms is not None:
        return round(1_000 * _number(delay_ms, _MAX_MS, f"{edge.location}: delay in ms"))
    distance_km = _first(edge.facts, KILOMETRES)
    if distance_km is not None:
        return delay_of_km(_number(distance_km, _MAX_KM, f"{edge.location}: distance in km"))
    if one is not None and other is not None:
        return delay_of_km(_globe_km(one, other))
    return None


def _globe_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Great-circle distance between two longitudes and latitudes."""
    east, north, east_too, north_too = map(math.radians, (*one, *other))
    half = (
        math.sin((north_too - north) / 2) ** 2
        + math.cos(north) * math.cos(north_too) * math.sin((east_too - east) / 2) ** 2
    )
    return 2 * _EARTH_KM * math.asin(math.sqrt(min(half, 1.0)))


def _first(facts: Mapping[str, object], names: tuple[str, ...]) -> object:
    return next((facts[name] for name in names if facts.get(name) is not None), None)


def _number(value: object, most: float, place: str, least: float = 0.0) -> float:
    number = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not least <= number <= most:
        got = repr(value)[:40]
        raise GraphError(place, f"expected a number from {least:g} to {most:g}, got {got}")
    return number


def read_bytes(file: Path, most: int = MAX_BYTES) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(most + 1)
    except OSError as error:
        raise GraphError(str(file), file_problem(error)) from None
    if len(data) > most:
        raise GraphError(str(file), f"expected at most {most} bytes")
    return data
