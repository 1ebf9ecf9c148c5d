"""Background maintenance of the archive, one step at a time, at low priority.

Compacts small files, expires old days and removes orphaned files. Compaction runs in a Spark task,
so that this process stays responsive.

Retention: expires old days and removes orphaned files.

A file removed from the tables stays for a grace period, because a query may be reading it. A file
that was never part of them was left by a crash or is about to be committed, so only old ones are
removed, and while the manifest is locked.

Compaction: merges small files of the archive into few large, sorted ones, so queries open fewer.

Size-tiered, as in LSM stores: files merge with others of about their size, so a row is rewritten
only when its file grows several-fold, not whenever new data arrives. When a day is over, its
remaining small files merge too. A full file is left alone. A merge holds all its rows in memory,
which `MAX_RAW_BYTES` bounds.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from accord.core.model.errors import AccordError
from accord.pipeline.durable_files import UNFINISHED
from accord.pipeline.files import ORDER, write_file
from accord.pipeline.manifest import GRACE_MS, Manifest, Snapshot
from accord.pipeline.session import use_pool
from accord.pipeline.spark_errors import summary
from accord.pipeline.tables import (
    EVENTS,
    LEDGER,
    MANIFEST,
    PAYLOADS,
    UNREAD,
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


__all__ = ["GRACE_MS", "expire", "remove_orphans"]

_AT_ONCE: Final = 500  # files deleted per lock


def expire(manifest: Manifest, before_ms: int) -> int:
    """Remove all days from the tables that had ended by then; returns the number of files."""
    removed = [file.path for file in manifest.snapshot().files if day_end_ms(file.day) <= before_ms]
    if removed:
        manifest.commit(removed=removed)
    for path in (manifest.archive / UNREAD).glob("*"):
        if _is_older(path, before_ms):
            path.unlink(missing_ok=True)
    return len(removed)


def remove_orphans(manifest: Manifest, older_than_ms: int) -> int:
    """Delete files that left the tables before that time, or were written before and never in them.

    Payloads are deleted with the last file of their day.
    """
    count = 0
    candidates = _candidates(manifest.archive, older_than_ms)
    while some := list(islice(candidates, _AT_ONCE)):
        with manifest.lock():
            snapshot = manifest.snapshot()
            keeping = _Keeping(snapshot, older_than_ms)
            for path in some:
                if not keeping.keeps(path):
                    with suppress(FileNotFoundError):
                        (manifest.archive / path).unlink()
                        count += 1
    _remove_empty(manifest.archive, older_than_ms)
    return count


class _Keeping:
    """The files to keep, by their path in the archive."""

    def __init__(self, snapshot: Snapshot, older_than_ms: int) -> None:
        self._files = {file.path for file in snapshot.files}
        self._readable = {path for path, ms in snapshot.removed.items() if ms >= older_than_ms}
        self._days = {
            _day_of(path)
            for path in (*self._files, *self._readable)
            if path.startswith(f"{EVENTS}/")
        }

    def keeps(self, path: str) -> bool:
        if path.startswith(f"{PAYLOADS}/"):
            return _day_of(path) in self._days
        if path.startswith((f"{EVENTS}/", f"{LEDGER}/")):
            return path in self._files or path in self._readable
        return False


def _day_of(path: str) -> str:
    return path.split("/")[1].removeprefix("day=")


def _candidates(archive: Path, older_than_ms: int) -> Iterator[str]:
    """All files that are old enough, including temporary ones in the manifest's directory."""
    for top in (EVENTS, LEDGER, PAYLOADS, MANIFEST):
        for folder, _, names in os.walk(archive / top):
            for name in names:
                path = Path(folder) / name
                if top == MANIFEST and not name.startswith(UNFINISHED):
                    continue
                if _is_older(path, older_than_ms):
                    yield str(path.relative_to(archive))


def _is_older(path: Path, ms: int) -> bool:
    try:
        return path.stat().st_mtime_ns // 1_000_000 < ms
    except FileNotFoundError:
        return False


def _remove_empty(archive: Path, older_than_ms: int) -> None:
    """Remove empty directories of days and groups, unless a file is just being added."""
    for top in (EVENTS, LEDGER, PAYLOADS):
        for folder, _, _ in os.walk(archive / top, topdown=False):
            path = Path(folder)
            if path != archive / top and _is_older(path, older_than_ms):
                with suppress(OSError):  # not empty
                    path.rmdir()


POOL: Final = "housekeeping"
_LOOK_S: Final = 5.0
_RETENTION_S: Final = 60.0
_ORPHANS_S: Final = 300.0
_PAUSE_S: Final = 60.0  # after a failure
_log: Final = logging.getLogger(__name__)
_entries: Final = msgspec.msgpack.Decoder(list[FileEntry])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Housekeeping:
    """The maintenance thread; each of the `also` jobs decides itself when it is due."""

    def __init__(
        self,
        spark: SparkSession,
        manifest: Manifest,
        *,
        retain_ms: int | None,
        also: Sequence[Callable[[], object]] = (),
    ) -> None:
        self.compactions = 0
        self._failed: set[str] = set()  # files that could not be compacted
        self._spark = spark
        self._manifest = manifest
        self._retain_ms = retain_ms
        self._also = also
        self._stopping = threading.Event()
        self._due_s: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 0.0) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        use_pool(self._spark, POOL)
        while not self._stopping.wait(_LOOK_S):
            self._try("compaction", 0.0, self._compact)
            if self._retain_ms is not None:
                self._try("retention", _RETENTION_S, self._expire)
            self._try("orphans", _ORPHANS_S, self._remove_orphans)
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
                _log.warning("%s: %s", name, summary(error), exc_info=not _is_ours(error))
                self._due_s[name] = now_s + _PAUSE_S

    def _compact(self) -> None:
        """Compact as long as it is worthwhile."""
        while not self._stopping.is_set():
            chosen = choose(self._manifest.snapshot(), now_ms())
            files = next((each for each in chosen if self._failed.isdisjoint(paths_of(each))), None)
            if files is None:
                return
            try:
                added = compact_on(self._spark, str(self._manifest.archive), files)
                self._manifest.commit(added=added, removed=paths_of(files))
            except Exception:
                # One of them may be damaged and must not delay the others.
                self._failed.update(paths_of(files))
                raise
            self.compactions += 1

    def _expire(self) -> None:
        assert self._retain_ms is not None
        if count := expire(self._manifest, now_ms() - self._retain_ms):
            _log.info("retention: %d files removed", count)

    def _remove_orphans(self) -> None:
        if count := remove_orphans(self._manifest, now_ms() - GRACE_MS):
            _log.info("orphaned files: %d removed", count)


def paths_of(files: Sequence[FileEntry]) -> list[str]:
    return [file.path for file in files]


def compact_on(spark: SparkSession, archive: str, files: Sequence[FileEntry]) -> list[FileEntry]:
    """Run `compaction.compact` in a task."""
    work = partial(_compact_there, archive, msgspec.msgpack.encode(list(files)))
    rows = spark.range(0, 1, 1, 1).mapInArrow(work, "entries binary").collect()
    return [entry for row in rows for entry in _entries.decode(row.entries)]


def _compact_there(
    archive: str, files: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        added = compact(archive, _entries.decode(files))
        yield pa.RecordBatch.from_pydict({"entries": [msgspec.msgpack.encode(added)]})


def _is_ours(error: Exception) -> bool:
    return isinstance(error, AccordError)
