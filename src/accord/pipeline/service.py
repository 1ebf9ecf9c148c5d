"""The pipeline's work for one node: Spark, the archive job, and queries.

`open` takes seconds, as Spark starts; earlier queries wait. A failure in a query ends only that
query; a failure of Spark ends this process, and the node starts another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from accord.core.queries.messages import (
    Cancel,
    FromNode,
    FromPipeline,
    Health,
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
from accord.pipeline import tables
from accord.pipeline.archive_batch import BatchDone
from accord.pipeline.archive_job import ArchiveJob
from accord.pipeline.archive_lookup import ArchiveLookup
from accord.pipeline.attributes import TYPES, Declared
from accord.pipeline.health import HealthProbe
from accord.pipeline.housekeeping import Housekeeping, now_ms
from accord.pipeline.manifest import Manifest
from accord.pipeline.measurement_publisher import MeasurementPublisher
from accord.pipeline.pruning import select
from accord.pipeline.query_checks import InvalidQueryError
from accord.pipeline.query_engine import QueryEngine
from accord.pipeline.query_scheduler import QueryJob, QueryScheduler
from accord.pipeline.report import make_report
from accord.pipeline.session import is_connect, open_session
from accord.pipeline.spark_errors import summary
from accord.pipeline.tail import Tail
from accord.pipeline.warm_up import warm_up

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
        self._spark: SparkSession | None = None
        self._lookup: ArchiveLookup | None = None
        self._engine: QueryEngine | None = None
        self._archive: ArchiveJob | None = None
        self._housekeeping: Housekeeping | None = None
        self._scheduler = QueryScheduler(send, self._interrupt, limit_s=start.timeout_s)

    def open(self) -> None:
        """Start everything; JavaError, SessionError or TablesError if that fails."""
        start = self._start
        tables.check_declared(start.declared)
        spark = open_session(start)
        self._spark = spark
        self._lookup = ArchiveLookup(spark, start.archive)
        tail = Tail(start.journal, start.declared)
        self._engine = QueryEngine(
            self._lookup, self._manifest, tail, node=start.node, journal=start.journal
        )
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
            build=BUILD,
        )
        self.tick()

    def handle(self, message: FromNode) -> None:
        """Handle a message; a failure in a query ends only that query."""
        try:
            self._handle(message)
        except Exception as error:
            _log.exception("message")
            if isinstance(message, PageQuery | ReportRequest):
                self._send(QueryFailure(id=message.id, problem=summary(error)))

    def _handle(self, message: FromNode) -> None:
        match message:
            case PageQuery():
                self._scheduler.put(
                    QueryJob(message.id, message.importance, lambda job: self._page(job, message))
                )
            case ReportRequest():
                self._scheduler.put(
                    QueryJob(message.id, message.importance, lambda job: self._report(job, message))
                )
            case Cancel(id_):
                self._scheduler.cancel(id_)
            case WatchPredicates(predicates):
                self._watched = predicates
                self._measurements.watch(predicates)
            case StartPipeline():
                _log.warning("a second start is ignored")

    def tick(self) -> None:
        """Once a second: report health, and check what runs."""
        self._scheduler.expire()
        self._check_java()
        self._send(self.health())
        if measured := self._measurements.fresh(now_ms=now_ms()):
            self._send(measured)

    def health(self) -> Health:
        archive, housekeeping = self._archive, self._housekeeping
        return self._probe.sample(
            msgspec.structs.replace(
                self._health,
                problem=self._health.problem or (archive.problem if archive else ""),
                compactions=housekeeping.compactions if housekeeping else 0,
                queries=self._scheduler.completed,
                queries_running=self._scheduler.running,
                queries_waiting=self._scheduler.waiting,
            )
        )

    def fail(self, problem: str) -> None:
        self._health = msgspec.structs.replace(self._health, state="failed", problem=problem)
        self._send(self.health())

    def close(self, timeout_s: float) -> None:
        """Stop what runs, then Spark, within about this time."""
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

    def _page(self, job: QueryJob, query: PageQuery) -> FromPipeline:
        assert self._engine is not None
        assert self._lookup is not None
        with self._lookup.tagged(job.tag):
            return self._engine.page(query, job.check)

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

    def _measure(self) -> None:
        now = now_ms()
        if not self._measurements.is_due(now_ms=now) or self._lookup is None:
            return
        files = select(self._manifest.snapshot(), since_ms=now - self._measurements.recent_ms)
        events = tables.events(self._lookup.spark, self._start.archive, files, self._start.declared)
        self._send(self._measurements.measure(events, now_ms=now, declared=self._declared))

    @property
    def _declared(self) -> Declared:
        return {name: TYPES[kind] for name, kind in self._start.declared.items()}

    def _on_batch(self, done: BatchDone) -> None:
        self._probe.counts.add(done, time.monotonic())
        self._measurements.count(done.channels, at_ms=now_ms())

    def _interrupt(self, tag: str) -> None:
        if self._lookup is not None:
            self._lookup.interrupt(tag)

    def _check_java(self) -> None:
        spark = self._spark
        if spark is None or is_connect(spark):
            return
        process = getattr(spark.sparkContext._gateway, "proc", None)
        is_over = process is not None and process.poll() is not None
        self.is_broken = is_over or (self._archive is not None and self._archive.is_broken)
