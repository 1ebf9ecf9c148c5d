from __future__ import annotations

import json
import math
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.quality.costs import ConstantCost, Cost, LinearCost, TableCost
from accord.core.quality.expectations import Expectation, PropertyRequirement
from accord.core.quality.profiles import Capability, Coupling, Profile
from accord.core.quality.properties import PropertyRegistry, QualityError
from accord.core.quality.serialisation import (
    QualityDocument,
    read_json,
    read_xml,
    write_json,
    write_xml,
)
from accord.core.quality.stored_records import MAX_CHARACTERS

REGISTRY = PropertyRegistry()
XML = b"""<?xml version="1.0"?>
<quality>
  <!-- What the temperature monitor needs -->
  <expectation id="X1" subscription="monitor" channel="temperature" utility="3">
    <requirement property="rate" lower="5" upper="10"/>
    <requirement property="confidence" lower="75" upper="95"/>
  </expectation>
  <profile publisher="P" channel="temperature">
    <capability property="rate" lower="1" upper="60" current="2">
      <linear base="0" slope="0.5"/>
    </capability>
    <capability property="trust" lower="low" upper="high" current="low">
      <table><point at="low" cost="1"/><point at="high" cost="4"/></table>
    </capability>
    <coupling of="rate" on="trust" per-unit="-0.01"/>
  </profile>
</quality>
"""
STORED = QualityDocument(
    (
        Expectation(
            id="X1",
            subscription="monitor",
            channel="temperature",
            requirements=(
                PropertyRequirement("rate", 5.0, 10.0),
                PropertyRequirement("confidence", 75.0, 95.0),
            ),
            utility=3.0,
        ),
    ),
    (
        Profile(
            publisher="P",
            channel="temperature",
            capabilities=(
                Capability("rate", 1.0, 60.0, 2.0, LinearCost(0.0, 0.5)),
                Capability("trust", "low", "high", "low", TableCost((("low", 1.0), ("high", 4.0)))),
            ),
            couplings=(Coupling("rate", "trust", -0.01),),
        ),
    ),
)


def test_xml_is_read_and_written() -> None:
    assert read_xml(XML, REGISTRY) == STORED
    assert read_xml(write_xml(STORED), REGISTRY) == STORED


def test_what_json_can_hold_xml_can_hold() -> None:
    (first, *_) = STORED.expectations
    many = QualityDocument(
        tuple(msgspec.structs.replace(first, id=f"{number}") for number in range(2_500)), ()
    )
    assert len(write_xml(many)) > 400_000
    assert read_xml(write_xml(many), REGISTRY) == read_json(write_json(many), REGISTRY) == many


def test_json_says_the_same() -> None:
    text = write_json(STORED)
    assert read_json(text, REGISTRY) == STORED
    plain = json.loads(text)
    assert plain["expectations"][0]["requirements"][0] == {
        "property": "rate",
        "lower": 5,
        "upper": 10,
    }
    assert plain["profiles"][0]["capabilities"][0]["cost"] == {
        "form": "linear",
        "base": 0,
        "slope": 0.5,
    }


def numbers(low: float = -1e15, high: float = 1e15) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False)


COSTS: st.SearchStrategy[Cost] = st.one_of(
    st.builds(ConstantCost, numbers()),
    st.builds(LinearCost, numbers(), numbers()),
    st.lists(st.tuples(numbers(0), numbers()), min_size=1, unique_by=lambda each: each[0]).map(
        lambda points: TableCost(tuple(sorted(points)))
    ),
)
NAMES = st.text(
    st.characters(min_codepoint=32, exclude_characters="+#", exclude_categories=("Cs", "Cc", "Cn")),
    min_size=1,
    max_size=20,
)
RATES = st.tuples(numbers(0), numbers(0), numbers(0)).map(sorted)


@st.composite
def stored(draw: st.DrawFn) -> QualityDocument:
    low, now, high = draw(RATES)
    upper = draw(st.sampled_from((high, math.inf, None)))
    expectation = Expectation(
        id=draw(NAMES),
        subscription=draw(NAMES),
        channel=draw(NAMES),
        requirements=(PropertyRequirement("rate", low, upper), PropertyRequirement("trust", "low")),
        utility=draw(numbers(1e-6, 1e9)),
        publishers=draw(st.integers(1, 16)),
    )
    profile = Profile(
        publisher=draw(NAMES),
        channel=draw(NAMES),
        capabilities=(Capability("rate", low, high, now, draw(COSTS)),),
        couplings=(Coupling("rate", "trust", draw(numbers())),),
    )
    return QualityDocument((expectation,), (profile,))


@given(stored())
def test_what_is_written_is_read_again(found: QualityDocument) -> None:
    assert read_xml(write_xml(found), REGISTRY) == found
    assert read_json(write_json(found), REGISTRY) == found


@pytest.mark.parametrize(
    ("xml", "problem"),
    [
        (b"<quality>", "line 1, column 10: not well-formed XML: "),
        (b"<other/>", "line 1: expected <quality>, got <other>"),
        (b"<quality>words</quality>", "expected no text in it, got 'words'"),
        (
            b"<quality>\n<wish/></quality>",
            "line 2: expected <expectation> or <profile> in <quality>, got <wish>",
        ),
        (
            b'<quality>\n<expectation id="X"/></quality>',
            "line 2: expectation: subscription: expected a text, got nothing",
        ),
        (
            b'<quality><expectation id="X" subscription="s" channel="c"/></quality>',
            "line 1: expectation 'X': expected 1 to 16 properties, got 0",
        ),
        (
            b'<quality><expectation id="X" subscription="s" channel="c" colour="red"/></quality>',
            "expectation: expected id, subscription, channel, .*, got 'colour'",
        ),
        (
            b'<quality><expectation id="X" subscription="s" channel="c" utility="much"/></quality>',
            "expectation: utility: expected a number, got 'much'",
        ),
        (
            (
                b'<quality><expectation id="X" subscription="s" channel="c">\n'
                b'<requirement property="rate" lower="fast"/></expectation></quality>'
            ),
            r"line 2: requirement: lower: rate: expected a number within 0\.\.inf, got 'fast'",
        ),
        (
            (
                b'<quality><expectation id="X" subscription="s" channel="c">\n'
                b'<requirement property="colour"/></expectation></quality>'
            ),
            "line 2: requirement: 'colour': no such property; expected one of rate, ",
        ),
        (
            (
                b'<quality><profile publisher="P" channel="c">\n'
                b'<capability property="rate" lower="1" upper="2"/></profile></quality>'
            ),
            "line 2: capability: current: expected, but missing",
        ),
        (
            (
                b'<quality><profile publisher="P" channel="c">\n'
                b'<capability property="rate" lower="1" upper="2" current="3"/></profile></quality>'
            ),
            "line 1: profile of 'P', rate: expected lower ≤ current ≤ upper, got 3 in 1 to 2",
        ),
        (
            (
                b'<quality><profile publisher="P" channel="c">\n'
                b'<capability property="latency" lower="1" upper="3" current="3"/>'
                b"</profile></quality>"
            ),
            "latency: is measured by nodes; a publisher can't declare it",
        ),
        (
            b'<!DOCTYPE quality [<!ENTITY e "x">]><quality>&e;</quality>',
            "a document type declaration",
        ),
        (b"<quality>" + b" " * MAX_CHARACTERS + b"</quality>", "bytes of XML, at most"),
    ],
)
def test_mistakes_in_xml_name_their_line_and_what_was_expected(xml: bytes, problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        read_xml(xml, REGISTRY)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "the JSON: not JSON: Input data was truncated"),
        ('{\n  "é" x}', "line 2, column 7: not JSON: JSON is malformed: expected "),
        ("[]", "the JSON: expected an object, got a list"),
        ('{"expectations": {}}', "expectations: expected a list, got an object"),
        ('{"wishes": []}', "quality: expected expectations, profiles, got 'wishes'"),
        (
            (
                '{"profiles": [{"publisher": "P", "channel": "c", "capabilities": '
                '[{"property": "rate", "lower": true}]}]}'
            ),
            r"profiles\[0\].capabilities\[0\].lower: expected a text or a number, got true",
        ),
        (
            (
                '{"profiles": [{"publisher": "P", "channel": "c", "capabilities": '
                '[{"property": "rate", "lower": 1, "upper": 2, "current": 1, "cost": 5}]}]}'
            ),
            r"capabilities\[0\].cost: expected an object with a form of constant, linear, table",
        ),
        (
            (
                '{"expectations": [{"id": "X", "subscription": "s", "channel": "a/#/b", '
                '"requirements": [{"property": "rate"}]}]}'
            ),
            r"expectations\[0\]: expectation 'X': channel: expected '#' as the last level only",
        ),
        (
            (
                '{"expectations": [{"id": "X", "subscription": "s", "channel": "a", '
                '"publishers": 1.5, "requirements": []}]}'
            ),
            "publishers: expected an integer, got 1.5",
        ),
        ("[" * 100_000, "the JSON: not JSON"),
        (" " * (MAX_CHARACTERS + 1), "characters, at most"),
    ],
)
def test_mistakes_in_json_name_their_place_and_what_was_expected(text: str, problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        read_json(text, REGISTRY)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_whatever_comes_is_read_or_refused(source: bytes) -> None:
    for read in (read_xml, read_json):
        with suppress(QualityError):
            assert isinstance(read(source, REGISTRY), QualityDocument)
