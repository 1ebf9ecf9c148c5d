from __future__ import annotations

import re
from typing import cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lxml import etree
from tests.strategies import TEXTS, documents

from accord.core.model.document import Document
from accord.core.model.errors import PredicateError
from accord.core.model.values import xpath_number
from accord.core.predicates.predicate import parse_xpath
from accord.core.predicates.tree import And, Expr, PathTest, XPath, walk
from accord.core.predicates.xpath import compile_xpath

REPORT = Document(
    b"""<report xmlns="urn:r" xmlns:g="urn:geo"><g:position unit="m"><g:altitude>420</g:altitude>
    </g:position><sighting>3</sighting><sighting>17</sighting></report>"""
)
PREFIXES = {"r": "urn:r", "g": "urn:geo"}


@pytest.mark.parametrize(
    "text",
    [
        "/r:report/r:sighting > 10",
        "/r:report/r:sighting < 10",
        "r:report/r:sighting = '17'",
        "/r:report/r:sighting != 3 and /r:report/r:sighting != 17",
        "//g:altitude = 420",
        "//@unit = 'm'",
        "/r:report/g:position[@unit = 'm']",
        "/r:report/g:position[g:altitude > 400]",
        "not(//r:absent)",
        "/r:report/r:sighting = true()",
        "r:absent = false()",
        "10 < //r:sighting",
    ],
)
def test_simple_conditions_become_tests_of_paths(text: str) -> None:
    predicate = parse_xpath(text, PREFIXES)
    assert not any(isinstance(node, XPath) for node in walk(predicate.tree))
    assert predicate.evaluate({}, REPORT) is True


@pytest.mark.parametrize(
    "text",
    [
        "count(//r:sighting) = 2",
        "//r:sighting[2] = 17",
        "sum(//r:sighting) = 20",
        "contains(/r:report, '420')",
        "/r:report/*/@unit",
        "1 = 2 = 0",
        "'a' < 'b' or true()",
        "/",
        "//r:sighting != " + "1" * 400,
    ],
)
def test_other_conditions_go_to_the_engine(text: str) -> None:
    predicate = parse_xpath(text, PREFIXES)
    assert predicate.evaluate({}, REPORT) is True


def test_a_conjunction_keeps_its_simple_parts_beside_the_whole() -> None:
    tree = parse_xpath("/a/b > 5 and contains(/a/c, 'x')").tree
    assert isinstance(tree, And)
    assert set(map(type, tree.items)) == {PathTest, XPath}


def test_without_a_document_every_condition_is_unknown() -> None:
    for text in ("/a", "not(/a)", "count(/a) = 0", "not(count(/a) = 1)"):
        assert parse_xpath(text).evaluate({}, None) is None


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("/a/b[c > d]efg", 11),
        ("(1 + 1", 6),
        ("x:a = 1", 1),
        ("foo(3)", 0),
        ("last(1)", 0),
        ("$v = 1", 0),
        ("book[!]", 5),
        ("", 0),
    ],
)
def test_mistakes_point_at_their_place(text: str, position: int) -> None:
    with pytest.raises(PredicateError) as mistake:
        parse_xpath(text)
    assert mistake.value.position == position


@pytest.mark.parametrize(
    ("text", "namespaces"),
    [
        ("/a" * 3_000, {}),
        ("(" * 2_000 + "1" + ")" * 2_000, {}),
        ("1)] | /self::node()[(1", {}),
        ("a:b", {"a": ""}),
        ("a:b", {"a": "u}x"}),
        ("contains(concat(" + ",".join(["/"] * 17) + "), 'x')", {}),
        ("b", {"": "urn:x"}),
        ("/a = '\0'", {}),
    ],
)
def test_hostile_conditions_are_refused(text: str, namespaces: dict[str, str]) -> None:
    with pytest.raises(PredicateError):
        parse_xpath(text, namespaces)


def test_a_very_long_path_is_left_to_the_engine() -> None:
    assert parse_xpath("/a" * 2_000).evaluate({}, REPORT) is False


ENGINE_OVERFLOWS = "0e99999999999"  # to libxml2 this is 0 times infinity


@given(
    st.sampled_from([text for text in TEXTS if text != ENGINE_OVERFLOWS])
    | st.text("0123456789.-+eE \n", max_size=6)
)
def test_text_is_read_as_the_engine_reads_numbers(text: str) -> None:
    assume(not re.search(r"0[eE]\+?[0-9]{3}", text))  # as ENGINE_OVERFLOWS
    element = etree.Element("n")
    element.text = text
    expected = cast(float, etree.XPath("number(.)")(element))
    assert xpath_number(text) == pytest.approx(expected, rel=1e-12, nan_ok=True)


MAPPED = [
    "/r/n > 5", "/r/n = 5", "//n != 5", "/r/s/@k = 'a'", "/r/s[@k != '5']", "//@k <= 7.5", "/r/g",
    "not(/r/g/n >= 0)", "/r = '5'", "/r/n = 'a b' or //n < -0.1", "/r/s[@k]", "/r/n = '5.'",
]  # fmt: skip


@given(st.sampled_from(MAPPED), documents())
def test_mapped_conditions_agree_with_the_engine(text: str, document: Document) -> None:
    assume(ENGINE_OVERFLOWS.encode() not in document.source)
    tree: Expr = parse_xpath(text).tree
    assert not any(isinstance(node, XPath) for node in walk(tree))
    expected = compile_xpath(XPath(text)).evaluate(document)
    assert parse_xpath(text).evaluate({}, document) is expected


def test_a_condition_too_costly_for_a_document_is_unknown() -> None:
    costly = parse_xpath("//*[count(//*[count(preceding::*) > 5]) > 0]")
    small, large = (Document(b"<a>" + b"<b/>" * count + b"</a>") for count in (50, 2_000))
    assert costly.evaluate({}, small) is True
    assert costly.evaluate({}, large) is None
    assert parse_xpath("count(//b) = 2000").evaluate({}, large) is True
