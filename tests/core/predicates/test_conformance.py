"""Rows taken from the tests of other brokers and XPath engines.

Out of scope, and why: rows on two documents with a DTD, which Accord refuses as a whole; two rows
whose result is a *string* that their engine then turned into a number, which no condition does.
A row with a context node other than the document asks the same as
`(context)[1][boolean(expression)]`.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from accord.core.model.document import Document
from accord.core.model.errors import PredicateError
from accord.core.model.values import Value
from accord.core.predicates.predicate import parse, parse_xpath

DATA = Path(__file__).parents[4] / "shared" / "data" / "conformance"
DTD_DOCUMENTS = {"jaxen_id.xml", "libxml2_vid.xml"}
NUMBERS_OF_STRINGS = {"xp-1772", "xp-1774"}

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the conformance rows are not part of the repository"
)


def rows(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def values(properties: dict[str, Any]) -> dict[str, Value]:
    return {
        name: float(typed["v"]) if typed["t"] in ("float", "double") else typed["v"]
        for name, typed in properties.items()
        if typed["t"] != "null" and typed.get("v") is not None
    }


def outcome(expression: str, properties: dict[str, Any]) -> str:
    try:
        predicate = parse(expression)
    except PredicateError:
        return "invalid"
    assert parse(str(predicate)) == predicate
    return "match" if predicate.evaluate(values(properties)) is True else "nomatch"


def test_all_selector_rows() -> None:
    all_rows = rows("selectors.jsonl")
    wrong = []
    for row in all_rows:
        got = outcome(row["expr"], row["props"])
        if got != row["expect"] and not (row["expect"] == "valid" and got != "invalid"):
            wrong.append((row["id"], row["expr"], row["expect"], got))
    assert len(all_rows) == 523
    assert wrong == []


@cache
def document(name: str) -> Document:
    return Document((DATA / "xpath_docs" / name).read_bytes())


def test_all_xpath_rows_that_are_conditions() -> None:
    in_scope = [
        row
        for row in rows("xpath.jsonl")
        if row["doc"] not in DTD_DOCUMENTS and row["id"] not in NUMBERS_OF_STRINGS
    ]
    wrong = []
    for row in in_scope:
        text = row["expr"]
        if row["context"] != "/" and row["type"] != "invalid":
            text = f"({row['context']})[1][boolean({text})]"
        try:
            predicate = parse_xpath(text, row["ns"])
        except PredicateError:
            got = None
        else:
            assert parse(str(predicate)) == predicate
            got = predicate.evaluate({}, document(row["doc"]))
        if got != row["match"]:
            wrong.append((row["id"], text, row["match"], got))
    assert len(in_scope) == 862
    assert wrong == []
