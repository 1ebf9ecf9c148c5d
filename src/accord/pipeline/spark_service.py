"""What of the pipeline needs Spark: archiving, maintenance, large questions, reports, measurements.

`open` takes seconds, as Java starts. Until then, and where there is no Java, nodes get answers of
DataFusion and of their journals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import structs
from pyspark.sql import DataFrame, SparkSession

from accord.core.queries.messages import (
    Health,
    MeasuredValues,
    ReportRequest,
    StartPipeline,
    WatchedPredicate,
)
from accord.core.queries.report import Report
from accord.pipeline import spark_tables
from accord.pipeline.archive_job import ArchiveJob
from accord.pipeline.cluster_watch import ClusterWatch
from accord.pipeline.data_skipping import select
from accord.pipeline.delta_log import Archive, now_ms
from accord.pipeline.journal_sink import BatchDone
from accord.pipeline.maintenance import Maintenance
from accord.pipeline.measurement_publisher import MeasurementPublisher
from accord.pipeline.query.spark_engine import SparkEngine
from accord.pipeline.report import make_report
from accord.pipeline.session import event_log, is_connect, open_session, ui_address


class Measuring:
    """The measurements for one node."""

    def __init__(self, node: str, send: Callable[[MeasuredValues], object]) -> None:
        self.node = node
        self.send = send
        self.publisher = MeasurementPublisher()


class SparkService:
    """From `open` to `close`; `on_batch` is called with each batch of the archive."""

    def __init__(
        self, start: StartPipeline, archive: Archive, on_batch: Callable[[BatchDone], object]
    ) -> None:
        self.engine: SparkEngine | None = None
        self._start = start
        self._archive = archive
        self._on_batch = on_batch
        self._cluster = ClusterWatch(start)
        self._spark: SparkSession | None = None
        self._job: ArchiveJob | None = None
        self._maintenance: Maintenance | None = None
        self._measuring: dict[str, Measuring] = {}
        self._about: dict[str, str] = {}  # of Spark, for `Health`; asking Java again may hang

    def open(self) -> None:
        """Start everything; JavaError or SessionError if that fails."""
        start, archive = self._start, self._archive
        self._cluster.await_connection()
        self._spark = spark = open_session(start)
        self._cluster.await_executors(spark)
        engine = SparkEngine(spark, archive.storage)
        self._job = ArchiveJob(spark, start, archive, self._count)
        self._job.start()
        self._maintenance = Maintenance(
            engine.spark, archive, retain_ms=start.retain_ms, also=(self._measure,)
        )
        self._maintenance.start()
        self._about = {
            "spark": start.spark.partition(";")[0] or "embedded",
            "spark_version": spark.version,
            "spark_ui": ui_address(spark),
            "event_log": event_log(spark),
        }
        self.engine = engine

    def describe(self, health: Health) -> Health:
        """Return `health` with what is known of Spark."""
        problem = self._cluster.problem or ("" if self._job is None else _problem(self._job))
        return structs.replace(
            health,
            problem=health.problem or problem,
            compactions=self._maintenance.compactions if self._maintenance else 0,
            **self._about,
        )

    def why_broken(self) -> str:
        """Why a new process is needed; "" if none is."""
        if self._cluster.is_lost:
            return self._cluster.problem
        if self._has_java_exited() or (self._job is not None and self._job.is_broken):
            return "Spark's Java process ended"
        return ""

    def close(self, timeout_s: float) -> None:
        """Stop what runs, then Spark, within about this time."""
        self._cluster.stop()
        if self._cluster.is_lost:
            return  # nobody is there to be told
        until_s = time.monotonic() + timeout_s
        if self._maintenance is not None:
            self._maintenance.stop(timeout_s / 4)
        if self._job is not None:
            self._job.stop(timeout_s / 2)
        if self._spark is not None and not self.why_broken():
            stopper = threading.Thread(target=self._spark.stop, daemon=True)
            stopper.start()
            stopper.join(max(1.0, until_s - time.monotonic()))

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Tag this thread's Spark jobs, so that `interrupt` can stop them."""
        if self.engine is None:
            yield
            return
        with self.engine.tagged(tag):
            yield

    def interrupt(self, tag: str) -> None:
        if self.engine is not None:
            self.engine.interrupt(tag)

    def report(
        self, asked: ReportRequest, node: str, watched: Sequence[WatchedPredicate]
    ) -> Report:
        since_ms, until_ms = asked.since_ms, asked.until_ms
        return make_report(
            self._events(node, since_ms=since_ms, until_ms=until_ms, channel=asked.channel),
            self._ledger(node, since_ms=since_ms, until_ms=until_ms),
            watched,
            since_ms=since_ms,
            until_ms=until_ms,
            node=node,
            channel=asked.channel,
        )

    # Measurements.

    def measure_for(self, node: str, send: Callable[[MeasuredValues], object]) -> Measuring:
        """Send measurements of this node from now on."""
        self._measuring[node] = measuring = Measuring(node, send)
        return measuring

    def stop_measuring(self, node: str) -> None:
        self._measuring.pop(node, None)

    def tick(self) -> None:
        for each in list(self._measuring.values()):
            if measured := each.publisher.fresh(now_ms=now_ms()):
                each.send(measured)

    def _count(self, done: BatchDone) -> None:
        for node, batch in done.nodes.items():
            if node in self._measuring:
                self._measuring[node].publisher.count(
                    batch.use, at_ms=now_ms(), took_ms=done.took_ms
                )
        self._on_batch(done)

    def _measure(self) -> None:
        now = now_ms()
        for each in list(self._measuring.values()):
            if each.publisher.is_due(now_ms=now):
                events_ms, ledger_ms = each.publisher.since_ms(now_ms=now)
                events = self._events(each.node, since_ms=events_ms)
                ledger = self._ledger(each.node, since_ms=ledger_ms)
                each.send(each.publisher.measure(events, ledger, now_ms=now))

    def _events(
        self, node: str, *, since_ms: int, until_ms: int | None = None, channel: str = "#"
    ) -> DataFrame:
        """The events of a node, with all their attributes in the map."""
        snapshot = self._archive.events.snapshot()
        files = select(
            snapshot.files, node=node, since_ms=since_ms, until_ms=until_ms, channel=channel
        )
        events = spark_tables.events(self._session, self._archive.storage, snapshot, files)
        return spark_tables.with_all_attributes(_of(node, events), snapshot.columns)

    def _ledger(self, node: str, *, since_ms: int, until_ms: int | None = None) -> DataFrame:
        snapshot = self._archive.ledger.snapshot()
        files = select(snapshot.files, node=node, since_ms=since_ms, until_ms=until_ms)
        ledger = spark_tables.ledger(self._session, self._archive.storage, snapshot, files)
        return _of(node, ledger)

    @property
    def _session(self) -> SparkSession:
        assert self.engine is not None
        return self.engine.spark

    def _has_java_exited(self) -> bool:
        spark = self._spark
        if spark is None or is_connect(spark):
            return False
        process = getattr(spark.sparkContext._gateway, "proc", None)
        return process is not None and process.poll() is not None


def _problem(job: ArchiveJob) -> str:
    waiting = (f"{node} is not archived: {why}" for node, why in job.left_out.items())
    return job.problem or "; ".join(waiting)


def _of(node: str, rows: DataFrame) -> DataFrame:
    return rows.where(rows["node"] == node)
