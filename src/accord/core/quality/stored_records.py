"""Stored expectations and profiles as plain records, the same from XML and from JSON.

A record knows its location in the input: a line of XML, a path in JSON. Its fields are texts and
numbers, or lists of records. Nested XML elements (including costs, by their form) are fields in
JSON:

    <expectation id="X" subscription="s" channel="c" utility="3">
      <requirement property="rate" lower="5" upper="10"/>
    </expectation>

    {"id": "X", "subscription": "s", "channel": "c", "utility": 3,
     "requirements": [{"property": "rate", "lower": 5, "upper": 10}]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from lxml import etree

from accord.core.model.document import parse_xml
from accord.core.model.errors import EventError
from accord.core.quality.properties import QualityError, shown

MAX_CHARACTERS: Final = 2**20
MAX_RECORDS: Final = 10_000
ROOT: Final = "quality"
_SYNTAX: Final = re.compile(r"(.*) at (line \d+, column \d+): (.*)", re.DOTALL)
_AT_BYTE: Final = re.compile(r" \(byte (\d+)\)$")

# By field: its elements, and the fields of their records.
LISTS: Final = {
    "expectations": "expectation",
    "profiles": "profile",
    "requirements": "requirement",
    "capabilities": "capability",
    "couplings": "coupling",
    "points": "point",
}
COSTS: Final = ("constant", "linear", "table")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    ROOT: ("expectations", "profiles"),
    "expectation": (
        "id",
        "subscription",
        "channel",
        "utility",
        "publishers",
        "requirements",
    ),
    "requirement": ("property", "lower", "upper"),
    "profile": ("publisher", "channel", "capabilities", "couplings"),
    "capability": ("property", "lower", "upper", "current", "cost"),
    "coupling": ("of", "on", "per_unit"),
    "constant": ("cost",),
    "linear": ("base", "slope"),
    "table": ("points",),
    "point": ("at", "cost"),
}


class StoredRecord:
    """An XML or JSON element with its location; `kind` is one of FIELDS."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind = kind
        self.location = place
        self.values: dict[str, str | float] = {}
        self.lists: dict[str, list[StoredRecord]] = {}
        self.cost: StoredRecord | None = None

    def problem(self, text: str) -> QualityError:
        return QualityError(self.location, text)

    def unknown(self, name: object) -> QualityError:
        expected = ", ".join(FIELDS[self.kind]) or "nothing"
        return self.problem(f"{self.kind}: expected {expected}, got {shown(name)}")

    def text(self, name: str) -> str:
        found = self.values.get(name)
        if not isinstance(found, str):
            got = "nothing" if found is None else shown(found)
            raise self.problem(f"{self.kind}: {name}: expected a text, got {got}")
        return found


class _Counter:
    def __init__(self) -> None:
        self.records = 0

    def count(self, record: StoredRecord) -> StoredRecord:
        self.records += 1
        if self.records > MAX_RECORDS:
            raise record.problem(f"more than {MAX_RECORDS} records")
        return record


# XML


def from_xml(source: bytes) -> StoredRecord:
    try:
        root = parse_xml(source, MAX_CHARACTERS)
    except EventError as error:
        found = _SYNTAX.fullmatch(error.problem)
        if found is None:
            raise QualityError("the XML", error.problem) from None
        raise QualityError(found[2], f"{found[1]}: {found[3]}") from None
    if root.tag != ROOT:
        raise QualityError(_line(root), f"expected <{ROOT}>, got <{root.tag!s}>")
    return _element(root, ROOT, _Counter())


def to_xml(record: StoredRecord) -> bytes:
    try:
        return etree.tostring(_tree(record), encoding="utf-8", pretty_print=True)
    except ValueError as error:
        raise QualityError("the XML", f"can't be written: {error}") from None


def _element(element: etree._Element, kind: str, counter: _Counter) -> StoredRecord:
    record = counter.count(StoredRecord(kind, _line(element)))
    for key, text in element.attrib.items():
        name = str(key).replace("-", "_")
        if name not in FIELDS[kind] or name in LISTS or (name == "cost" and kind == "capability"):
            raise record.unknown(key)
        record.values[name] = str(text)
    if (element.text or "").strip():
        raise record.problem(f"{kind}: expected no text in it, got {shown(element.text)}")
    for child in element:
        if isinstance(child.tag, str):
            _child(record, child, counter)
        if (child.tail or "").strip():
            raise record.problem(f"{kind}: expected no text in it, got {shown(child.tail)}")
    return record


def _child(record: StoredRecord, child: etree._Element, counter: _Counter) -> None:
    tag = str(child.tag)
    if tag in COSTS and record.kind == "capability":
        if record.cost is not None:
            raise QualityError(_line(child), "capability: expected one cost")
        record.cost = _element(child, tag, counter)
        return
    for name in FIELDS[record.kind]:
        if LISTS.get(name) == tag:
            record.lists.setdefault(name, []).append(_element(child, tag, counter))
            return
    elements = [LISTS[name] for name in FIELDS[record.kind] if name in LISTS]
    elements += COSTS if record.kind == "capability" else ()
    expected = " or ".join(f"<{each}>" for each in elements) or "nothing"
    raise QualityError(_line(child), f"expected {expected} in <{record.kind}>, got <{tag}>")


def _tree(record: StoredRecord) -> etree._Element:
    element = etree.Element(record.kind)
    for name, value in record.values.items():
        element.set(name.replace("_", "-"), value if isinstance(value, str) else shown(value))
    for child in _inside(record):
        element.append(_tree(child))
    return element


def _inside(record: StoredRecord) -> Iterator[StoredRecord]:
    for records in record.lists.values():
        yield from records
    if record.cost is not None:
        yield record.cost


def _line(element: etree._Element) -> str:
    return f"line {element.sourceline}"


# JSON


def from_json(text: str | bytes) -> StoredRecord:
    if len(text) > MAX_CHARACTERS:
        problem = f"{len(text)} characters, at most {MAX_CHARACTERS} accepted"
        raise QualityError("the JSON", problem)
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        problem = str(error).partition("\n")[0]
        place, at = "the JSON", _AT_BYTE.search(problem)
        if at is not None:
            place, problem = _line_and_column(text, int(at[1])), problem[: at.start()]
        raise QualityError(place, f"not JSON: {problem}") from None
    return _object(document, ROOT, "the JSON", _Counter())


def _line_and_column(text: str | bytes, at: int) -> str:
    """Of the byte `at`; the column counts characters, from 1."""
    whole = text.encode() if isinstance(text, str) else text
    before = whole[:at].decode(errors="replace")
    return f"line {before.count(chr(10)) + 1}, column {len(before.rpartition(chr(10))[2]) + 1}"


def to_json(record: StoredRecord) -> str:
    return msgspec.json.format(msgspec.json.encode(_plain(record)), indent=2).decode()


def _object(document: object, kind: str, place: str, counter: _Counter) -> StoredRecord:
    record = counter.count(StoredRecord(kind, place))
    if not isinstance(document, dict):
        raise record.problem(f"expected an object, got {_shown(document)}")
    for name, value in document.items():
        at = name if kind == ROOT else f"{place}.{name}"
        if name == "form" and kind in COSTS:
            continue
        if name not in FIELDS[kind]:
            raise record.unknown(name)
        if name in LISTS:
            if not isinstance(value, list):
                raise QualityError(at, f"expected a list, got {_shown(value)}")
            record.lists[name] = [
                _object(each, LISTS[name], f"{at}[{number}]", counter)
                for number, each in enumerate(value)
            ]
        elif name == "cost" and kind == "capability":
            record.cost = _object(value, _form(value, at), at, counter)
        elif value is not None:
            record.values[name] = _plain_value(value, at)
    return record


def _form(value: object, place: str) -> str:
    form = value.get("form") if isinstance(value, dict) else value
    if not isinstance(form, str) or form not in COSTS:
        expected = f"an object with a form of {', '.join(COSTS)}"
        raise QualityError(place, f"expected {expected}, got {_shown(form)}")
    return form


def _plain_value(value: object, place: str) -> str | float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise QualityError(place, f"expected a text or a number, got {_shown(value)}")
    return value


def _plain(record: StoredRecord) -> dict[str, object]:
    plain: dict[str, object] = {"form": record.kind} if record.kind in COSTS else {}
    for name, value in record.values.items():
        is_infinite = isinstance(value, float) and value in (float("inf"), float("-inf"))
        plain[name] = shown(value) if is_infinite else value
    for name, records in record.lists.items():
        plain[name] = [_plain(each) for each in records]
    if record.cost is not None:
        plain["cost"] = _plain(record.cost)
    return plain


def _shown(value: object) -> str:
    kinds = {dict: "an object", list: "a list", type(None): "null", bool: str(value).lower()}
    return kinds.get(type(value)) or shown(value)
