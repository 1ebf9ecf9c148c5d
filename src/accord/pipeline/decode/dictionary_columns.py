"""Dictionary-encoded columns: each distinct value is stored once, and rows refer to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from accord.core.model.values import Value, infer
from accord.pipeline.decode.msgpack_fields import Places
from accord.pipeline.tables import ARROW, VALUE

_MAX_REMEMBERED: Final = 100_000
FIELD_OF: Final[dict[type, str]] = {
    int: "integer",
    float: "float",
    str: "string",
    bool: "boolean",
    datetime: "timestamp",
}


class DictionaryColumn:
    """A column in which each row has one of the values in `pool`, or none."""

    def __init__(self, rows: int) -> None:
        self.pool: list[Any] = []
        self.index = np.full(rows, -1, np.int32)

    def put(self, row: int, value: Any) -> None:
        if value is not None:
            self.index[row] = len(self.pool)
            self.pool.append(value)

    def put_all(self, rows: Places, values: Sequence[Any], which: Places) -> None:
        """Set row `rows[i]` to `values[which[i]]`."""
        self.index[rows] = which + len(self.pool)
        self.pool += values

    def array(self, kind: pa.DataType) -> pa.Array:
        if not self.pool:
            return pa.nulls(len(self.index), kind)
        index = pa.array(self.index, mask=self.index < 0)
        return pa.array(self.pool, kind).take(index)


def value_structs(values: Sequence[Value]) -> pa.StructArray:
    """Structs in which only the field of the value's type is set."""
    kinds = list(map(type, values))
    fields = []
    for kind, field in FIELD_OF.items():
        if kind in kinds:
            own = [v if k is kind else None for v, k in zip(values, kinds, strict=True)]
            fields.append(pa.array(own, ARROW[field]))
        else:
            fields.append(pa.nulls(len(values), ARROW[field]))
    return pa.StructArray.from_arrays(fields, fields=list(VALUE))


_remembered: dict[str, Value] = {}


def inferred(texts: list[str]) -> list[Value]:
    """Cached: numbers and times recur, also across batches."""
    known = _remembered
    if len(known) > _MAX_REMEMBERED:
        known.clear()
    values: list[Value] = []
    for text in texts:
        value = known.get(text)
        if value is None:
            value = infer(text)
            if len(text) < 40:
                known[text] = value
        values.append(value)
    return values
