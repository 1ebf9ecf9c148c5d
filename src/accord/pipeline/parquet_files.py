"""The Parquet files of the tables: how they are written, and what the log says of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from accord.pipeline.delta_log import WrittenFile
from accord.pipeline.storage import Storage
from accord.pipeline.tables import (
    ATTRIBUTES,
    PARTITION,
    AttributeColumn,
    Columns,
    safe_name,
)

ORDER: Final = ("channel", "received", "offset")  # in compacted files
GROUP_ROWS: Final = 65_536
# Pages of sorted files are small, so that few other rows are read, and only searched columns have
# bounds: reading the bounds of all columns took longer than the rows.
_PAGE_BYTES: Final = 16 << 10
_PAGE_ROWS: Final = 2_048
_SEARCHED: Final = ("offset", "number", "last_number", "channel", "received", "done")
_COUNTED: Final = (*_SEARCHED, "node", "queued", "payload_bytes")
_MAX_TEXT: Final = 64  # characters of a bound
_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)
_SAME_AGAIN: Final = (  # columns with recurring values
    "node", "channel", "publisher", "qos", "key", "content_type", "destination",
    "outcome", "policy", "detail", "count", "importance", "deadline_ms", "payload_bytes", "bytes",
    "attributes.key_value.key", "attributes.key_value.value.integer",
    "attributes.key_value.value.string", "attributes.key_value.value.float",
    "paths.key_value.key", "paths.key_value.value.list.element",
)  # fmt: skip
_GROWING: Final = ("offset", "number", "last_number", "received", "queued", "done", "sending_us")


def write_file(  # noqa: PLR0913
    storage: Storage,
    rows: pa.Table,
    *,
    table: str,
    day: str,
    node: str,
    columns: Columns,
    is_sorted: bool = False,
) -> WrittenFile:
    """Write a file durably under a unique name; it is not part of a table yet.

    The rows have attributes by their own names; `columns` are all columns of attributes that the
    table has.
    """
    first = pc.min(rows["offset"]).as_py()
    path = f"{PARTITION}={day}/{safe_name(node)}-{first:016d}-{uuid4().hex[:12]}.parquet"
    if PARTITION in rows.column_names:
        rows = rows.drop_columns([PARTITION])
    with storage.output(f"{table}/{path}") as stream:
        _write(stream, rows, columns, is_sorted=is_sorted)
    return WrittenFile(
        table=table,
        path=path,
        day=day,
        rows=len(rows),
        bytes=storage.size(f"{table}/{path}"),
        stats=stats_json(rows, columns),
    )


def renamed(rows: pa.Table, columns: Sequence[AttributeColumn]) -> pa.Table:
    """Rows with attributes by the names of their columns."""
    names = {each.attribute: each.name for each in columns}
    return rows.rename_columns([names.get(name, name) for name in rows.column_names])


def _write(stream: Any, rows: pa.Table, columns: Columns, *, is_sorted: bool) -> None:
    names = set(rows.column_names)
    own = [each for each in columns if each.name in names]
    repeating = [name for name in _SAME_AGAIN if name.partition(".")[0] in names]
    repeating += [each.name for each in own if each.kind == "string"]
    order = [pq.SortingColumn(rows.schema.get_field_index(name)) for name in ORDER]
    searched = [*_SEARCHED, *(each.name for each in own)]
    pq.write_table(
        rows,
        stream,
        row_group_size=GROUP_ROWS,
        compression="zstd" if is_sorted else "lz4",
        compression_level=1 if is_sorted else None,
        use_dictionary=repeating,
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _GROWING if name in names},
        write_page_index=True,
        write_statistics=[name for name in searched if name in names] if is_sorted else True,
        data_page_size=_PAGE_BYTES if is_sorted else None,
        max_rows_per_page=_PAGE_ROWS if is_sorted else None,
        sorting_columns=order if is_sorted else None,
        bloom_filter_options={"number": {"ndv": min(len(rows), GROUP_ROWS), "fpp": 0.01}}
        if is_sorted
        else None,
    )


def stats_json(rows: pa.Table, columns: Columns) -> str:
    """Delta's statistics of a file with these rows.

    A column of an attribute has some only if no row has the attribute in the map: so readers that
    go by a column's bounds never miss a value.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in _COUNTED:
        if name in rows.column_names:
            _bounds(rows[name], name, low, high)
            nulls[name] = rows[name].null_count
    if ATTRIBUTES in rows.column_names:
        nulls[ATTRIBUTES] = rows[ATTRIBUTES].null_count
        in_map = _keys(rows[ATTRIBUTES])
        for column in columns:
            if column.attribute in in_map:
                continue
            if column.name not in rows.column_names:
                nulls[column.name] = len(rows)
                continue
            nulls[column.name] = rows[column.name].null_count
            if column.kind != "boolean":
                _bounds(rows[column.name], column.name, low, high)
    stats = {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls}
    return msgspec.json.encode(stats).decode()


def _keys(attributes: pa.ChunkedArray) -> set[str]:
    found: set[str] = set()
    for chunk in attributes.chunks:
        if len(chunk):
            first, end = chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()
            found.update(pc.unique(chunk.keys[first:end]).to_pylist())
    return found


def _bounds(values: pa.ChunkedArray, name: str, low: dict[str, Any], high: dict[str, Any]) -> None:
    found = pc.min_max(values.cast(pa.int64()) if _is_time(values) else values)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is None:
        return
    if isinstance(least, str):
        above = upper_bound(most)
        if above is None:
            return  # no bounds known
        least, most = least[:_MAX_TEXT], above
    elif _is_time(values):
        least, most = _time(least), _time(most)
    low[name], high[name] = least, most


def _is_time(values: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_timestamp(values.type))


def _time(micros: int) -> str:
    moment = datetime.fromtimestamp(micros // 1_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{micros % 1_000_000:06d}Z"


def upper_bound(text: str) -> str | None:
    """A short text that is not below `text`; None if there is none."""
    if len(text) <= _MAX_TEXT:
        return text
    for index in range(_MAX_TEXT - 1, -1, -1):
        following = ord(text[index]) + 1
        if _SURROGATES[0] <= following <= _SURROGATES[1]:
            following = _SURROGATES[1] + 1
        if following <= _LAST_CHARACTER:
            return text[:index] + chr(following)
    return None
