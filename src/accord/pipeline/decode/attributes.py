"""Archive columns for what predicates see: an event's values and its XML metadata.

| column | type | holds |
|---|---|---|
| one or more for each declared attribute | one of `tables.ARROW` | values that it holds exactly |
| `attributes` | map of name to struct | all other values; exactly one field of the struct is set |
| `metadata` | binary | the XML as published: its declaration may name any encoding |
| `paths` | map of path to array of strings | `Document.paths`, null where there is no document |

The struct has a field for each type, so that 5, '5' and TRUE keep their types, on which the meaning
of a predicate depends. A declared attribute has a real column, which Parquet can prune by. A value
that its column can't hold, such as 7.9 or 'high' in one of integers, goes to the map. Wherever a
value is, predicates see it: those that compare 5 with 5.0 find them equal, and none can tell them
apart, so that an integer column holds both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accord.core.model.document import Document
from accord.core.model.values import INTEGER_MAX, INTEGER_MIN, Value
from accord.pipeline.decode.dictionary_columns import FIELD_OF
from accord.pipeline.tables import ATTRIBUTES, METADATA, PATHS

Declared = Mapping[str, str]  # attribute -> name of its type in `tables.ARROW`


def to_row(
    values: Mapping[str, Value], document: Document | None, declared: Declared
) -> dict[str, Any]:
    """Return the columns above for an event's `values` and `metadata`."""
    row: dict[str, Any] = dict.fromkeys(declared)
    undeclared: dict[str, dict[str, Value]] = {}
    for name, value in values.items():
        own = held(value, declared[name]) if name in declared else None
        if own is not None:
            row[name] = own
        else:
            undeclared[name] = {FIELD_OF[type(value)]: value}
    row[ATTRIBUTES] = undeclared
    row[METADATA] = document and document.source
    row[PATHS] = document and {path: list(found) for path, found in document.paths.items()}
    return row


def held(value: Value, kind: str) -> Value | None:
    """Return `value` as a column of this type holds it, or None if it can't."""
    if FIELD_OF[type(value)] == kind:
        return value
    if type(value) is int and kind == "float" and float(value) == value:
        return float(value)
    if type(value) is float and kind == "integer" and value.is_integer():
        return int(value) if INTEGER_MIN <= value <= INTEGER_MAX else None
    return None
