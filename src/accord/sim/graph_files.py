"""Topologies from graph files: GraphML, GML, and JSON with lists of nodes and edges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from accord.sim.gml import parse_gml
from accord.sim.graph import Graph, GraphEdge, GraphNode, assemble, read_bytes
from accord.sim.graphml import parse_graphml
from accord.sim.topology import Topology
from accord.sim.trace import GraphError


def read_topology(path: str | Path) -> Topology:
    """Read the topology in a file, by its extension; raises GraphError."""
    file = Path(path)
    parser = _PARSERS.get(file.suffix.lower())
    if parser is None:
        raise GraphError(str(file), "expected a file that ends in .json, .graphml or .gml")
    return assemble(parser(read_bytes(file), str(file)), str(file))


def parse_json(data: bytes, file: str) -> Graph:
    """Parse a graph given as an object with `nodes` and `edges` (or `links`)."""
    try:
        table = json.loads(data)
    except json.JSONDecodeError as error:
        raise GraphError(f"{file}:{error.lineno}", f"not JSON: {error.msg}") from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise GraphError(file, "expected JSON in UTF-8, not nested deeply") from None
    if not isinstance(table, dict):
        raise GraphError(file, "expected a table with nodes and edges")
    edges_key = "edges" if "edges" in table else "links"
    graph = table.get("graph")
    name = graph.get("name") if isinstance(graph, dict) else None
    return Graph(
        name if isinstance(name, str) else "",
        [
            GraphNode(place, _id(entry, "id", place), _lowered(entry))
            for place, entry in _entries(table, "nodes", file)
        ],
        [
            GraphEdge(
                place, _id(entry, "source", place), _id(entry, "target", place), _lowered(entry)
            )
            for place, entry in _entries(table, edges_key, file)
        ],
    )


def _entries(table: dict[str, object], key: str, file: str) -> list[tuple[str, dict[str, object]]]:
    entries = table.get(key)
    if not isinstance(entries, list):
        raise GraphError(file, f"expected a list called {key}")
    found = []
    for number, entry in enumerate(entries):
        place = f"{file}: {key}[{number}]"
        if not isinstance(entry, dict):
            raise GraphError(place, "expected a table")
        found.append((place, entry))
    return found


def _id(entry: dict[str, object], key: str, place: str) -> str:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise GraphError(place, f"expected {key} to be a text or a whole number")
    return str(value)


def _lowered(entry: dict[str, object]) -> dict[str, object]:
    return {key.lower(): value for key, value in entry.items()}


_PARSERS: Final = {
    ".json": parse_json,
    ".graphml": parse_graphml,
    ".xml": parse_graphml,
    ".gml": parse_gml,
}
