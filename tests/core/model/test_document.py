from __future__ import annotations

import pytest

from accord.core.model.document import MAX_BYTES, MAX_DEPTH, MAX_NODES, Document
from accord.core.model.errors import EventError

REPORT = b"""<report xmlns:g="urn:geo" priority="2">
  <platform>UAV</platform>
  <position unit="m"><altitude>420</altitude><g:lat>34.5</g:lat></position>
  <sighting>3</sighting><sighting>17</sighting>
  <note/>
</report>"""


NAME = b"n" * 300
LONG_PATHS = b"<%s>" % NAME * 30 + b"<b/>" * 5_000 + b"</%s>" % NAME * 30


def test_elements_and_xml_attributes_become_attributes() -> None:
    assert Document(REPORT).attributes == {
        "priority": 2,
        "platform": "UAV",
        "position.unit": "m",
        "position.altitude": 420,
        "position.lat": 34.5,
        "sighting": 3,
    }


def test_paths_keep_every_repetition_in_document_order() -> None:
    paths = Document(REPORT).paths
    assert paths["/report/sighting"] == ("3", "17")
    assert paths["//sighting"] == ("3", "17")
    assert paths["/report/@priority"] == ("2",)
    assert paths["/report/position/{urn:geo}lat"] == ("34.5",)
    assert paths["/report/note"] == ("",)
    assert paths["/report/position"] == ("42034.5",)


def test_nested_repetitions_are_in_the_order_of_their_opening_tags() -> None:
    document = Document(b"<a><b>1<b>2</b></b><b>3</b></a>")
    assert document.paths["//b"] == ("12", "2", "3")


def test_an_element_counts_before_an_xml_attribute_of_the_same_name() -> None:
    assert Document(b'<a><b c="1"><c>2</c></b></a>').attributes["b.c"] == 2


def test_comments_and_processing_instructions_are_no_text() -> None:
    document = Document(b"<a><b>4<!-- not -->2<?nor this?>0</b></a>")
    assert document.paths["/a/b"] == ("420",)


def test_character_references_and_cdata_are_text() -> None:
    document = Document(b"<a><b>&lt;&#233;<![CDATA[<x>]]></b></a>")
    assert document.attributes["b"] == "<é<x>"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (b"", "not well-formed XML"),
        (b"<a>", "not well-formed XML at line 1"),
        (b"<a>\n<b></a>", "not well-formed XML at line 2"),
        (b"\xff\xfe<", "not well-formed XML"),
        (b"<a>&unknown;</a>", "not well-formed XML"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "DTD"),
        (b'<!DOCTYPE a [<!ENTITY x "xxx">]><a>&x;</a>', "DTD"),
        (b"<a>" + b" " * MAX_BYTES + b"</a>", "bytes of XML"),
        (b"<a>" * (MAX_DEPTH + 1) + b"</a>" * (MAX_DEPTH + 1), "nested deeper than 32"),
        (b"<a>" * 3000 + b"</a>" * 3000, "not well-formed XML"),
        (b"<a>" + b"<b/>" * MAX_NODES + b"</a>", "more than 10000 elements"),
        (b"<a xmlns='" + b"u" * 600 + b"'/>", "a name longer than 512 with its namespace"),
        (LONG_PATHS, "paths and texts longer than .* in all, for XML of this size"),
    ],
)
def test_unacceptable_xml_is_refused_with_its_reason(source: bytes, problem: str) -> None:
    with pytest.raises(EventError, match=problem) as refused:
        Document(source)
    assert refused.value.field == "metadata"


def test_entities_are_never_expanded() -> None:
    bomb = b'<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;&x;&x;&x;">]><a>&y;</a>'
    with pytest.raises(EventError, match="DTD"):
        Document(bomb)
