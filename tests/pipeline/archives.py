"""Archives for tests: made of journals, or of files that are only told of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from accord.pipeline.delta_log import Archive, DeltaLog, JournalPart, WrittenFile
from accord.pipeline.journal_sink import SliceDone, SliceJob, commit_batch, write_slice
from accord.pipeline.tables import TableFile

NODE = "denver"
DAY = "2025-11-16"


def slice_job(
    folder: Path,
    first: int,
    end: int,
    *,
    archive: Archive | None = None,
    declared: Mapping[str, str] | None = None,
    **more: Any,
) -> SliceJob:
    """Of the journal in this folder, which the archive beside it is made of."""
    archive = archive or Archive(folder / "archive", [NODE])
    wanted = archive.events.columns(declared or {})
    fields: dict[str, Any] = {
        "node": NODE,
        "journal": str(folder / "journal"),
        "archive": archive.place,
        "columns": archive.events.snapshot().columns,
        "declared": wanted,
    }
    return SliceJob(first=first, next=end, **fields | more)


def archive_slices(
    folder: Path, *ends: int, archive: Archive | None = None, **options: Any
) -> Archive:
    """The archive of the journal in this folder, a batch up to each of the ends."""
    archive = archive or Archive(folder / "archive", [NODE])
    for first, end in pairwise((archive.archived(NODE), *ends)):
        job = slice_job(folder, first, end, archive=archive, **options)
        assert commit_batch([write_slice(job)], archive) is not None
    return archive


def new_file(name: str, *, table: str = "events", **stats: Any) -> WrittenFile:
    """A file that is told of, of one row; it need not exist."""
    values: dict[str, Any] = {"node": NODE, "offset": 0} | stats
    told = {"numRecords": 1, "minValues": values, "maxValues": values, "nullCount": {}}
    return WrittenFile(
        table=table,
        path=f"day={DAY}/{name}.parquet",
        day=DAY,
        rows=1,
        bytes=1,
        stats=msgspec.json.encode(told).decode(),
    )


def part(first: int, end: int, *names: str, node: str = NODE, lost: int = 0) -> JournalPart:
    files = [new_file(name, offset=first, node=node) for name in names]
    return JournalPart(node=node, first=first, end=end, files=files, lost=lost)


def names(table: DeltaLog) -> list[str]:
    """Of the files that are part of the table."""
    return sorted(Path(file.path).stem for file in table.snapshot().files)


def rows(
    archive: Archive, table: str, files: Sequence[TableFile | WrittenFile]
) -> list[dict[str, Any]]:
    """All rows of these files, by offset and number."""
    found = [row for file in files for row in _read(archive, table, file.path).to_pylist()]
    return sorted(found, key=lambda row: (row["offset"], row["number"] or 0))


def read(archive: Archive, table: DeltaLog) -> list[dict[str, Any]]:
    return rows(archive, table.name, table.snapshot().files)


def written(archive: Archive, done: SliceDone, table: str = "events") -> list[dict[str, Any]]:
    return rows(archive, table, [file for file in done.files if file.table == table])


def _read(archive: Archive, table: str, path: str) -> pa.Table:
    with pq.ParquetFile(f"{table}/{path}", filesystem=archive.storage.filesystem) as source:
        return source.read()


def log_entries(table: Path) -> Iterator[Path]:
    yield from sorted((table / "_delta_log").glob("[0-9]*.json"))
