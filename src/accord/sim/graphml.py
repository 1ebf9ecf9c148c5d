"""GraphML: XML with `node` and `edge` elements, whose values are in `data` elements by key."""

from __future__ import annotations

from lxml import etree

from accord.sim.graph import Graph, GraphEdge, GraphNode
from accord.sim.trace import GraphError


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
