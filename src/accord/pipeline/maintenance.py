"""Background maintenance of the archive, one step at a time, at low priority.

Compaction merges small files into few large, sorted ones, so queries open fewer. It is size-tiered,
as in LSM stores: files merge with others of about their size, so a row is rewritten only when its
file grows several-fold, not whenever new data arrives. When a day is over, its remaining small
files merge too. A full file is left alone. A merge holds all its rows in memory, which
`MAX_RAW_BYTES` bounds. It runs in a Spark task, so that commits in this process don't wait for it,
and is committed as one change: a reader sees the inputs or the result.

Retention removes whole days, which changes nothing but the log. A file removed from a table stays
for hours (`delta_log.KEPT_H`), because a query may be reading it. A file that was never part of one
was left by a crash or is about to be committed: vacuum deletes only those that are as old.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from accord.core.model.errors import AccordError
from accord.pipeline.delta_log import (
    KEPT_H,
    Archive,
    DeltaLog,
    TableSnapshot,
    WrittenFile,
    now_ms,
)
from accord.pipeline.parquet_files import ORDER, write_file
from accord.pipeline.session import use_pool
from accord.pipeline.spark_errors import summary
from accord.pipeline.storage import Storage
from accord.pipeline.tables import (
    EVENTS,
    FORMER_PAYLOADS,
    PARTITION,
    PAYLOADS,
    UNREAD,
    Columns,
    TableFile,
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
_SMALLEST: Final = 16 << 10  # smaller files all count as one size
_STEP: Final = 6  # size ratio between tiers
_SETTLING_MS: Final = 900_000  # after a day's end, until nothing more arrives for it
_GRACE_MS: Final = KEPT_H * 3_600_000


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one table, day and node that are to become one; `columns` are the table's."""

    archive: str
    table: str
    columns: Columns
    files: tuple[TableFile, ...]


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """The file that replaces the first so many of the files."""

    file: WrittenFile
    count: int


def choose(snapshot: TableSnapshot, now_ms: int) -> list[list[TableFile]]:
    """Choose lists of files to merge, those with the smallest files first."""
    found: list[list[TableFile]] = []
    open_files = sorted(filter(_is_open, snapshot.files), key=_merge_key)
    for _, files in groupby(open_files, key=_merge_key):
        found += _choose_of(sorted(files, key=lambda file: file.first_offset), now_ms)
    return sorted(found, key=lambda files: sum(file.bytes for file in files) / len(files))


def _is_open(file: TableFile) -> bool:
    """Whether the file may still grow."""
    return file.rows <= MAX_ROWS // 2 and file.bytes <= MAX_BYTES // 2


def _merge_key(file: TableFile) -> tuple[str, str]:
    return file.day, file.node


def _choose_of(files: list[TableFile], now_ms: int) -> Iterator[list[TableFile]]:
    if day_end_ms(files[0].day) + _SETTLING_MS < now_ms:
        yield from _fitting(files, least=2)
        return
    by_size: dict[int, list[TableFile]] = {}
    for file in files:
        by_size.setdefault(_size(file), []).append(file)
    for alike in by_size.values():
        yield from _fitting(alike, least=FAN_IN)


def _size(file: TableFile) -> int:
    """Size tier of a file."""
    size, limit = 0, _SMALLEST
    while file.bytes > limit:
        size, limit = size + 1, limit * _STEP
    return size


def _fitting(files: list[TableFile], least: int) -> Iterator[list[TableFile]]:
    """Split into runs, in order, that fit into one file; at least `least` files if not full."""
    group: list[TableFile] = []
    for file in files:
        if group and not _fits([*group, file]):
            if len(group) > 1:
                yield group
            group = []
        group.append(file)
    if len(group) >= least:
        yield group


def _fits(files: list[TableFile]) -> bool:
    return (
        len(files) <= MAX_FILES
        and sum(file.rows for file in files) <= MAX_ROWS
        and sum(file.bytes for file in files) <= MAX_BYTES
    )


def compact(job: Compaction) -> Compacted | None:
    """Write the file that replaces these, without committing it; None if there is no room for two.

    TablesError if they can't be merged.
    """
    storage = Storage(job.archive)
    schema = arrow_events(job.columns) if job.table == EVENTS else arrow_ledger()
    schema = schema.remove(schema.get_field_index(PARTITION))
    parts: list[pa.Table] = []
    raw = 0
    for file in job.files:
        with _opened(storage, f"{job.table}/{file.path}") as source:
            meta = source.metadata
            raw += sum(meta.row_group(n).total_byte_size for n in range(meta.num_row_groups))
            if parts and raw > MAX_RAW_BYTES:
                break
            parts.append(conform(source.read(), schema))
    if len(parts) < min(2, len(job.files)):
        return None
    rows = pa.concat_tables(parts).combine_chunks()
    chosen = job.files[: len(parts)]
    parts.clear()
    if len(rows) != sum(file.rows for file in chosen):
        raise TablesError(f"{len(rows)} rows in {len(chosen)} files, the log says otherwise")
    rows = rows.sort_by([(name, "ascending") for name in ORDER])
    merged = write_file(
        storage,
        rows,
        table=job.table,
        day=chosen[0].day,
        node=chosen[0].node,
        columns=job.columns,
        is_sorted=True,
    )
    return Compacted(file=merged, count=len(chosen))


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """These rows with just the columns of `schema`; null where there are none."""
    missing = [field for field in schema if field.name not in rows.column_names]
    for field in missing:
        rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows.select(schema.names).cast(schema)


def _opened(storage: Storage, path: str) -> pq.ParquetFile:
    try:
        # `read_table` would derive columns from the path.
        return pq.ParquetFile(path, filesystem=storage.filesystem)
    except (OSError, pa.ArrowInvalid) as error:
        raise TablesError(f"{path} can't be read: {error}") from error


def expire(archive: Archive, before_ms: int) -> int:
    """Remove all days from the tables that had ended by then; returns the number of files."""
    count = 0
    for table in archive.tables:
        files = [file for file in table.snapshot().files if day_end_ms(file.day) <= before_ms]
        if files:
            table.remove(files)
            count += len(files)
    return count


def remove_payloads(archive: Archive, before_ms: int) -> int:
    """Delete the large payloads of days that had ended by then; returns the number of days."""
    days = {file.day for file in archive.events.snapshot().files}
    count = 0
    for top in (PAYLOADS, FORMER_PAYLOADS):
        for name in archive.storage.folders(top):
            day = name.removeprefix(f"{PARTITION}=")
            if day not in days and day_end_ms(day) <= before_ms:
                archive.storage.remove_folder(f"{top}/{name}")
                count += 1
    return count


def remove_unread(archive: Archive, before_ms: int) -> None:
    """Delete what had been put aside by then, because it is neither event nor ledger."""
    files = archive.storage.filesystem
    for each in files.get_file_info(pafs.FileSelector(UNREAD, allow_not_found=True)):
        if each.mtime_ns is not None and each.mtime_ns // 1_000_000 < before_ms:
            files.delete_file(each.path)


POOL: Final = "maintenance"
_LOOK_S: Final = 5.0
_RETENTION_S: Final = 60.0
_VACUUM_S: Final = 900.0
_PAUSE_S: Final = 60.0  # after a failure
_log: Final = logging.getLogger(__name__)
_compacted: Final = msgspec.msgpack.Decoder(Compacted | None)
_compaction: Final = msgspec.msgpack.Decoder(Compaction)


class Maintenance:
    """The maintenance thread; each of the `also` jobs decides itself when it is due."""

    def __init__(
        self,
        spark: SparkSession,
        archive: Archive,
        *,
        retain_ms: int | None,
        also: Sequence[Callable[[], object]] = (),
    ) -> None:
        self.compactions = 0
        self._failed: dict[str, set[str]] = {}  # by table: files that could not be compacted
        self._spark = spark
        self._archive = archive
        self._retain_ms = retain_ms
        self._also = also
        self._stopping = threading.Event()
        self._due_s: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 0.0) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        use_pool(self._spark, POOL)
        while not self._stopping.wait(_LOOK_S):
            for table in self._archive.tables:
                self._try(f"compaction of {table.name}", 0.0, partial(self._compact, table))
            if self._retain_ms is not None:
                self._try("retention", _RETENTION_S, self._expire)
            self._try("vacuum", _VACUUM_S, self._vacuum)
            for number, work in enumerate(self._also):
                self._try(f"other work {number}", 0.0, work)

    def _try(self, name: str, every_s: float, work: Callable[[], object]) -> None:
        """Run one step; a failure is logged, and the step retried later."""
        now_s = time.monotonic()
        if self._stopping.is_set() or now_s < self._due_s.get(name, 0.0):
            return
        self._due_s[name] = now_s + every_s
        try:
            work()
        except Exception as error:  # from Spark, Py4J or the disk: the archive continues without it
            if not self._stopping.is_set():
                is_ours = isinstance(error, AccordError)
                _log.warning("%s: %s", name, summary(error), exc_info=not is_ours)
                self._due_s[name] = now_s + _PAUSE_S

    def _compact(self, table: DeltaLog) -> None:
        """Compact as long as it is worthwhile."""
        while not self._stopping.is_set():
            snapshot = table.snapshot()
            failed = self._failed.setdefault(table.name, set())
            failed.intersection_update(_paths(snapshot.files))
            chosen = choose(snapshot, now_ms())
            files = next((each for each in chosen if failed.isdisjoint(_paths(each))), None)
            if files is None:
                return
            job = Compaction(
                archive=self._archive.place,
                table=table.name,
                columns=snapshot.columns,
                files=tuple(files),
            )
            try:
                if (done := compact_on(self._spark, job)) is None:
                    failed.update(_paths(files))  # too large to merge
                    continue
                table.replace(files[: done.count], [done.file])
            except Exception:
                # One of them may be damaged and must not delay the others.
                failed.update(_paths(files))
                raise
            self.compactions += 1

    def _expire(self) -> None:
        assert self._retain_ms is not None
        before_ms = now_ms() - self._retain_ms
        if count := expire(self._archive, before_ms):
            _log.info("retention: %d files removed", count)
        remove_payloads(self._archive, before_ms - _GRACE_MS)
        remove_unread(self._archive, before_ms)

    def _vacuum(self) -> None:
        for table in self._archive.tables:
            if count := table.vacuum():
                _log.info("vacuum: %d files of %s deleted", count, table.name)


def _paths(files: Iterable[TableFile]) -> list[str]:
    return [file.path for file in files]


def compact_on(spark: SparkSession, job: Compaction) -> Compacted | None:
    """Run `compact` in a task."""
    work = partial(_compact_there, msgspec.msgpack.encode(job))
    rows = spark.range(0, 1, 1, 1).mapInArrow(work, "done binary").collect()
    done: Compacted | None = _compacted.decode(rows[0].done)
    return done


def _compact_there(job: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        done = msgspec.msgpack.encode(compact(_compaction.decode(job)))
        yield pa.RecordBatch.from_pydict({"done": [done]})
