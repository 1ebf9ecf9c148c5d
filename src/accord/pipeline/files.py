"""The Parquet files of the tables: how they are written, and their metadata in the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from accord.pipeline.durable_files import make_directory, sync_directory, sync_file
from accord.pipeline.tables import (
    EVENTS,
    MAX_CHANNELS,
    FileEntry,
    Stat,
    directory_of,
    safe_name,
)

ORDER: Final = ("channel", "received", "offset")  # in compacted files
GROUP_ROWS: Final = 65_536
# Pages of sorted files are small, so that few other rows are read, and only searched columns have
# bounds: reading the bounds of all columns took longer than the rows.
_PAGE_BYTES: Final = 16 << 10
_PAGE_ROWS: Final = 2_048
_SEARCHED: Final = ("offset", "number", "channel", "received")
_MAX_TEXT: Final = 64  # characters of a bound
_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)
_SAME_AGAIN: Final = (  # columns with recurring values
    "node", "channel", "publisher", "qos", "key", "content_type", "group", "day", "destination",
    "outcome", "policy", "detail", "count", "importance", "deadline_ms", "payload_bytes", "bytes",
    "attributes.key_value.key", "attributes.key_value.value.integer",
    "attributes.key_value.value.string", "attributes.key_value.value.float",
    "paths.key_value.key", "paths.key_value.value.list.element",
)  # fmt: skip
_GROWING: Final = ("offset", "number", "received", "queued", "done", "sending_us")


def write_file(  # noqa: PLR0913
    archive: Path,
    rows: pa.Table,
    *,
    table: str,
    day: str,
    group: str,
    node: str,
    declared: Mapping[str, str],
    is_sorted: bool = False,
) -> FileEntry:
    """Write a file durably under a unique name; it is not part of a table yet."""
    folder = directory_of(table, day, group)
    first = pc.min(rows["offset"]).as_py()
    path = f"{folder}/{safe_name(node)}-{first:016d}-{uuid4().hex[:12]}.parquet"
    make_directory(archive / folder)
    try:
        _write(archive / path, rows, declared, is_sorted=is_sorted)
    except FileNotFoundError:  # the directory was empty and has just been removed
        make_directory(archive / folder)
        _write(archive / path, rows, declared, is_sorted=is_sorted)
    sync_file(archive / path)
    sync_directory(archive / folder)
    size = (archive / path).stat().st_size
    channels = _channels(rows["channel"])
    is_counted = table == EVENTS and channels is not None and not is_sorted
    return FileEntry(
        table=table,
        path=path,
        day=day,
        group=group,
        rows=len(rows),
        bytes=size,
        raw_bytes=rows.nbytes,
        node=node,
        declared=dict(declared),
        channels=channels,
        use=_use(rows) if is_counted else (),
        unread=rows["attributes"].null_count if table == EVENTS else 0,
        **_bounds(rows, is_ledger=table != EVENTS),
        stats=stats_of(rows, declared),
    )


def _write(path: Path, rows: pa.Table, declared: Mapping[str, str], *, is_sorted: bool) -> None:
    names = set(rows.column_names)
    repeating = [name for name in _SAME_AGAIN if name.partition(".")[0] in names]
    repeating += [name for name, kind in declared.items() if kind == "string"]
    order = [pq.SortingColumn(rows.schema.get_field_index(name)) for name in ORDER]
    pq.write_table(
        rows,
        path,
        row_group_size=GROUP_ROWS,
        compression="zstd" if is_sorted else "lz4",
        compression_level=1 if is_sorted else None,
        use_dictionary=repeating,
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _GROWING if name in names},
        write_page_index=True,
        write_statistics=[*_SEARCHED, *declared] if is_sorted else True,
        data_page_size=_PAGE_BYTES if is_sorted else None,
        max_rows_per_page=_PAGE_ROWS if is_sorted else None,
        sorting_columns=order if is_sorted else None,
        bloom_filter_options={"number": {"ndv": min(len(rows), GROUP_ROWS), "fpp": 0.01}}
        if is_sorted
        else None,
    )


def _use(rows: pa.Table) -> tuple[tuple[int, int], ...]:
    """Events and payload bytes of each channel, in the order of their names."""
    counted = rows.select(["channel", "payload_bytes"]).group_by("channel")
    found = counted.aggregate([("payload_bytes", "count"), ("payload_bytes", "sum")])
    names, events, sizes = (found[name].to_pylist() for name in found.column_names)
    by_name = sorted(zip(names, events, sizes, strict=True))
    return tuple((count, size) for _, count, size in by_name)


def _channels(channels: pa.ChunkedArray) -> tuple[str, ...] | None:
    found = channels.unique()
    return tuple(sorted(found.to_pylist())) if len(found) <= MAX_CHANNELS else None


def _bounds(rows: pa.Table, *, is_ledger: bool) -> dict[str, Any]:
    times = [
        _min_max(rows[name]) for name in ("received", "queued", "done") if name in rows.column_names
    ]
    offsets = _min_max(rows["offset"])
    numbers = rows["number"]
    if is_ledger:
        is_numbered = pc.greater(numbers, 0)
        numbers = pc.filter(numbers, is_numbered)
        last = pc.add(numbers, pc.subtract(pc.filter(rows["count"], is_numbered), 1))
        numbers = pa.chunked_array([*numbers.chunks, *last.chunks], pa.int64())
    first_number, last_number = _min_max(numbers)
    return {
        "first_ms": min(low for low, _ in times) // 1000,
        "last_ms": max(high for _, high in times) // 1000,
        "first_offset": offsets[0],
        "last_offset": offsets[1],
        "first_number": first_number or 0,
        "last_number": last_number or 0,
    }


def _min_max(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Bounds of a column; times in microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def stats_of(rows: pa.Table, declared: Mapping[str, str]) -> dict[str, tuple[Stat, Stat]]:
    stats: dict[str, tuple[Stat, Stat]] = {}
    for name in declared:
        low, high = _min_max(rows[name])
        if isinstance(low, str) and isinstance(high, str):
            above = upper_bound(high)
            if above is None:
                continue  # no bounds known
            low, high = low[:_MAX_TEXT], above
        stats[name] = low, high
    return stats


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
