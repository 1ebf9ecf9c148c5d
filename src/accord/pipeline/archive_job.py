"""The archive job: journals to tables by Structured Streaming, each record exactly once.

The tables hold the archived offsets. Each streaming query starts there with a checkpoint of its
own, which is only needed to run it. A query that fails is restarted with backoff: a transient
failure, such as a full disk, is waited out; a permanent one is reported.

Tasks write the files of their slices and return what they wrote; the driver commits that, and only
if the tables end exactly where the batch starts (`journal_sink`). A batch that runs twice, even
concurrently, is therefore recognised as committed or refused.

A journal of a site that can't be read, or is not the one that the archive was made from, is left
out of the stream, which starts again when it has joined.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from accord.core.model.errors import AccordError
from accord.core.queries.messages import StartPipeline
from accord.journal import retention
from accord.journal.retention import ARCHIVE
from accord.pipeline import register
from accord.pipeline.delta_log import Archive
from accord.pipeline.driver_lock import DriverLock, Holder
from accord.pipeline.journal_readers import check_same_journal, is_remote
from accord.pipeline.journal_sink import BatchDone, NodeBatch, commit_batch
from accord.pipeline.journal_source import SliceOptions, decode_done
from accord.pipeline.session import ARCHIVE_POOL, is_connect, java_process, use_pool
from accord.pipeline.spark_errors import summary
from accord.pipeline.spark_source import FORMAT
from accord.pipeline.tables import EVENTS, LEDGER, TableFile

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Archiver(msgspec.Struct, frozen=True, kw_only=True):
    """The function applied to each batch; self-contained, as it may run in another Spark
    process.
    """

    journals: dict[str, str]
    archive: str

    def __call__(self, slices: DataFrame, _batch: int) -> None:
        self.commit_batch(slices, Archive(self.archive, tuple(self.journals)))

    def commit_batch(self, slices: DataFrame, archive: Archive) -> BatchDone | None:
        """Commit the batch; None if there was nothing to do or it was committed before."""
        written = [decode_done(row.done) for row in slices.collect()]  # the tasks read and write
        done = commit_batch(written, archive) if written else None
        if done is not None:
            for node, archived in done.archived.items():
                if not is_remote(self.journals[node]):
                    retention.register(self.journals[node], ARCHIVE, archived)
        return done


CHECKPOINTS: Final = "checkpoints"
_PAUSES_S: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
_POLL_S: Final = 1
_AGAIN_S: Final = 5.0  # between two looks at journals that are left out
_STABLE_S: Final = 10.0  # after which earlier failures no longer count


class ArchiveJob:
    """Runs until it is stopped or Java exits; `on_batch` is called from the job's own thread."""

    def __init__(
        self,
        spark: SparkSession,
        start: StartPipeline,
        archive: Archive,
        on_batch: Callable[[BatchDone], object] = lambda _: None,
    ) -> None:
        self.problem = ""  # last failure; cleared by the next successful batch
        self.is_broken = False  # Java has exited: a new process is needed
        self._spark = spark
        self._start = start
        self._archive = archive
        self._on_batch = on_batch
        self.left_out: dict[str, str] = {}  # nodes whose journals are not archived now, and why
        self._journals = start.journals_by_node()
        self._archiver = Archiver(journals=self._journals, archive=start.archive)
        self._lock = DriverLock(start.work)
        self._stopping = threading.Event()
        self._working = threading.Lock()
        self._query: StreamingQuery | None = None
        self._failures = 0
        self._looked_s = 0.0
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
                except Exception as error:  # from Spark, Py4J, the tables or the journal
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
        seen = self._check()
        if not seen:
            self._stopping.wait(_AGAIN_S)
            return
        options = self._options(seen)
        query = self._query = self._start_query(options)
        began_s = time.monotonic()
        try:
            while not (self._stopping.is_set() or query.awaitTermination(_POLL_S)):
                if is_connect(self._spark):
                    seen = self._check_progress(seen)
                if self.left_out and self._can_join():
                    return
                if self.problem and time.monotonic() - began_s > _STABLE_S:
                    self.problem = ""
        finally:
            self._query = None
            _end(query)

    def _options(self, nodes: Iterable[str]) -> SliceOptions:
        start, archive = self._start, self._archive
        cores = 4 if is_connect(self._spark) else self._spark.sparkContext.defaultParallelism
        archive.ledger.create()
        declared = archive.events.columns(start.declared)
        return SliceOptions(
            journals={node: self._journals[node] for node in nodes},
            archive=start.archive,
            columns=archive.events.snapshot().columns,
            declared=declared,
            large_bytes=start.large_bytes,
            pieces=2 * cores,
        )

    def _check(self) -> dict[str, int]:
        """Check what the source would also detect, but could report only as a failed query.

        Returns how far the archive has got, without the nodes that are left out.
        """
        reached, left_out = {}, {}
        for node, journal in self._journals.items():
            try:
                self._check_journal(node)
            except (AccordError, OSError) as error:
                if len(self._journals) == 1:
                    raise
                left_out[node] = summary(error)
                continue
            reached[node] = archived = self._archive.archived(node)
            if not is_remote(journal) and Path(journal).is_dir():
                retention.register(journal, ARCHIVE, archived)
        self._looked_s = time.monotonic()
        self.left_out = left_out
        return reached

    def _check_journal(self, node: str) -> None:
        events = self._archive.events.snapshot()
        check_same_journal(
            self._journals[node],
            node,
            archived=events.archived.get(node, 0),
            events=events.files,
        )

    def _can_join(self) -> bool:
        """Whether a journal that is left out can be archived now; looks only from time to time."""
        if time.monotonic() - self._looked_s < _AGAIN_S:
            return False
        for node in self.left_out:
            with suppress(AccordError, OSError):
                self._check_journal(node)
                return True
        self._looked_s = time.monotonic()
        return False

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
                self._succeed(self._archiver.commit_batch(slices, self._archive))

    def _succeed(self, done: BatchDone | None) -> None:
        self.problem = ""
        self._failures = 0
        if done is not None:
            self._on_batch(done)

    def _check_progress(self, seen: dict[str, int]) -> dict[str, int]:
        """Report what batches in other processes have done since the archive reached `seen`."""
        reached = {node: self._archive.archived(node) for node in seen}
        if reached != seen:
            files = {table.name: table.snapshot().files for table in self._archive.tables}
            added = {
                node: NodeBatch(
                    archived=reached[node],
                    events=_rows_since(files[EVENTS], node, seen[node]),
                    ledger_rows=_rows_since(files[LEDGER], node, seen[node]),
                )
                for node in seen
            }
            self._succeed(BatchDone(nodes=added))
        return reached

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


def _rows_since(files: Iterable[TableFile], node: str, offset: int) -> int:
    """Rows of a node in files that begin at this offset or later."""
    return sum(file.rows for file in files if file.node == node and file.first_offset >= offset)
