"""Background maintenance of the archive, one step at a time, at low priority.

Compacts small files, expires old days and removes orphaned files. Compaction runs in a Spark task,
so that this process stays responsive.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from accord.core.model.errors import AccordError
from accord.pipeline.compaction import choose, compact
from accord.pipeline.manifest import Manifest
from accord.pipeline.retention import GRACE_MS, expire, remove_orphans
from accord.pipeline.session import use_pool
from accord.pipeline.spark_errors import summary
from accord.pipeline.tables import FileEntry

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
            _log.info("retention: %d files", count)

    def _remove_orphans(self) -> None:
        if count := remove_orphans(self._manifest, now_ms() - GRACE_MS):
            _log.info("removed %d orphaned files", count)


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
