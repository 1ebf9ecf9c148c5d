"""What a table's log says of its files, as the values by which readers skip them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from accord.core.model.values import INTEGER_MAX
from accord.pipeline.tables import (
    ATTRIBUTES,
    LAST_MS,
    PARTITION,
    Bounds,
    Columns,
    TableFile,
)


def files_of(rows: pa.Table, columns: Columns) -> list[TableFile]:
    """The files of a table, from the statistics that its log has of them."""
    read = _Statistics(rows)
    times = [name for name in ("received", "queued", "done") if read.has(name)]
    first_ms = [read.column(f"min.{name}", 0) for name in times]
    last_ms = [read.column(f"max.{name}", LAST_MS * 1000) for name in times]
    last_number = "max.last_number" if read.has("last_number") else "max.number"
    parts: dict[str, list[Any]] = {
        "path": read.column("path"),
        "day": [day.isoformat() for day in read.column(f"partition.{PARTITION}")],
        "rows": read.column("num_records", 0),
        "bytes": read.column("size_bytes"),
        "first_ms": [min(each) // 1000 for each in zip(*first_ms, strict=True)] or read.zeros,
        "last_ms": [max(each) // 1000 for each in zip(*last_ms, strict=True)] or read.zeros,
        "first_offset": read.column("min.offset", 0),
        "last_offset": read.column("max.offset", INTEGER_MAX),
        "first_number": read.column("min.number", 0),
        "last_number": read.column(last_number, INTEGER_MAX),
        "unread": read.column(f"null_count.{ATTRIBUTES}", 0),
        "largest": read.column("max.payload_bytes", INTEGER_MAX),
        "node": [
            low if low == high else ""
            for low, high in zip(read.column("min.node", ""), read.column("max.node"), strict=True)
        ],
        "channels": [
            None if low is None or high is None else (low, high)
            for low, high in zip(
                read.column("min.channel"), read.column("max.channel"), strict=True
            )
        ],
    }
    bounds = [(each.name, read.bounds(each.name)) for each in columns]
    return [
        TableFile(
            **{name: values[index] for name, values in parts.items()},
            stats={name: known[0] for name, each in bounds if (known := each[index]) is not None},
        )
        for index in range(len(rows))
    ]


class _Statistics:
    """Columns of what delta-rs gives of a table's files."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._names = set(rows.column_names)
        self.zeros = [0] * len(rows)

    def has(self, name: str) -> bool:
        return f"min.{name}" in self._names

    def column(self, name: str, default: Any = None) -> list[Any]:
        if name not in self._names:
            return [default] * len(self._rows)
        values = self._rows[name]
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
        return [default if value is None else value for value in values.to_pylist()]

    def bounds(self, name: str) -> list[tuple[Bounds | None] | None]:
        """The bounds of a column of an attribute, None where the map may have values too."""
        nulls, rows = self.column(f"null_count.{name}"), self.column("num_records", 0)
        low, high = self.column(f"min.{name}"), self.column(f"max.{name}")
        return [
            None
            if nulls[index] is None
            else ((None, None),)
            if nulls[index] == rows[index]
            else (None,)
            if low[index] is None or high[index] is None
            else ((low[index], high[index]),)
            for index in range(len(rows))
        ]
