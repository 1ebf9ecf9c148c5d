from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.pipeline.journals import START_MS

from accord.pipeline import tables
from accord.pipeline.storage import Storage
from accord.pipeline.tables import AttributeColumn, TablesError, columns_for


def test_days_are_those_of_utc() -> None:
    assert tables.day_of(START_MS) == "2025-11-16"
    assert tables.day_of(-5) == "1970-01-01"
    assert tables.day_of(2**63) == "9999-12-31"
    assert tables.day_of(tables.day_end_ms("2025-11-16") - 1) == "2025-11-16"
    assert tables.day_of(tables.day_end_ms("2025-11-16")) == "2025-11-17"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"a": "number"}, "'a': expected integer, float, string, boolean, timestamp, got 'number'"),
        ({"Payload": "string"}, "there is a column 'payload'"),
        ({"a": "string", "A": "string"}, "'A': there is a column 'a'"),
        ({"": "string"}, "expected an attribute's name"),
    ],
)
def test_columns_that_a_table_cannot_have_are_refused(
    declared: Mapping[str, str], problem: str
) -> None:
    with pytest.raises(TablesError, match=problem):
        tables.check_declared(declared)
    tables.check_declared({"altitude_m": "float", "an odd `name`": "string"})


def test_a_reference_leads_to_a_payload_and_nowhere_else(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    ref = tables.payload_ref("../n", 7, START_MS)
    storage.write(ref, b"large")
    assert storage.read_payload(ref) == b"large"
    with pytest.raises(TablesError, match="not kept any more"):
        storage.read_payload(ref + "1")
    for bad in ("../secret", "payloads/../secret", "payloads/day=2025-11-16/../x", ""):
        with pytest.raises(TablesError, match="expected a reference to a payload"):
            storage.read_payload(bad)


def test_a_column_keeps_its_type() -> None:
    """An attribute of another type gets another column, whatever characters its name has."""
    first = columns_for({"a b": "integer", "a_b": "string"}, ())
    assert first == (
        AttributeColumn("a b", "a_b", "integer"),
        AttributeColumn("a_b", "a_b_string", "string"),
    )
    retyped = columns_for({"a b": "float", "a_b": "string"}, first)
    assert retyped == (AttributeColumn("a b", "a_b_float", "float"), first[1])
    assert columns_for({"a b": "integer"}, (*first, *retyped)) == first[:1]
    assert tables.columns_of_schema(tables.arrow_events(first)) == first
