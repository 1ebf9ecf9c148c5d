"""A batch of events as columns: the values predicates use, for all events at once.

The columns are those of `pipeline.attributes`. A declared attribute is read from its own column
only, any other from the map. Numbers are floats, NaN where an event has none; if some are integers
that a float may not represent, Python numbers, which compare exactly. Values that no event can have
(NaN, infinity) count as absent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from accord.core.model.document import Document
from accord.core.model.errors import EventError
from accord.core.model.values import EXACT_MAX, Value
from accord.pipeline.tables import ATTRIBUTES, METADATA

Integers = NDArray[np.int64]
Numbers = NDArray[Any]  # dtype float or object

CHANNEL: Final = "channel"
_FIELDS: Final = {
    "number": ("float", "integer"),
    "string": ("string",),
    "boolean": ("boolean",),
    "timestamp": ("timestamp",),
}


class Codes:
    """A dictionary-coded column: `of_rows` holds each row's index into `values`, -1 for none."""

    def __init__(self, of_rows: Integers, values: Sequence[Any]) -> None:
        self.of_rows = of_rows
        self.values = values


class Events:
    """The events of one `batch`; `declared` are the names of attributes with columns of their
    own.
    """

    def __init__(self, batch: pa.RecordBatch, declared: Collection[str]) -> None:
        self._batch = batch
        self._declared = declared
        self._names = set(batch.schema.names)
        self._numbers: dict[str, Numbers] = {}
        self._codes: dict[tuple[str, str], Codes] = {}

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    @cached_property
    def channels(self) -> Codes:
        return _encode(self._batch.column(CHANNEL))

    def numbers(self, name: str) -> Numbers:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = self._find_numbers(name)
        return found

    def codes(self, name: str, kind: str) -> Codes:
        """Code each event's value of this kind."""
        found = self._codes.get((name, kind))
        if found is None:
            found = self._codes[name, kind] = self._find_codes(name, kind)
        return found

    def values(self, names: Collection[str], rows: Integers) -> list[dict[str, Value]]:
        """Values of the attributes `names` for the events in `rows`."""
        found: list[dict[str, Value]] = [{} for _ in range(len(self))]
        for name in names:
            if name in self._declared and name in self._names:
                column = _plain(self._batch.column(name))
                for row, value in enumerate(column.to_pylist()):
                    if value is not None:
                        found[row][name] = value
        wanted = [name for name in names if name not in self._declared]
        if wanted and self._entries is not None:
            self._entries.add_to(found, wanted)
        return [found[row] for row in rows.tolist()]

    def documents(self, rows: Integers) -> list[Document | None]:
        """The XML metadata of the events in `rows`."""
        if METADATA not in self._names:
            return [None] * len(rows)
        return [_document(source) for source in self._batch.column(METADATA).take(rows).to_pylist()]

    @cached_property
    def _entries(self) -> _Entries | None:
        return _Entries(self._batch.column(ATTRIBUTES)) if ATTRIBUTES in self._names else None

    def _find(self, name: str, field: str) -> tuple[pa.Array, Integers | None] | None:
        """Values of one type and the rows they belong to (None: each to its own)."""
        if name in self._declared:
            if name not in self._names:
                return None
            column = _widened(self._batch.column(name))
            return (column, None) if _field_of(column.type) == field else None
        return None if self._entries is None else self._entries.find(name, field)

    def _find_numbers(self, name: str) -> Numbers:
        numbers: Numbers = np.full(len(self), np.nan)
        for field in _FIELDS["number"]:
            if (found := self._find(name, field)) is None:
                continue
            column, rows = found
            exact = _large(column) if field == "integer" else None
            if exact is not None and numbers.dtype != object:
                numbers = numbers.astype(object)
            values = column.to_numpy(zero_copy_only=False).astype(np.float64)
            values[~np.isfinite(values)] = np.nan
            values = values if exact is None else exact
            if rows is None:
                numbers = values
            else:
                numbers[rows] = values
        return numbers

    def _find_codes(self, name: str, kind: str) -> Codes:
        if kind == "number":
            numbers = self.numbers(name)
            if numbers.dtype == object:
                shown = zip(is_absent(numbers).tolist(), map(repr, numbers.tolist()), strict=True)
                texts = pa.array([None if absent else text for absent, text in shown])
                codes = _encode(texts)
                return Codes(codes.of_rows, [_parsed(text) for text in codes.values])
            return _encode(pa.array(numbers, from_pandas=True))
        found = self._find(name, kind)
        if found is None:
            return Codes(np.full(len(self), -1), [])
        column, rows = found
        codes = _encode(column)
        if rows is None:
            return codes
        of_rows = np.full(len(self), -1)
        of_rows[rows] = codes.of_rows
        return Codes(of_rows, codes.values)


class _Entries:
    """The entries of a column of maps, from name to a struct with one field set."""

    def __init__(self, column: pa.MapArray) -> None:
        offsets = column.offsets.to_numpy()
        first, end = int(offsets[0]), int(offsets[-1])
        lengths = np.diff(offsets)
        if column.null_count:
            # Arrow allows a null map to have entries, although they mean nothing.
            assert not lengths[column.is_null().to_numpy(zero_copy_only=False)].any()
        self._rows = np.repeat(np.arange(len(column)), lengths)
        items = column.items.slice(first, end - first)
        # Flattened, a value is null where its struct is.
        self._fields = dict(zip((field.name for field in items.type), items.flatten(), strict=True))
        self._names = _encode(column.keys.slice(first, end - first))
        self._numbers = {name: number for number, name in enumerate(self._names.values)}

    def find(self, name: str, field: str) -> tuple[pa.Array, Integers] | None:
        number = self._numbers.get(name)
        if number is None:
            return None
        values = self._fields[field]
        places = np.flatnonzero(self._names.of_rows == number)
        values = values.take(pa.array(places))
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return values.drop_null(), self._rows[places[valid]]

    def add_to(self, found: list[dict[str, Value]], names: Collection[str]) -> None:
        numbers = [self._numbers[name] for name in names if name in self._numbers]
        is_wanted = np.isin(self._names.of_rows, numbers)
        for fields in _FIELDS.values():
            for field in fields:
                values = _plain(self._fields[field])
                valid = values.is_valid().to_numpy(zero_copy_only=False)
                places = np.flatnonzero(valid & is_wanted)
                for row, number, value in zip(
                    self._rows[places].tolist(),
                    self._names.of_rows[places].tolist(),
                    values.take(pa.array(places)).to_pylist(),
                    strict=True,
                ):
                    found[row][self._names.values[number]] = value


def is_absent(numbers: Numbers) -> NDArray[np.bool_]:
    """True at NaN, the only value unequal to itself."""
    is_nan: NDArray[np.bool_] = (numbers != numbers).astype(np.bool_)  # noqa: PLR0124
    return is_nan


def _encode(column: pa.Array) -> Codes:
    encoded = column.dictionary_encode()
    of_rows = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Codes(of_rows, encoded.dictionary.to_pylist())


def _field_of(kind: pa.DataType) -> str | None:
    if pa.types.is_int64(kind):
        return "integer"
    if pa.types.is_float64(kind):
        return "float"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "timestamp" if pa.types.is_timestamp(kind) else None


def _widened(column: pa.Array) -> pa.Array:
    """Numbers cast to the types of event values."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.float64()) if pa.types.is_floating(column.type) else column


def _plain(column: pa.Array) -> pa.Array:
    """Values as Python objects: times in UTC, non-finite floats absent."""
    column = _widened(column)
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", "UTC"))
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_finite(column), column, None)
    return column


def _large(column: pa.Array) -> Numbers | None:
    """Exact integers, if floats can't represent some of them."""
    bounds = pc.min_max(column).as_py()
    low, high = bounds["min"], bounds["max"]
    if low is None or (low > -EXACT_MAX and high < EXACT_MAX):
        return None
    values = [np.nan if value is None else value for value in column.to_pylist()]
    exact = np.empty(len(values), object)
    exact[:] = values
    return exact


def _parsed(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _document(source: bytes | None) -> Document | None:
    try:
        return None if source is None else Document(source)
    except EventError:
        return None  # as in `columns`: unknown, not an error
