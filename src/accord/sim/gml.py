"""GML: nested lists of keys and values, `graph [ node [ id 0 label "A" ] edge [ source 0 … ] ]`."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from accord.sim.graph import Graph, GraphEdge, GraphNode
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
        GraphNode(place, _id(node, "id", place), _with_inner(node))
        for node in graph.all("node")
        for place in (f"{file}:{node.line}",)
    ]
    edges = [
        GraphEdge(place, _id(edge, "source", place), _id(edge, "target", place), edge.facts)
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


def _id(entry: _List, key: str, place: str) -> str:
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
