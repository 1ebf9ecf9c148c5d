"""The pipeline's work for one node: Spark, the archive job, and queries.

`open` takes seconds, as Spark starts; earlier queries wait. A failure in a query ends only that
query; a failure of Spark ends this process, and the node starts another.

The pipeline's health, reported to the node every second.

Warm-up: a query of our own makes Java load Spark's classes before the first client's query.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from accord.core.model.errors import AccordError
from accord.core.queries.messages import (
    Answerable,
    Cancel,
    EventQuery,
    ExportRequest,
    FromNode,
    FromPipeline,
    Health,
    HistogramRequest,
    LedgerLookup,
    LedgerReply,
    NetLookup,
    NetReply,
    PageQuery,
    QueryFailure,
    ReportReply,
    ReportRequest,
    StartPipeline,
    WatchedPredicate,
    WatchPredicates,
)
from accord.core.queries.report import encode_report
from accord.core.router.limits import BUILD
from accord.journal.record import Batch
from accord.pipeline import tables
from accord.pipeline.archive_job import ArchiveJob, BatchDone
from accord.pipeline.archive_lookup import ArchiveLookup
from accord.pipeline.attributes import TYPES, Declared
from accord.pipeline.cluster_watch import ClusterWatch
from accord.pipeline.exports import export
from accord.pipeline.histogram import HistogramEngine
from accord.pipeline.housekeeping import Housekeeping, now_ms
from accord.pipeline.journal_readers import JournalReader, open_journal
from accord.pipeline.ledger_lookup import find_outcomes
from accord.pipeline.manifest import Manifest, Snapshot
from accord.pipeline.measurement_publisher import MeasurementPublisher
from accord.pipeline.net_lookup import find_net_records
from accord.pipeline.pruning import select
from accord.pipeline.query_checks import InvalidQueryError, check
from accord.pipeline.query_engine import QueryEngine
from accord.pipeline.query_scheduler import QueryJob, QueryScheduler
from accord.pipeline.report import make_report
from accord.pipeline.scan_plan import RemainingQuery, ScanRange
from accord.pipeline.session import event_log, is_connect, open_session, ui_address
from accord.pipeline.spark_errors import summary
from accord.pipeline.tables import EVENTS, LOST, FileEntry, arrow_events
from accord.pipeline.tail import Tail

_FILE: Final = "warm.parquet"
_ROUNDS: Final = 3
_EVENT: Final = {
    "offset": 0,
    "number": 1,
    "channel": "a",
    "publisher": "",
    "received": 0,
    "qos": 0,
    "attributes": [("b", {"integer": 1})],
    "payload": b"",
    "payload_bytes": 0,
    "properties": b"",
}


def warm_up(spark: SparkSession, work: Path | str) -> None:
    """Query an event in a file of its own, with and without a predicate."""
    rows = pa.Table.from_pylist([_EVENT], arrow_events({}))
    pq.write_table(rows, Path(work) / _FILE)
    file = FileEntry(
        table=EVENTS,
        path=_FILE,
        day="1970-01-01",
        rows=1,
        bytes=1,
        node="",
        first_offset=0,
        last_offset=0,
        channels=("a",),
    )
    lookup = ArchiveLookup(spark, str(work))
    stretch = ScanRange((file,), 0, 1, True)
    for _ in range(_ROUNDS):
        for where in ("b > 0", ""):
            question = check(PageQuery(id=0, ask=EventQuery(channel="a", where=where)))
            found = lookup.find(question, RemainingQuery(0, 1, None), stretch, 10)
            assert len(found) == 1


_RATE_S: Final = 10.0


class Counts:
    """What the archive's batches have added since the start."""

    def __init__(self) -> None:
        self.events = 0
        self.ledger_rows = 0
        self._recent: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, done: BatchDone, now_s: float) -> None:
        with self._lock:
            self.events += done.events
            self.ledger_rows += done.ledger_rows
            self._recent.append((now_s, done.events + done.ledger_rows))

    def rows_per_s(self, now_s: float) -> float:
        """Over the last seconds."""
        with self._lock:
            while self._recent and self._recent[0][0] < now_s - _RATE_S:
                self._recent.popleft()
            return sum(rows for _, rows in self._recent) / _RATE_S


class HealthProbe:
    """Reads the state of journal and archive."""

    def __init__(self, manifest: Manifest, journal: str, node: str) -> None:
        self.counts = Counts()
        self._manifest = manifest
        self._reader: JournalReader = open_journal(journal)
        self._node = node
        self._version = -1
        self._files = 0
        self._bytes = 0

    def sample(self, health: Health) -> Health:
        """Return `health` with the archive's progress; an unreadable journal is reported too."""
        try:
            snapshot = self._manifest.snapshot()
            archived = snapshot.archived.get(self._node, 0)
            behind = max(0, self._reader.extent().next_offset - archived)
            lag_ms = self._age_ms(archived) if behind else 0
        except (AccordError, OSError) as error:
            return msgspec.structs.replace(health, problem=health.problem or str(error))
        self._sum_files(snapshot)
        return msgspec.structs.replace(
            health,
            archived_offset=archived,
            lag_ms=lag_ms,
            lag_records=behind,
            events=self.counts.events,
            ledger_rows=self.counts.ledger_rows,
            rows_per_s=self.counts.rows_per_s(time.monotonic()),
            files=self._files,
            bytes=self._bytes,
        )

    def _age_ms(self, offset: int) -> int:
        for found in self._reader.read(offset, max_records=1):
            if isinstance(found, Batch):
                return max(0, time.time_ns() // 1_000_000 - found.time_ms)
        return 0

    def _sum_files(self, snapshot: Snapshot) -> None:
        if snapshot.version != self._version:
            files = [file for file in snapshot.files if file.table != LOST]
            self._files = len(files)
            self._bytes = sum(file.bytes for file in files)
            self._version = snapshot.version


_log: Final = logging.getLogger(__name__)


class PipelineService:
    """The process between its first message and its end."""

    def __init__(self, start: StartPipeline, send: Callable[[FromPipeline], object]) -> None:
        self.is_broken = False  # Java has exited
        self._start = start
        self._send = send
        self._manifest = Manifest(start.archive)
        self._probe = HealthProbe(self._manifest, start.journal, start.node)
        self._measurements = MeasurementPublisher()
        self._watched: tuple[WatchedPredicate, ...] = ()
        self._health = Health()
        self._cluster = ClusterWatch(start)
        self._spark: SparkSession | None = None
        self._lookup: ArchiveLookup | None = None
        self._engine: QueryEngine | None = None
        self._histograms: HistogramEngine | None = None
        self._archive: ArchiveJob | None = None
        self._housekeeping: Housekeeping | None = None
        self._scheduler = QueryScheduler(send, self._interrupt, limit_s=start.timeout_s)

    def open(self) -> None:
        """Start everything; JavaError, SessionError or TablesError if that fails."""
        start = self._start
        tables.check_declared(start.declared)
        self._cluster.await_connection()
        spark = open_session(start)
        self._spark = spark
        self._cluster.await_executors(spark)
        self._lookup = ArchiveLookup(spark, start.archive)
        sources = (self._lookup, self._manifest, Tail(start.journal, start.declared))
        self._engine = QueryEngine(*sources, node=start.node, journal=start.journal)
        self._histograms = HistogramEngine(*sources, node=start.node, journal=start.journal)
        self._archive = ArchiveJob(spark, start, self._manifest, self._on_batch)
        self._archive.start()
        warm_up(spark, start.work)
        self._scheduler.start()
        self._housekeeping = Housekeeping(
            self._lookup.spark, self._manifest, retain_ms=start.retain_ms, also=(self._measure,)
        )
        self._housekeeping.start()
        self._health = Health(
            state="ready",
            spark=start.spark.partition(";")[0] or "embedded",
            spark_version=spark.version,
            spark_ui=ui_address(spark),
            event_log=event_log(spark),
            build=BUILD,
        )
        self.tick()

    def handle(self, message: FromNode) -> None:
        """Handle a message; a failure in a query ends only that query."""
        try:
            self._handle(message)
        except Exception as error:
            _log.exception("message: handling failed")
            if isinstance(message, Answerable):
                self._send(QueryFailure(id=message.id, problem=summary(error)))

    def _handle(self, message: FromNode) -> None:
        match message:
            case (
                PageQuery()
                | HistogramRequest()
                | ExportRequest()
                | ReportRequest()
                | LedgerLookup()
                | NetLookup()
            ):
                self._scheduler.put(
                    QueryJob(message.id, message.importance, lambda job: self._answer(job, message))
                )
            case Cancel(id_):
                self._scheduler.cancel(id_)
            case WatchPredicates(predicates):
                self._watched = predicates
                self._measurements.watch(predicates)
            case StartPipeline():
                _log.warning("second start: ignored")

    def tick(self) -> None:
        """Once a second: report health, and check what runs."""
        self._scheduler.expire()
        self._check_java()
        self.is_broken |= self._cluster.is_lost
        self._send(self.health())
        if measured := self._measurements.fresh(now_ms=now_ms()):
            self._send(measured)

    def health(self) -> Health:
        archive, housekeeping = self._archive, self._housekeeping
        return self._probe.sample(
            msgspec.structs.replace(
                self._health,
                problem=self._health.problem
                or self._cluster.problem
                or (archive.problem if archive else ""),
                compactions=housekeeping.compactions if housekeeping else 0,
                queries=self._scheduler.completed,
                queries_running=self._scheduler.running,
                queries_waiting=self._scheduler.waiting,
            )
        )

    def why_broken(self) -> str:
        return self._cluster.problem if self._cluster.is_lost else "Spark's Java process ended"

    def fail(self, problem: str) -> None:
        self._health = msgspec.structs.replace(self._health, state="failed", problem=problem)
        self._send(self.health())

    def close(self, timeout_s: float) -> None:
        """Stop what runs, then Spark, within about this time."""
        self._cluster.stop()
        if self._cluster.is_lost:
            return  # nobody is there to be told
        self._health = msgspec.structs.replace(self._health, state="stopping")
        until_s = time.monotonic() + timeout_s
        if self._housekeeping is not None:
            self._housekeeping.stop()
        self._scheduler.stop(timeout_s / 4)
        if self._archive is not None:
            self._archive.stop(timeout_s / 2)
        spark = self._spark
        if spark is not None and not self.is_broken:
            stopper = threading.Thread(target=spark.stop, daemon=True)
            stopper.start()
            stopper.join(max(1.0, until_s - time.monotonic()))

    # Run in threads of `QueryScheduler` and `Housekeeping`.

    def _answer(self, job: QueryJob, message: Answerable) -> FromPipeline:
        if isinstance(message, ReportRequest):
            return self._report(job, message)
        if isinstance(message, LedgerLookup):
            return self._ledger(job, message)
        if isinstance(message, NetLookup):
            return self._net(job, message)
        assert self._engine is not None
        assert self._histograms is not None
        assert self._lookup is not None
        with self._lookup.tagged(job.tag):
            match message:
                case PageQuery():
                    return self._engine.page(message, job.check)
                case HistogramRequest():
                    return self._histograms.part(message, job.check)
                case ExportRequest():
                    return export(self._engine, message, job.check)

    def _report(self, job: QueryJob, asked: ReportRequest) -> FromPipeline:
        if asked.since_ms >= asked.until_ms:
            raise InvalidQueryError("expected it before until", place="since")
        assert self._lookup is not None
        spark, archive = self._lookup.spark, self._start.archive
        since_ms, until_ms = asked.since_ms, asked.until_ms
        snapshot = self._manifest.snapshot()
        events = select(snapshot, channel=asked.channel, since_ms=since_ms, until_ms=until_ms)
        ledger = select(snapshot, table=tables.LEDGER, since_ms=since_ms, until_ms=until_ms)
        with self._lookup.tagged(job.tag):
            report = make_report(
                tables.events(spark, archive, events, self._start.declared),
                tables.ledger(spark, archive, ledger),
                self._watched,
                since_ms=since_ms,
                until_ms=until_ms,
                node=self._start.node,
                channel=asked.channel,
                declared=self._declared,
            )
        return ReportReply(id=job.id, body=encode_report(report))

    def _ledger(self, job: QueryJob, asked: LedgerLookup) -> FromPipeline:
        assert self._lookup is not None
        spark, archive = self._lookup.spark, self._start.archive
        snapshot = self._manifest.snapshot()
        with self._lookup.tagged(job.tag):
            body = find_outcomes(spark, archive, snapshot, asked.number, asked.most)
        return LedgerReply(id=job.id, body=body)

    def _net(self, job: QueryJob, asked: NetLookup) -> FromPipeline:
        assert self._lookup is not None
        spark, archive = self._lookup.spark, self._start.archive
        snapshot = self._manifest.snapshot()
        with self._lookup.tagged(job.tag):
            body = find_net_records(spark, archive, snapshot, self._start.node, asked)
        return NetReply(id=job.id, body=body)

    def _measure(self) -> None:
        now = now_ms()
        if not self._measurements.is_due(now_ms=now) or self._lookup is None:
            return
        spark, archive, snapshot = (
            self._lookup.spark,
            self._start.archive,
            self._manifest.snapshot(),
        )
        events_ms, ledger_ms = self._measurements.since_ms(now_ms=now)
        files = select(snapshot, since_ms=events_ms)
        events = tables.events(spark, archive, files, self._start.declared)
        entries = select(snapshot, table=tables.LEDGER, since_ms=ledger_ms)
        ledger = tables.ledger(spark, archive, entries)
        measured = self._measurements.measure(events, ledger, now_ms=now, declared=self._declared)
        self._send(measured)

    @property
    def _declared(self) -> Declared:
        return {name: TYPES[kind] for name, kind in self._start.declared.items()}

    def _on_batch(self, done: BatchDone) -> None:
        self._probe.counts.add(done, time.monotonic())
        self._measurements.count(done.channels, at_ms=now_ms(), took_ms=done.took_ms)

    def _interrupt(self, tag: str) -> None:
        if self._lookup is not None:
            self._lookup.interrupt(tag)

    def _check_java(self) -> None:
        spark = self._spark
        if spark is None or is_connect(spark):
            return
        process = getattr(spark.sparkContext._gateway, "proc", None)
        is_over = process is not None and process.poll() is not None
        self.is_broken |= is_over or (self._archive is not None and self._archive.is_broken)
