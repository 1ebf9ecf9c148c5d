"""A batch of events as columns: the values predicates use, for all events at once.

The columns are those of `pipeline.attributes`. A declared attribute is in its own column or, where
that can't hold the value, in the map; any other is in the map. Values that no event can have (NaN,
infinity) count as absent.

Columns of other types are read as the node would read their text: a decimal is an integer if it is
whole and fits 64 bits, otherwise the nearest float; a date is its midnight in UTC, a time without a
zone is in UTC.

Numbers and times to compare with bounds are floats, times in microseconds since 1970, NaN where an
event has none. Bounds are below 2**53 (see `text_patterns`), so values that a float has to round,
which are all beyond, still compare exactly.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accord.core.model.document import Document
from accord.core.model.errors import EventError
from accord.core.model.values import INTEGER_MAX, INTEGER_MIN, Value
from accord.pipeline.tables import ARROW, ATTRIBUTES, METADATA

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

CHANNEL: Final = "channel"
_FIELDS: Final = {
    "number": ("float", "integer"),
    "string": ("string",),
    "boolean": ("boolean",),
    "timestamp": ("timestamp",),
}
_ARROW: Final = {kind: ARROW[fields[0]] for kind, fields in _FIELDS.items()}
_TIME: Final = pa.timestamp("us", "UTC")


class CodedColumn:
    """A dictionary-coded column: `codes` holds each row's index into `values`, -1 for none."""

    def __init__(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode()
        indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self.codes: Integers = indices.astype(np.int64)
        self.values: list[Any] = encoded.dictionary.to_pylist()

    def values_at(self, rows: Integers) -> list[Any]:
        return [self.values[code] if code >= 0 else None for code in self.codes[rows].tolist()]


class Events:
    """The events of one `batch`; `declared` are the names of attributes with columns of their
    own.
    """

    def __init__(self, batch: pa.RecordBatch, declared: Collection[str]) -> None:
        self._batch = batch
        self._names = set(batch.schema.names)
        self._declared = self._names.intersection(declared)
        self._axes: dict[tuple[str, str], Floats] = {}
        self._codes: dict[tuple[str, str], CodedColumn] = {}
        self._looked_up: dict[str, pa.StructArray] = {}

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @cached_property
    def channels(self) -> CodedColumn:
        return CodedColumn(self._batch.column(CHANNEL))

    def axis(self, name: str, kind: str) -> Floats:
        """Each event's number or timestamp, to compare with bounds."""
        found = self._axes.get((name, kind))
        if found is None:
            column = self._find(name, kind)
            if kind == "timestamp":
                column = column.cast(pa.int64())
            found = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            self._axes[name, kind] = found
        return found

    def codes(self, name: str, kind: str) -> CodedColumn:
        """Code each event's value of this kind."""
        found = self._codes.get((name, kind))
        if found is None:
            found = self._codes[name, kind] = CodedColumn(self._find(name, kind))
        return found

    def values(self, names: Collection[str], part: slice) -> list[dict[str, Value]]:
        """Values of the attributes `names` for the events in `part`."""
        found: list[dict[str, Value]] = [{} for _ in range(part.stop - part.start)]
        for name in names:
            columns = self._entries(name, ARROW)
            if name in self._declared:
                columns.append(_plain(self._batch.column(name)))
            for column in columns:
                if column.null_count == len(column):
                    continue
                values = column.slice(part.start, part.stop - part.start).to_pylist()
                for row, value in enumerate(values):
                    if value is not None:
                        found[row][name] = _number(value) if type(value) is Decimal else value
        return found

    def documents(self, part: slice) -> list[Document | None]:
        """The XML metadata of the events in `part`."""
        if METADATA not in self._names:
            return [None] * (part.stop - part.start)
        sources = self._batch.column(METADATA).slice(part.start, part.stop - part.start)
        return [_document(source) for source in sources.to_pylist()]

    def _entries(self, name: str, fields: Collection[str]) -> list[pa.Array]:
        """These fields of the entry of each event's map for a name."""
        if ATTRIBUTES not in self._names:
            return []
        found = self._looked_up.get(name)
        if found is None:
            column = self._batch.column(ATTRIBUTES)
            found = pc.map_lookup(column, pa.scalar(name, column.type.key_type), "first")
            if name in self._declared:
                own = self._batch.column(name)
                found = pc.if_else(own.is_null(), found, pa.scalar(None, found.type))
            self._looked_up[name] = found
        return [pc.struct_field(found, field) for field in fields]

    def _find(self, name: str, kind: str) -> pa.Array:
        """Values of one kind, null for events that have none."""
        columns = self._entries(name, _FIELDS[kind])
        if name in self._declared and _kind_of(self._batch.column(name).type) == kind:
            columns.append(_plain(self._batch.column(name)))
        if kind == "number":
            columns = [_as_floats(column) for column in columns]
        return pc.coalesce(*columns) if columns else pa.nulls(len(self), _ARROW[kind])


def _kind_of(kind: pa.DataType) -> str | None:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "timestamp" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else None


def _plain(column: pa.Array) -> pa.Array:
    """Times in UTC, non-finite floats absent, texts of one type."""
    kind = _kind_of(column.type)
    if kind == "timestamp":
        return column.cast(_TIME)
    if kind == "string":
        return column.cast(pa.string())
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
        return pc.if_else(pc.is_finite(column), column, None)
    return column


def _as_floats(column: pa.Array) -> pa.Array:
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # a decimal itself would not become the nearest float
    return _plain(column.cast(pa.float64(), safe=False))


def _number(value: Decimal) -> int | float:
    whole = int(value)
    return whole if whole == value and INTEGER_MIN <= whole <= INTEGER_MAX else float(value)


def _document(source: bytes | None) -> Document | None:
    try:
        return None if source is None else Document(source)
    except EventError:
        return None  # as in `columns`: unknown, not an error
