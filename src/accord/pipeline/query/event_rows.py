"""Rows of the archive and of the tail as events: their properties decoded into columns.

They are decoded as when they are archived (`rows.columns_of`), so that an exported file has the
values that the tables have, and predicates see. Attributes get columns of their own: those that
have values of one type in the first part of an export. A value that its column can't hold, and any
other attribute, is in the map `attributes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accord.journal.events import KeptEvent
from accord.pipeline.decode.dictionary_columns import FIELD_OF
from accord.pipeline.decode.msgpack_fields import Places, TextSlices
from accord.pipeline.decode.property_columns import PropertyColumns
from accord.pipeline.decode.rows import columns_of, event_ids
from accord.pipeline.decode.scan import PAD, ScannedEvents
from accord.pipeline.tables import ARROW, ATTRIBUTES, ATTRIBUTES_TYPE, COLUMNS

MAX_COLUMNS: Final = 200  # of attributes
_FIELDS: Final[dict[str, pa.DataType]] = {
    "id": pa.string(),
    "channel": pa.string(),
    "publisher": pa.string(),
    "received": pa.timestamp("us", "UTC"),
    "qos": pa.int32(),
    "key": pa.string(),
    "deadline_ms": pa.int64(),
    "content_type": pa.string(),
    "metadata": pa.binary(),
    "payload": pa.binary(),
    ATTRIBUTES: ATTRIBUTES_TYPE,
}
FIELDS: Final = tuple(_FIELDS)
_DECODED: Final = ("key", "deadline_ms", "content_type", "metadata", ATTRIBUTES)
_TAKEN: Final = frozenset({*COLUMNS, *_FIELDS})
_NUMBERS: Final = {"integer", "float"}


def schema_of(columns: Mapping[str, str]) -> pa.Schema:
    """The columns of an exported file, with those of attributes and their types."""
    own = [(name, ARROW[kind]) for name, kind in columns.items()]
    return pa.schema([*_FIELDS.items(), *own])


def choose_columns(rows: pa.Table) -> dict[str, str]:
    """The attributes of these rows that get columns."""
    contents = PropertyColumns(_ArrowEvents(rows))
    lower = [name.lower() for name in contents.names]
    chosen: dict[str, str] = {}
    for index, name in enumerate(contents.names):
        values = np.unique(contents.value_of[contents.name_of == index])
        kinds = {FIELD_OF[type(contents.values[value])] for value in values.tolist()}
        if kinds == _NUMBERS:
            kinds = {"float"}
        is_free = name.lower() not in _TAKEN and lower.count(name.lower()) == 1
        if len(kinds) == 1 and is_free and len(chosen) < MAX_COLUMNS:
            chosen[name] = kinds.pop()
    return chosen


def to_events(rows: pa.Table, columns: Mapping[str, str]) -> pa.RecordBatch:
    """The rows of an export, with the columns of `schema_of`."""
    wanted = {*_DECODED, *columns}
    decoded = columns_of(_ArrowEvents(rows), "", columns, wanted)
    arrays: list[Any] = []
    schema = schema_of(columns)
    for field in schema:
        if field.name in wanted:
            arrays.append(decoded[field.name])
        elif field.name == "id":
            arrays.append(event_ids(_whole(rows["number"])))
        else:
            arrays.append(_array(rows[field.name]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _ArrowEvents(ScannedEvents):
    """Rows of a table, seen as scanned records; payloads are left out."""

    def __init__(self, rows: pa.Table) -> None:
        blocks = _array(rows["properties"])
        _, bounds, data = blocks.buffers()
        bounds32 = np.frombuffer(bounds, np.int32)[blocks.offset :][: len(blocks) + 1]
        ends: Places = bounds32.astype(np.int64)
        which = np.arange(len(blocks))
        nothing = np.zeros(len(blocks), np.int64)
        self._rows = rows
        self.data = (b"" if data is None else data.to_pybytes()) + PAD
        self.offsets = _whole(rows["offset"])
        self.numbers = _whole(rows["number"])
        self.received_ms = _whole(rows["received"]) // 1_000
        self.qos = _whole(rows["qos"])
        self.expiry_s = nothing - 1
        self.blocks = TextSlices(which, ends[:-1], ends[1:])
        self.payloads = TextSlices(which, nothing, nothing)

    @cached_property
    def channel_names(self) -> tuple[Places, list[str | None]]:
        return _distinct(self._rows["channel"])

    @cached_property
    def publisher_names(self) -> tuple[Places, list[str | None]]:
        return _distinct(self._rows["publisher"])

    def record(self, row: int) -> KeptEvent:
        at = self._rows.slice(row, 1)
        start, end = self.blocks.starts[row], self.blocks.ends[row]
        return KeptEvent(
            int(self.received_ms[row]),
            at["channel"][0].as_py(),
            at["publisher"][0].as_py(),
            int(self.qos[row]),
            -1,
            self.data[start:end],
            b"",
            int(self.numbers[row]),
        )


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _whole(column: pa.ChunkedArray) -> Places:
    values: Places = pc.cast(column, pa.int64()).to_numpy()
    return values


def _distinct(column: pa.ChunkedArray) -> tuple[Places, list[str | None]]:
    found = _array(column).dictionary_encode()
    return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()
