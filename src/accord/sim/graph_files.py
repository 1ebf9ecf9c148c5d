"""Topologies from graph files: GraphML, GML, and JSON with lists of nodes and edges.

GraphML: XML with `node` and `edge` elements, whose values are in `data` elements by key.

GML: nested lists of keys and values, `graph [ node [ id 0 label "A" ] edge [ source 0 … ] ]`.
"""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Final

from lxml import etree

from accord.sim.graph import Graph, GraphEdge, GraphNode, assemble, read_bytes
from accord.sim.topology import Topology
from accord.sim.trace import GraphError

MAX_DEPTH: Final = 32

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*)|(?P<open>\[)|(?P<close>\])|"(?P<text>[^"]*)"
        |(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|(?P<key>[A-Za-z_]\w*)""",
    re.VERBOSE,
)


class _List:
    """One list: its values, texts and nested lists, and its first line."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.facts: dict[str, object] = {}
        self.lists: list[tuple[str, _List]] = []

    def all(self, key: str) -> list[_List]:
        return [inner for name, inner in self.lists if name == key]


def parse_gml(data: bytes, file: str) -> Graph:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # GML's encoding before UTF-8
    graphs = _parse(text, file).all("graph")
    if len(graphs) != 1:
        raise GraphError(file, f"expected one graph, got {len(graphs)}")
    graph = graphs[0]
    nodes = [
        GraphNode(place, _gml_id(node, "id", place), _with_inner(node))
        for node in graph.all("node")
        for place in (f"{file}:{node.line}",)
    ]
    edges = [
        GraphEdge(place, _gml_id(edge, "source", place), _gml_id(edge, "target", place), edge.facts)
        for edge in graph.all("edge")
        for place in (f"{file}:{edge.line}",)
    ]
    name = graph.facts.get("label") or graph.facts.get("network") or ""
    return Graph(str(name), nodes, edges)


def _parse(text: str, file: str) -> _List:
    root = _List(1)
    around = [root]
    key, line, position = "", 1, 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise GraphError(f"{file}:{line}", f"expected GML, got {text[position]!r}")
        place = f"{file}:{line}"
        kind = found.lastgroup or ""
        if kind == "key" and not key:
            key = found[0].lower()
        elif kind == "open" and key:
            if len(around) >= MAX_DEPTH:
                raise GraphError(place, f"expected lists nested at most {MAX_DEPTH} deep")
            inner = _List(line)
            around[-1].lists.append((key, inner))
            around.append(inner)
            key = ""
        elif kind == "close" and not key and len(around) > 1:
            around.pop()
        elif kind in ("text", "number") and key:
            value = unescape(found["text"]) if kind == "text" else found["number"]
            around[-1].facts.setdefault(key, value)
            key = ""
        elif kind != "blank":
            expected = f"a value of {key}" if key else "a key"
            raise GraphError(place, f"expected {expected}, got {found[0][:40]!r}")
        line += found[0].count("\n")
        position = found.end()
    if key or len(around) > 1:
        raise GraphError(f"{file}:{line}", "expected more: the file ends within a list")
    return root


def _gml_id(entry: _List, key: str, place: str) -> str:
    value = entry.facts.get(key)
    if value is None:
        raise GraphError(place, f"expected {key}")
    return str(value)


def _with_inner(node: _List) -> dict[str, object]:
    """A node's values, completed from its nested lists."""
    facts: dict[str, object] = {}
    for _, inner in node.lists:
        facts |= inner.facts
    return facts | node.facts


def parse_graphml(data: bytes, file: str) -> Graph:
    root = _parse_xml(data, file)
    if _local(root) != "graphml":
        raise GraphError(f"{file}:{root.sourceline}", f"expected graphml, got {_local(root)}")
    keys = {
        str(key.get("id")): str(key.get("attr.name") or key.get("id")).lower()
        for key in root
        if _local(key) == "key"
    }
    graph = next((child for child in root if _local(child) == "graph"), None)
    if graph is None:
        raise GraphError(file, "expected a graph element in graphml")
    nodes, edges, name = [], [], ""
    for element in graph:
        place = f"{file}:{element.sourceline}"
        facts = _facts(element, keys)
        match _local(element):
            case "node":
                nodes.append(GraphNode(place, _attribute(element, "id", place), facts))
            case "edge":
                source = _attribute(element, "source", place)
                target = _attribute(element, "target", place)
                edges.append(GraphEdge(place, source, target, facts))
            case "data":
                if keys.get(str(element.get("key"))) in ("network", "name"):
                    name = (element.text or "").strip()
    return Graph(name, nodes, edges)


def _parse_xml(data: bytes, file: str) -> etree._Element:
    # As for event metadata: no entities, no external resources, no DTD.
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        line, _ = error.position
        raise GraphError(f"{file}:{line}", f"not well-formed XML: {error.msg}") from None
    except ValueError as error:
        raise GraphError(file, f"not well-formed XML: {error}") from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise GraphError(file, "a document type declaration (DTD) is not accepted")
    return root


def _facts(element: etree._Element, keys: dict[str, str]) -> dict[str, object]:
    return {
        keys.get(str(child.get("key")), str(child.get("key"))): (child.text or "").strip()
        for child in element
        if _local(child) == "data"
    }


def _attribute(element: etree._Element, name: str, place: str) -> str:
    value = element.get(name)
    if not value:
        raise GraphError(place, f"expected the attribute {name}")
    return str(value)


def _local(element: etree._Element) -> str:
    """The name without namespace; comments and the like have none."""
    tag: object = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


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
