"""What pages ask of negotiated quality: the live set, and documents in both formats."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from accord.core.monitoring.merge_patch import without_nulls
from accord.core.router.rights import EVERYTHING, Rights
from accord.operations.live_catalog import read_request
from accord.operations.operation import Asker
from accord.operations.ports import NodePorts
from accord.operations.quality import MAX_DOCUMENT
from accord.testing import MemoryQuality
from tests.core.broker.test_client_negotiation import QualityTable, expect
from tests.fake_node import FakeNode
from tests.operations.asking import ask

XML = """<quality>
  <expectation id="often" subscription="lab/#" channel="lab/#" utility="3" publishers="1">
    <requirement property="rate" lower="5" upper="10"/>
  </expectation>
  <profile publisher="sensor" channel="lab/t">
    <capability property="rate" lower="1" upper="50" current="2">
      <linear base="0" slope="0.1"/>
    </capability>
  </profile>
</quality>
"""
BOMB = '<!DOCTYPE q [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><quality>&b;</quality>'


def node_of(table: QualityTable) -> NodePorts:
    return NodePorts(
        view=FakeNode(),
        broker=table.broker,
        quality=MemoryQuality(table.quality, "here"),
        now_ms=lambda: table.now_ms,
    )


def watch(table: QualityTable, rights: Rights = EVERYTHING, **parameters: object) -> dict[str, Any]:
    text = msgspec.json.encode({"watch": 1, "set": "quality", **parameters}).decode()
    found = read_request(text)
    assert isinstance(found, tuple)
    set_, asked = found
    state = set_.compute(node_of(table), asked, Asker(rights=rights))
    plain: dict[str, Any] = without_nulls(msgspec.json.decode(msgspec.json.encode(state)))
    return plain


@pytest.fixture
def table() -> QualityTable:
    """A sensor that can, and desks that want more and less."""
    table = QualityTable()
    table.declare(table.join("sensor"))
    expect(table.join("desk"), "lab/#", {"rate": 60, "id": "much", "utility": 2})
    expect(table.join("calm"), "lab/t", {"rate": 1, "id": "little"}, {"trust": "low", "id": "sure"})
    expect(table.join("secret"), "cas/#", {"rate": 1, "id": "hidden"})
    table.settle()
    return table


def convert(table: QualityTable, text: str, to: str) -> dict[str, Any]:
    request = {"do": "convert", "text": text, "to": to}
    return ask(node_of(table), "$accord/quality", request, client="desk", rights=Rights())


class TestLiveSet:
    def test_the_worst_comes_first_with_the_nearest_profile(self, table: QualityTable) -> None:
        state = watch(table)
        ranked = sorted(state["expectations"].values(), key=lambda each: each["rank"])
        assert [each["id"] for each in ranked] == ["much", "sure", "hidden", "little"]
        much, sure, _, little = ranked
        assert much["reasons"] == [{"property": "rate", "now": 2}]
        assert much["nearest"]["publisher"] == "sensor"
        assert much["nearest"]["channel"] == "lab/t"
        assert not much["nearest"]["is_remote"]
        rate = much["nearest"]["capabilities"][0]
        assert (rate["property"], rate["upper"], rate["current"]) == ("rate", 50, 2)
        assert sure["reasons"] == [{"property": "trust"}]  # nobody offers it
        assert "nearest" not in sure
        assert little["relies_on"] == ["sensor"]
        assert state["profiles"]["lab/t\nsensor"]["expectations"] == 1
        assert state["properties"]["trust"]["levels"] == ["none", "low", "medium", "high"]

    def test_it_shows_what_the_viewer_may_see(self, table: QualityTable) -> None:
        rights = Rights(statistics=True, subscribe=("cas/#",))
        state = watch(table, rights)
        assert [each["id"] for each in state["expectations"].values()] == ["hidden"]
        assert (state["expectations_total"], state["profiles"], state["actions"]) == (1, {}, {})
        assert (sum(state["totals"]["states"].values()), state["totals"]["profiles"]) == (1, 0)

    def test_it_is_searched_and_bounded(self, table: QualityTable) -> None:
        assert [*watch(table, search="DESK much")["expectations"]] == ["desk\nmuch"]
        state = watch(table, limit=1)
        assert [*state["expectations"]] == ["desk\nmuch"]
        assert (state["expectations_matching"], state["expectations_total"]) == (4, 4)
        shown = watch(table, mismatches=True)["expectations"].values()
        assert {each["id"] for each in shown} == {"much", "sure", "hidden"}

    def test_advice_has_the_value_before_and_after(self, table: QualityTable) -> None:
        version = table.quality.version
        expect(table.join("fast"), "lab/t", {"rate": [10, 20], "id": "fast", "utility": 9})
        table.settle()
        assert table.quality.version > version
        (action,) = watch(table)["actions"].values()
        assert (action["publisher"], action["property"]) == ("sensor", "rate")
        assert (action["before"], action["target"], action["outcome"]) == (2, 10, "waiting")
        profile = {"do": "update", "channel": "lab/t", "current": {"rate": 10}}
        assert ask(node_of(table), "$accord/capabilities", profile, client="sensor")["ok"]
        table.now_ms += 1_000
        table.quality.observe_actions(table.now_ms)
        (action,) = watch(table)["actions"].values()
        assert (action["after"], action["outcome"]) == (10, "reached")
        assert action["reached_ms"] == table.now_ms
        (shown,) = ask(node_of(table), "$accord/quality", {"do": "get"})["actions"]
        assert shown["after"] == 10

    def test_a_suspended_one_is_said_to_be(self, table: QualityTable) -> None:
        request = {"do": "suspend", "id": "much"}
        assert ask(node_of(table), "$accord/expectations", request, client="desk")["ok"]
        found = watch(table)["expectations"]["desk\nmuch"]
        assert (found["state"], found["reasons"]) == ("suspended", [])
        assert "nearest" not in found


class TestDocuments:
    def test_both_ways(self, table: QualityTable) -> None:
        as_json = convert(table, XML, "json")
        assert (as_json["expectations"], as_json["profiles"]) == (1, 1)
        assert convert(table, as_json["text"], "xml")["text"] == XML
        assert convert(table, XML, "xml")["text"] == XML
        assert convert(table, as_json["text"], "json")["text"] == as_json["text"]

    @pytest.mark.parametrize(
        ("text", "place", "detail"),
        [
            (XML.replace('"rate"', '"rat"', 1), "line 3", "requirement: 'rat': no such property"),
            (XML.replace("</quality>", ""), "line 11, column 1", "not well-formed XML"),
            (BOMB, "the XML", "a document type declaration (DTD) is not accepted"),
            (
                '{"expectations": [{"id": true}]}',
                "expectations[0].id",
                "expected a text or a number",
            ),
            ('{\n  "expectations": [}', "line 2, column 20", "not JSON"),
            ("[" * 100_000, "the JSON", "not JSON"),
            ("", "the JSON", "not JSON"),
        ],
    )
    def test_mistakes_have_their_place(
        self, table: QualityTable, text: str, place: str, detail: str
    ) -> None:
        found = convert(table, text, "json")
        assert (found["ok"], found["status"], found["place"]) == (False, 400, place)
        assert detail in found["detail"]

    def test_they_are_bounded(self, table: QualityTable) -> None:
        found = convert(table, " " * (MAX_DOCUMENT + 1), "json")
        assert not found["ok"]
        assert found["place"] == "text"

    def test_properties_defined_at_the_node_are_known(self, table: QualityTable) -> None:
        text = XML.replace('"rate" lower="5" upper="10"', '"colour" lower="few"')
        assert not convert(table, text, "json")["ok"]
        definition = "name = colour\nlevels = grey < few < full\nbetter = higher\n"
        request = {"do": "define", "text": definition}
        assert ask(node_of(table), "$accord/properties", request)["ok"]
        assert convert(table, text, "json")["ok"]
