"""Topologies from files, and what is wrong with files that are none."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.sim.graph import assemble
from accord.sim.graph_files import parse_gml, parse_graphml, parse_json, read_topology
from accord.sim.topology import Span, Topology
from accord.sim.trace import GraphError

DATA = Path(__file__).parent / "data"

GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="Longitude" attr.type="double" for="node" id="d1" />
  <key attr.name="Latitude" attr.type="double" for="node" id="d2" />
  <key attr.name="label" attr.type="string" for="node" id="d3" />
  <key attr.name="Network" attr.type="string" for="graph" id="d4" />
  <key attr.name="dist" attr.type="double" for="edge" id="d5" />
  <!-- a comment -->
  <graph edgedefault="undirected">
    <data key="d4">Small</data>
    <node id="0"><data key="d1">8.55</data><data key="d2">47.37</data>
      <data key="d3">Zürich</data></node>
    <node id="1"><data key="d1">7.44</data><data key="d2">46.95</data>
      <data key="d3">Bern</data></node>
    <node id="2"><data key="d3">St. Gallen</data></node>
    <edge source="0" target="1"/>
    <edge source="1" target="2"><data key="d5">200</data></edge>
    <edge source="0" target="2"/>
  </graph>
</graphml>"""

GML = """# made by hand
graph [
  label "Small"
  node [ id 0 label "A" graphics [ x 1.5 y 2 ] Longitude -122.4 Latitude 37.8 ]
  node [ id 1 label "A" Longitude -118.2 Latitude 34.1 ]
  node [
    id 2
    label "Ca&#241;on"
  ]
  edge [ source 0 target 1 ]
  edge [ source 1 target 2 delay_ms 3.5 ]
  edge [ source 2 target 2 ]
  edge [ source 0 target 1 dist 10 ]
]
"""


def graphml(text: str) -> Topology:
    return assemble(parse_graphml(text.encode(), "g.graphml"), "g.graphml")


def gml(text: str) -> Topology:
    return assemble(parse_gml(text.encode(), "g.gml"), "g.gml")


def from_json(value: object) -> Topology:
    return assemble(parse_json(json.dumps(value).encode(), "g.json"), "g.json")


def test_a_recorded_network() -> None:
    topology = read_topology(DATA / "epoch.json")
    assert topology.name == "epoch"
    assert topology.nodes[:3] == ("Palo_Alto", "Los_Angeles", "Denver")
    assert len(topology.spans) == 7
    assert topology.is_connected
    assert topology.span("Los_Angeles", "Palo_Alto") == Span("Palo_Alto", "Los_Angeles", 2_578)


def test_graphml() -> None:
    topology = graphml(GRAPHML)
    assert topology.name == "Small"
    assert topology.nodes == ("Zurich", "Bern", "St._Gallen")
    zurich_bern = topology.span("Zurich", "Bern")
    assert zurich_bern is not None
    assert zurich_bern.delay_us is not None
    assert abs(zurich_bern.delay_us - 5 * 96) < 10  # 96 km as the crow flies
    assert topology.span("Bern", "St._Gallen") == Span("Bern", "St._Gallen", 1_000)
    assert topology.span("Zurich", "St._Gallen") == Span("Zurich", "St._Gallen", None)


def test_gml() -> None:
    topology = gml(GML)
    assert topology.name == "Small"
    assert topology.nodes == ("A", "A-2", "Canon")
    assert topology.span("A-2", "Canon") == Span("A-2", "Canon", 3_500)
    assert topology.span("A", "A-2") == Span("A", "A-2", 50)  # the shorter one
    assert len(topology.spans) == 2


def test_what_gml_says_twice_counts_once() -> None:
    assert gml('graph [ node [ id 1 label "first" label "second" ] ]').nodes == ("first",)


def test_json_with_links_and_numbers_as_ids() -> None:
    topology = from_json(
        {
            "nodes": [{"id": 7}, {"id": 8, "name": "x"}],
            "links": [{"source": 7, "target": 8, "delay": 4}],
        }
    )
    assert topology.nodes == ("n7", "x")
    assert topology.spans == (Span("n7", "x", 4_000),)


def test_names_that_are_long_or_alike_stay_apart() -> None:
    topology = from_json({"nodes": [{"id": n, "name": "é" * 100} for n in range(12)], "edges": []})
    assert len(set(topology.nodes)) == 12
    assert all(0 < len(name) <= 64 for name in topology.nodes)


@pytest.mark.parametrize(
    ("value", "place", "problem"),
    [
        ([], "g.json", "expected a table with nodes and edges"),
        ({"nodes": []}, "g.json", "expected a list called links"),
        ({"nodes": [], "edges": []}, "g.json", "expected 1 to 10000 nodes, got 0"),
        ({"nodes": [3], "edges": []}, "g.json: nodes[0]", "expected a table"),
        ({"nodes": [{"id": True}], "edges": []}, "g.json: nodes[0]", "expected id to be a text"),
        ({"nodes": [{"id": 1}, {"id": "1"}], "edges": []}, "g.json: nodes[1]", "ids that differ"),
        (
            {"nodes": [{"id": 1}], "edges": [{"source": 1, "target": 2}]},
            "g.json: edges[0]",
            "expected the id of a node, got '2'",
        ),
        (
            {"nodes": [{"id": 1}, {"id": 2}], "edges": [{"source": 1, "target": 2, "dist": -5}]},
            "g.json: edges[0]: distance in km",
            "expected a number from 0",
        ),
        (
            {"nodes": [{"id": 1, "pos": [1, 100]}], "edges": []},
            "g.json: nodes[0]: latitude",
            "expected a number from -90 to 90, got 100",
        ),
    ],
)
def test_mistakes_in_json(value: object, place: str, problem: str) -> None:
    with pytest.raises(GraphError) as caught:
        from_json(value)
    assert caught.value.place == place
    assert problem in caught.value.problem


def test_text_that_is_no_json() -> None:
    with pytest.raises(GraphError, match=r"^g.json:2: not JSON"):
        parse_json(b'{"nodes":\n oops', "g.json")
    with pytest.raises(GraphError, match="expected JSON in UTF-8"):
        parse_json(b"[" * 100_000, "g.json")
    with pytest.raises(GraphError, match="expected JSON in UTF-8"):
        parse_json(b'"\xff\xfe\xfd', "g.json")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<graphml>", r"^g.graphml:1: not well-formed XML"),
        ("<other/>", r"^g.graphml:1: expected graphml, got other"),
        ("<graphml/>", "expected a graph element"),
        ("<graphml><graph>\n<node/></graph></graphml>", r"^g.graphml:2: expected the attribute id"),
        ("<graphml><graph><node id='1'/><edge source='1'/></graph></graphml>", "attribute target"),
        ("", "not well-formed XML"),
    ],
)
def test_mistakes_in_graphml(text: str, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        graphml(text)


def test_entities_are_not_expanded() -> None:
    bomb = (
        '<!DOCTYPE graphml [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
        '<!ENTITY f SYSTEM "file:///etc/hostname">]>'
        "<graphml><graph><node id='1'><data key='label'>&b;&f;</data></node></graph></graphml>"
    )
    with pytest.raises(GraphError, match="DTD"):
        graphml(bomb)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected one graph, got 0"),
        ("graph [\n node [ id 1 ]\n", "^g.gml:3: expected more"),
        ("graph [\n ] ]", "^g.gml:2: expected a key, got ']'"),
        ("graph [ node [ id ] ]", "expected a value of id"),
        ("graph [ node [ label 3 ] ]", "expected id"),
        ("graph [ ; ]", "expected GML, got ';'"),
        ("a [ " * 40, "nested at most 32 deep"),
        ("graph [ node [ id 1 ] edge [ source 1 target 9 ] ]", "expected the id of a node"),
    ],
)
def test_mistakes_in_gml(text: str, problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        gml(text)


@given(st.text(alphabet='graphnodeid 1"[]\n.-', max_size=80))
def test_any_text_is_a_graph_or_a_clear_error(text: str) -> None:
    for parse in (parse_gml, parse_graphml, parse_json):
        with suppress(GraphError):
            assemble(parse(text.encode(), "file"), "file")


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="no such file"):
        read_topology(tmp_path / "missing.json")
    with pytest.raises(GraphError, match=r"ends in \.json, \.graphml or \.gml"):
        read_topology(tmp_path / "graph.dot")
