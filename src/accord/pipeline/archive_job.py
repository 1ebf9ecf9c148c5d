"""The archive job: journal to tables by Structured Streaming, each record exactly once.

The manifest holds the archived offset. Each streaming query starts there with a checkpoint of its
own, which is only needed to run it. A query that fails is restarted with backoff: a transient
failure, such as a full disk, is waited out; a permanent one is reported.

One batch of the archive: ranges of journal offsets become files, and one manifest commit.

Tasks write the files of their slices and return their names (`slices`). The driver commits them to
the manifest in one step together with the new archived offset, and only if the archive ended
exactly where the batch starts. A batch that runs twice, even concurrently, is therefore recognised
as committed or refused, and the files its tasks wrote belong to no table.

Records that the journal retired before they were archived are gone: the batch starts after them,
and the manifest counts them.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from accord.core.queries.messages import StartPipeline
from accord.journal import retention
from accord.pipeline import register
from accord.pipeline.driver_lock import DriverLock, Holder
from accord.pipeline.journal_readers import check_same_journal, is_remote, open_journal
from accord.pipeline.manifest import Already, Manifest
from accord.pipeline.session import ARCHIVE_POOL, is_connect, java_process, use_pool
from accord.pipeline.slices import FORMAT, SliceOptions, decode_entries
from accord.pipeline.spark_errors import summary
from accord.pipeline.tables import EVENTS, LEDGER, LOST, FileEntry

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


READER: Final = "archive"  # reader name known to the journal


class BatchDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch added to the archive, which now holds everything before offset `archived`."""

    archived: int
    events: int = 0
    ledger_rows: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0
    channels: dict[str, tuple[int, int]] = {}  # events and payload bytes, where counted
    took_ms: int = 0


class Archiver(msgspec.Struct, frozen=True, kw_only=True):
    """The function applied to each batch; self-contained, as it may run in another Spark
    process.
    """

    node: str
    journal: str
    archive: str

    def __call__(self, slices: DataFrame, _batch: int) -> None:
        self.commit_batch(slices, Manifest(self.archive))

    def commit_batch(self, slices: DataFrame, manifest: Manifest) -> BatchDone | None:
        """Commit the batch; None if there was nothing to do or it was committed before."""
        began_s = time.monotonic()
        written = slices.collect()  # the tasks read and write here
        if not written:
            return None
        ranges = sorted((row.first, row.next) for row in written)
        assert all(here[1] == there[0] for here, there in pairwise(ranges)), ranges
        first, end = ranges[0][0], ranges[-1][1]
        added = [entry for row in written for entry in decode_entries(row.entries)]
        is_lost = self._is_retired(first, manifest)
        moved = {self.node: (first, end)}
        if isinstance(manifest.commit(added=added, moved=moved, lost=is_lost), Already):
            return None
        if not is_remote(self.journal):
            retention.register(self.journal, READER, end)
        return summed(added, end, round((time.monotonic() - began_s) * 1000))

    def _is_retired(self, first: int, manifest: Manifest) -> bool:
        """Whether the records missing before `first` are gone for good."""
        archived = manifest.snapshot().archived.get(self.node, 0)
        return archived < first and open_journal(self.journal).extent().first_offset >= first


def summed(entries: list[FileEntry], archived: int, took_ms: int) -> BatchDone:
    channels: dict[str, tuple[int, int]] = {}
    for entry in entries:
        for name, (events, size) in zip(entry.channels or (), entry.use, strict=False):
            known = channels.get(name, (0, 0))
            channels[name] = known[0] + events, known[1] + size
    files = [entry for entry in entries if entry.table != LOST]
    return BatchDone(
        archived=archived,
        events=sum(entry.rows for entry in files if entry.table == EVENTS),
        ledger_rows=sum(entry.rows for entry in files if entry.table == LEDGER),
        files=len(files),
        bytes=sum(entry.bytes for entry in files),
        lost=sum(entry.rows for entry in entries if entry.table == LOST),
        channels=channels,
        took_ms=took_ms,
    )


CHECKPOINTS: Final = "checkpoints"
_PAUSES_S: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
_POLL_S: Final = 1
_STABLE_S: Final = 10.0  # after which earlier failures no longer count


class ArchiveJob:
    """Runs until it is stopped or Java exits; `on_batch` is called from the job's own thread."""

    def __init__(
        self,
        spark: SparkSession,
        start: StartPipeline,
        manifest: Manifest,
        on_batch: Callable[[BatchDone], object] = lambda _: None,
    ) -> None:
        self.problem = ""  # last failure; cleared by the next successful batch
        self.is_broken = False  # Java has exited: a new process is needed
        self._spark = spark
        self._start = start
        self._manifest = manifest
        self._on_batch = on_batch
        self._archiver = Archiver(node=start.node, journal=start.journal, archive=start.archive)
        self._lock = DriverLock(start.work)
        self._stopping = threading.Event()
        self._working = threading.Lock()
        self._query: StreamingQuery | None = None
        self._failures = 0
        self._started = 0
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Abandon the current batch and stop; nothing is lost by that."""
        self._stopping.set()
        if self._query is not None:
            _end(self._query)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            if not self._lock.acquire(self._stopping, self._report_holder):
                return
        except OSError as error:
            self.problem, self.is_broken = summary(error), True
            return
        self.problem = ""
        try:
            self._lock.record(java_process(self._spark))
            while not (self._stopping.is_set() or self.is_broken):
                try:
                    self._stream()
                except Exception as error:  # from Spark, Py4J, the manifest or the journal
                    self._fail(error)
        finally:
            with self._working:  # a commit may be in progress although its query has been stopped
                self._lock.release()

    def _report_holder(self, holder: Holder) -> None:
        who = f"process {holder.process}" if holder.process else "another process"
        self.problem = f"waiting for {who}, which archives into {self._start.archive}"

    def _fail(self, error: Exception) -> None:
        if self._has_java_exited():
            self.is_broken = True
            self.problem = "Spark's Java process ended"
            return
        if self._stopping.is_set():
            return
        self.problem = summary(error)
        self._stopping.wait(_PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)])
        self._failures += 1

    def _stream(self) -> None:
        """Run one query to its end; raises what ended it."""
        register(self._spark)
        use_pool(self._spark, ARCHIVE_POOL)
        options = self._options()
        self._check(options)
        seen = self._manifest.snapshot().archived.get(options.node, 0)
        query = self._query = self._start_query(options)
        began_s = time.monotonic()
        try:
            while not (self._stopping.is_set() or query.awaitTermination(_POLL_S)):
                if is_connect(self._spark):
                    seen = self._check_progress(seen)
                if self.problem and time.monotonic() - began_s > _STABLE_S:
                    self.problem = ""
        finally:
            self._query = None
            _end(query)

    def _options(self) -> SliceOptions:
        start = self._start
        cores = 4 if is_connect(self._spark) else self._spark.sparkContext.defaultParallelism
        return SliceOptions(
            node=start.node,
            journal=start.journal,
            archive=start.archive,
            declared=start.declared,
            large_bytes=start.large_bytes,
            pieces=2 * cores,
        )

    def _check(self, options: SliceOptions) -> None:
        """Check what the source would also detect, but could report only as a failed query."""
        snapshot = self._manifest.snapshot()
        check_same_journal(open_journal(options.journal), options.journal, snapshot, options.node)
        if not is_remote(options.journal) and Path(options.journal).is_dir():
            retention.register(options.journal, READER, snapshot.archived.get(options.node, 0))

    def _start_query(self, options: SliceOptions) -> StreamingQuery:
        stream = self._spark.readStream.format(FORMAT).options(**options.to_spark()).load()
        every = f"{self._start.interval_ms} milliseconds"
        work = self._archiver if is_connect(self._spark) else self._run_batch
        return (
            stream.writeStream.foreachBatch(work)
            .option("checkpointLocation", self._new_checkpoint())
            .trigger(processingTime=every)
            .start()
        )

    def _new_checkpoint(self) -> str:
        """Create a checkpoint directory; the Java of a killed driver may still write to the
        previous one.
        """
        folder = Path(self._start.work) / CHECKPOINTS
        shutil.rmtree(folder, ignore_errors=True)
        self._started += 1
        return str(folder / f"{time.time_ns()}-{self._started}")

    def _run_batch(self, slices: DataFrame, _batch: int) -> None:
        with self._working:
            if not self._stopping.is_set():
                self._succeed(self._archiver.commit_batch(slices, self._manifest))

    def _succeed(self, done: BatchDone | None) -> None:
        self.problem = ""
        self._failures = 0
        if done is not None:
            self._on_batch(done)

    def _check_progress(self, seen: int) -> int:
        """Report what batches in other processes have done since the archive reached `seen`."""
        snapshot = self._manifest.snapshot()
        archived = snapshot.archived.get(self._start.node, 0)
        if archived > seen:
            added = [
                entry
                for entry in snapshot.files
                if entry.node == self._start.node and entry.first_offset >= seen
            ]
            self._succeed(summed(added, archived, 0))
        return archived

    def _has_java_exited(self) -> bool:
        if is_connect(self._spark):
            return False
        try:
            jvm = self._spark.sparkContext._jvm
            return jvm is None or bool(self._spark.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError, AttributeError):
            return True


def _end(query: StreamingQuery) -> None:
    with suppress(Exception):  # the query, or Java, has ended
        query.stop()
