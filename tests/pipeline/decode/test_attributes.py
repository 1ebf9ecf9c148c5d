from __future__ import annotations

from accord.core.model.document import Document
from accord.pipeline.decode.attributes import to_row


def test_a_value_goes_to_the_field_of_its_type() -> None:
    row = to_row({"a": 5, "b": "5", "c": True}, None, {})
    assert row == {
        "attributes": {"a": {"integer": 5}, "b": {"string": "5"}, "c": {"boolean": True}},
        "metadata": None,
        "paths": None,
    }


def test_a_declared_attribute_has_a_column() -> None:
    row = to_row({"altitude": 420, "note": "x"}, None, {"altitude": "integer", "b": "integer"})
    assert (row["altitude"], row["b"]) == (420, None)
    assert row["attributes"] == {"note": {"string": "x"}}


def test_numbers_fit_a_column_that_holds_them_exactly() -> None:
    declared = {"n": "integer", "f": "float"}
    fitting = to_row({"n": 5.0, "f": 5}, None, declared)
    assert (fitting["n"], fitting["f"], fitting["attributes"]) == (5, 5.0, {})
    rounded = to_row({"n": 5.5, "f": 2**53 + 1}, None, declared)
    assert (rounded["n"], rounded["f"]) == (None, None)
    assert rounded["attributes"] == {"n": {"float": 5.5}, "f": {"integer": 2**53 + 1}}


def test_a_document_is_kept_as_published_and_as_paths() -> None:
    row = to_row({}, Document(b"<r><n>1</n><n>2</n></r>"), {})
    assert row["metadata"] == b"<r><n>1</n><n>2</n></r>"
    assert row["paths"]["/r/n"] == ["1", "2"]
