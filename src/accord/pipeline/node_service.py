"""The pipeline's work for one node: its questions, and what it is told of the pipeline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import structs

from accord.core.queries.messages import (
    Answerable,
    Cancel,
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
    WatchedPredicate,
    WatchPredicates,
)
from accord.core.queries.report import encode_report
from accord.pipeline.delta_log import Archive
from accord.pipeline.health import HealthProbe
from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.query.datafusion_engine import DataFusionEngine
from accord.pipeline.query.engine import ArchiveEngine
from accord.pipeline.query.exports import export
from accord.pipeline.query.histogram import HistogramEngine
from accord.pipeline.query.ledger import find_outcomes
from accord.pipeline.query.net_records import find_net_records
from accord.pipeline.query.pages import QueryEngine
from accord.pipeline.query.planner import Planner
from accord.pipeline.query.scheduler import QueryJob, QueryScheduler
from accord.pipeline.query.tail import Tail
from accord.pipeline.spark_errors import summary

if TYPE_CHECKING:
    from accord.pipeline.journal_sink import NodeBatch
    from accord.pipeline.spark_service import SparkService

_log: Final = logging.getLogger(__name__)


class NodeService:
    """Answers one node from the archive and from its journal; Spark joins when it is up."""

    def __init__(
        self,
        node: str,
        journal: str,
        archive: Archive,
        send: Callable[[FromPipeline], object],
        *,
        timeout_s: float,
    ) -> None:
        self.node = node
        self._problem = ""  # of the pipeline
        self._probe = HealthProbe(archive, journal, node)
        self._archive = archive
        self._send = send
        self._spark: SparkService | None = None
        self._watched: tuple[WatchedPredicate, ...] = ()
        self._released = 0  # everything before is archived, and was read from this journal
        self._on_watched: Callable[[tuple[WatchedPredicate, ...]], object] = lambda _: None
        self._planner = Planner(DataFusionEngine(), self._spark_engine)
        sources = (archive, Tail(journal, node), self._planner)
        self._pages = QueryEngine(*sources, node=node, journal=journal)
        self._histograms = HistogramEngine(*sources, node=node, journal=journal)
        self._scheduler = QueryScheduler(send, self._interrupt, limit_s=timeout_s)

    def start(self) -> None:
        self._scheduler.start()

    def join_spark(self, spark: SparkService) -> None:
        """Ask Spark too from now on, and send what it measures."""
        measuring = spark.measure_for(self.node, self._send)
        measuring.publisher.watch(self._watched)
        self._on_watched = measuring.publisher.watch
        self._spark = spark

    def handle(self, message: FromNode) -> None:
        """Handle a message; a failure in a query ends only that query."""
        try:
            self._handle(message)
        except Exception as error:
            _log.exception("message: handling failed")
            if isinstance(message, Answerable):
                self._send(QueryFailure(id=message.id, problem=summary(error)))

    def tick(self, health: Health) -> None:
        """Stop what takes too long, and report `health` with what is the node's own."""
        self._problem = health.problem
        self._scheduler.expire()
        self._send(self.health(health))

    def health(self, health: Health) -> Health:
        return self._probe.sample(
            structs.replace(
                health,
                released_offset=self._released,
                queries=self._scheduler.completed,
                queries_running=self._scheduler.running,
                queries_waiting=self._scheduler.waiting,
            )
        )

    def count(self, batch: NodeBatch) -> None:
        """Count what a batch of the archive has added."""
        self._probe.counts.add(batch, time.monotonic())
        self._released = batch.archived

    def close(self, timeout_s: float) -> None:
        self._scheduler.stop(timeout_s)

    def _handle(self, message: FromNode) -> None:
        match message:
            case Cancel(id_):
                self._scheduler.cancel(id_)
            case WatchPredicates(predicates):
                self._watched = predicates
                self._on_watched(predicates)
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
            case _:
                _log.warning("second start: ignored")

    # Run in threads of `QueryScheduler`.

    def _answer(self, job: QueryJob, message: Answerable) -> FromPipeline:
        if self._spark is None:
            return self._reply(job, message)
        with self._spark.tagged(job.tag):
            return self._reply(job, message)

    def _reply(self, job: QueryJob, message: Answerable) -> FromPipeline:
        match message:
            case PageQuery():
                return self._pages.page(message, job.check)
            case HistogramRequest():
                return self._histograms.part(message, job.check)
            case ExportRequest():
                return export(self._pages, message, job.check)
            case LedgerLookup():
                snapshot = self._archive.ledger.snapshot()
                body = find_outcomes(
                    self._planner, snapshot, self.node, message.number, message.most
                )
                return LedgerReply(id=job.id, body=body)
            case NetLookup():
                body = find_net_records(self._archive.ledger.snapshot(), self.node, message)
                return NetReply(id=job.id, body=body)
            case ReportRequest():
                return self._report(job, message)

    def _report(self, job: QueryJob, asked: ReportRequest) -> FromPipeline:
        if asked.since_ms >= asked.until_ms:
            raise InvalidQueryError("expected it before until", place="since")
        if self._spark is None:
            raise InvalidQueryError(self._problem or "reports need Spark, which is starting")
        report = self._spark.report(asked, self.node, self._watched)
        return ReportReply(id=job.id, body=encode_report(report))

    def _spark_engine(self) -> ArchiveEngine | None:
        return None if self._spark is None else self._spark.engine

    def _interrupt(self, tag: str) -> None:
        if self._spark is not None:
            self._spark.interrupt(tag)
