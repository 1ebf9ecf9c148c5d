"""Compaction: merges small files of the archive into few large, sorted ones, so queries open fewer.

Size-tiered, as in LSM stores: files merge with others of about their size, so a row is rewritten
only when its file grows several-fold, not whenever new data arrives. When a day is over, its
remaining small files merge too. A full file is left alone. A merge holds all its rows in memory,
which `MAX_RAW_BYTES` bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from accord.pipeline.files import ORDER, write_file
from accord.pipeline.manifest import Snapshot
from accord.pipeline.tables import (
    EVENTS,
    FileEntry,
    TablesError,
    arrow_events,
    arrow_ledger,
    day_end_ms,
)

MAX_ROWS: Final = 1_000_000
MAX_BYTES: Final = 256 << 20
MAX_RAW_BYTES: Final = 128 << 20  # in memory; sorting takes about three times as much
MAX_FILES: Final = 1_000
FAN_IN: Final = 8
_SMALLEST: Final = 64 << 10  # in memory; smaller files all count as one size
_STEP: Final = 6  # size ratio between tiers
_SETTLING_MS: Final = 900_000  # after a day's end, until nothing more arrives for it


def choose(snapshot: Snapshot, now_ms: int) -> list[list[FileEntry]]:
    """Choose lists of files to merge, those with the smallest files first."""
    found: list[list[FileEntry]] = []
    open_files = sorted(filter(_is_open, snapshot.files), key=_merge_key)
    for _, files in groupby(open_files, key=_merge_key):
        found += _choose_of(sorted(files, key=lambda file: file.first_offset), now_ms)
    return sorted(found, key=lambda files: sum(file.raw_bytes for file in files) / len(files))


def _is_open(file: FileEntry) -> bool:
    """Whether the file may still grow."""
    return (
        file.rows <= MAX_ROWS // 2
        and file.bytes <= MAX_BYTES // 2
        and file.raw_bytes <= MAX_RAW_BYTES // 2
    )


def _merge_key(file: FileEntry) -> tuple[str, str, str, str, tuple[tuple[str, str], ...]]:
    """Merge key: only files with equal keys merge."""
    declared = tuple(sorted(file.declared.items()))
    return file.table, file.day, file.group, file.node, declared


def _choose_of(files: list[FileEntry], now_ms: int) -> Iterator[list[FileEntry]]:
    if day_end_ms(files[0].day) + _SETTLING_MS < now_ms:
        yield from _fitting(files, least=2)
        return
    by_size: dict[int, list[FileEntry]] = {}
    for file in files:
        by_size.setdefault(_size(file), []).append(file)
    for alike in by_size.values():
        yield from _fitting(alike, least=FAN_IN)


def _size(file: FileEntry) -> int:
    """Size tier of a file."""
    size, limit = 0, _SMALLEST
    while file.raw_bytes > limit:
        size, limit = size + 1, limit * _STEP
    return size


def _fitting(files: list[FileEntry], least: int) -> Iterator[list[FileEntry]]:
    """Split into runs, in order, that fit into one file; at least `least` files if not full."""
    group: list[FileEntry] = []
    for file in files:
        if group and not _fits([*group, file]):
            if len(group) > 1:
                yield group
            group = []
        group.append(file)
    if len(group) >= least:
        yield group


def _fits(files: list[FileEntry]) -> bool:
    return (
        len(files) <= MAX_FILES
        and sum(file.rows for file in files) <= MAX_ROWS
        and sum(file.bytes for file in files) <= MAX_BYTES
        and sum(file.raw_bytes for file in files) <= MAX_RAW_BYTES
    )


def compact(archive: Path | str, files: Sequence[FileEntry]) -> list[FileEntry]:
    """Write the file that replaces `files`, without committing it.

    Commit it with the paths of `files` as removed. TablesError if they can't be merged.
    """
    first = files[0]
    if any(_merge_key(file) != _merge_key(first) for file in files):
        raise TablesError("expected files of one table, day, group, node and declaration")
    schema = arrow_events(first.declared) if first.table == EVENTS else arrow_ledger()
    parts = [_read(Path(archive), file, schema) for file in files]
    rows = pa.concat_tables(parts).combine_chunks()
    del parts
    if len(rows) != sum(file.rows for file in files):
        raise TablesError(f"{len(rows)} rows in {len(files)} files, the manifest says otherwise")
    rows = rows.sort_by([(name, "ascending") for name in ORDER])
    merged = write_file(
        Path(archive),
        rows,
        table=first.table,
        day=first.day,
        group=first.group,
        node=first.node,
        declared=first.declared,
        is_sorted=True,
    )
    return [merged]


def _read(archive: Path, file: FileEntry, schema: pa.Schema) -> pa.Table:
    try:
        # `read_table` would derive columns from the path.
        with pq.ParquetFile(archive / file.path) as source:
            return source.read().select(schema.names).cast(schema)
    except (OSError, pa.ArrowInvalid, KeyError) as error:
        raise TablesError(f"{file.path} can't be read: {error}") from error
