"""Archive columns for what predicates see: an event's values and its XML metadata.

| column | type | holds |
|---|---|---|
| one for each declared attribute | one of TYPES | its values, null where absent |
| `attributes` | map of name to struct | all other values; exactly one field of the struct is set |
| `metadata` | binary | the XML as published: its declaration may name any encoding |
| `paths` | map of path to array of strings | `Document.paths`, null where there is no document |

The struct has a field for each type, so that 5, '5' and TRUE keep their types, on which the meaning
of a predicate depends. A declared attribute has a real column, which Parquet can prune by, and
conditions on it read only that column. A value that its declared column can't hold goes to the map,
kept but invisible to conditions: rejecting such events is up to the channel's schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from accord.core.model.document import Document
from accord.core.model.values import INTEGER_MAX, INTEGER_MIN, Value
from accord.pipeline.tables import ATTRIBUTES, METADATA, PATHS

Declared = Mapping[str, DataType]

TYPES: Final[dict[str, DataType]] = {
    "integer": LongType(),
    "float": DoubleType(),
    "string": StringType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
}
_FIELDS: Final[dict[type, str]] = {
    int: "integer",
    float: "float",
    str: "string",
    bool: "boolean",
    datetime: "timestamp",
}


def field_of(column: DataType) -> str:
    """Return the name in TYPES of a declared column's type; TypeError if it is none of them."""
    for field, kind in TYPES.items():
        if column == kind:
            return field
    expected = ", ".join(kind.simpleString() for kind in TYPES.values())
    raise TypeError(f"expected a column of {expected}, got {column.simpleString()}")


def schema(declared: Declared) -> StructType:
    """The columns above; ValueError if two names are equal, as Spark ignores case."""
    value = StructType([StructField(name, kind) for name, kind in TYPES.items()])
    columns: dict[str, DataType] = {
        ATTRIBUTES: MapType(StringType(), value),
        METADATA: BinaryType(),
        PATHS: MapType(StringType(), ArrayType(StringType())),
    }
    times = Counter(name.lower() for name in (*declared, *columns))
    if repeated := [name for name in times if times[name] > 1]:
        raise ValueError(f"expected columns of different names, got more than one {repeated[0]!r}")
    for kind in declared.values():
        field_of(kind)
    return StructType([StructField(name, kind) for name, kind in {**declared, **columns}.items()])


def to_row(
    values: Mapping[str, Value], document: Document | None, declared: Declared
) -> dict[str, Any]:
    """Return a row of `schema(declared)` for an event's `values` and `metadata`."""
    row: dict[str, Any] = dict.fromkeys(declared)
    undeclared: dict[str, dict[str, Value]] = {}
    for name, value in values.items():
        held = _held(value, field_of(declared[name])) if name in declared else None
        if held is not None:
            row[name] = held
        else:
            undeclared[name] = {_FIELDS[type(value)]: value}
    row[ATTRIBUTES] = undeclared
    row[METADATA] = document and document.source
    row[PATHS] = document and {path: list(found) for path, found in document.paths.items()}
    return row


def _held(value: Value, field: str) -> Value | None:
    """Return `value` as a column of this type holds it, or None if it can't."""
    if _FIELDS[type(value)] == field:
        return value
    if type(value) is int and field == "float" and float(value) == value:
        return float(value)
    if type(value) is float and field == "integer" and value.is_integer():
        return int(value) if INTEGER_MIN <= value <= INTEGER_MAX else None
    return None
