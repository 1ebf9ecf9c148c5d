"""What the pipeline does, on the cluster at a given address: archive, query, report, brokering.

    python -m tests.pipeline.cluster_work spark://127.0.0.1:7077 FOLDER

A process of its own, as the pipeline is; the last line it prints is what it found, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.journals import START_MS, ledger_record, records, write_journal
from tests.spark_cluster import JAVA_OPTIONS

from accord.core.queries.messages import (
    EventQuery,
    PageQuery,
    StartPipeline,
    WatchedPredicate,
)
from accord.pipeline.archive_job import ArchiveJob
from accord.pipeline.bulk_brokering import PredicateFolder, Registered, compile_set, match
from accord.pipeline.delta_log import Archive
from accord.pipeline.query.datafusion_engine import DataFusionEngine
from accord.pipeline.query.pages import QueryEngine
from accord.pipeline.query.planner import Planner
from accord.pipeline.query.spark_engine import SparkEngine
from accord.pipeline.query.tail import Tail
from accord.pipeline.report import make_report
from accord.pipeline.session import is_connect, open_session
from accord.pipeline.spark_tables import events, ledger, with_all_attributes

EVENTS = 5_000
EXECUTOR_MB = 480
_NODE = "node"
_DECLARED = {"altitude_m": "integer"}
_PATIENCE_S = 120
# Small executors, and all of it on loopback.
SETTINGS = {
    "spark.executor.memory": f"{EXECUTOR_MB}m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main(url: str, folder: Path) -> dict[str, Any]:
    commits = [[*records(0, EVENTS, size=100), ledger_record(0, 10)]]
    journal = write_journal(folder / "journal", commits, segment_bytes=1 << 18)
    start = StartPipeline(
        node=_NODE,
        journal=str(journal),
        archive=str(folder / "archive"),
        work=str(folder / "work"),
        spark=url,
        spark_settings={} if url.startswith("sc://") else SETTINGS,
        memory_mb=512,
        declared=_DECLARED,
    )
    spark = open_session(start)
    try:
        found: dict[str, Any] = {"executors": _executors(spark), "archived": _archive(spark, start)}
        found |= {"query": _query(spark, start), "report": _report(spark, start)}
        return found | {"matches": _match(spark, start, folder)}
    finally:
        spark.stop()


def _executors(spark: SparkSession) -> int:
    """All but the driver, once one of them has done something."""
    spark.range(0, 8, 1, 8).count()
    if is_connect(spark):
        return 0
    context: Any = spark.sparkContext._jsc
    return int(context.sc().getExecutorMemoryStatus().size()) - 1


def _archive(spark: SparkSession, start: StartPipeline) -> int:
    archive = Archive(start.archive, (_NODE,))
    job = ArchiveJob(spark, start, archive)
    job.start()
    try:
        until_s = time.monotonic() + _PATIENCE_S
        while archive.archived(_NODE) <= EVENTS:
            if time.monotonic() > until_s:
                raise TimeoutError(f"archived {archive.archived(_NODE)}: {job.problem}")
            time.sleep(0.1)
    finally:
        job.stop()
    return _events(spark, archive).count()


def _events(spark: SparkSession, archive: Archive) -> DataFrame:
    snapshot = archive.events.snapshot()
    return with_all_attributes(events(spark, archive.storage, snapshot), snapshot.columns)


def _query(spark: SparkSession, start: StartPipeline) -> list[int]:
    archive = Archive(start.archive, (_NODE,))
    engine = SparkEngine(spark, archive.storage)
    queries = QueryEngine(
        archive,
        Tail(start.journal),
        Planner(DataFusionEngine(), lambda: engine),
        node=_NODE,
        journal=start.journal,
    )
    ask = EventQuery(
        channel="uav/#", where="altitude_m < 100 AND platform = 'uav-1'", engine="spark"
    )
    return [event.number for event in queries.page(PageQuery(id=1, ask=ask)).events]


def _report(spark: SparkSession, start: StartPipeline) -> list[int]:
    """How many events are kept and match: without predicates, with a broken one, and with two."""
    archive = Archive(start.archive, (_NODE,))
    outcomes = ledger(spark, archive.storage, archive.ledger.snapshot())
    kept = _events(spark, archive)
    low = WatchedPredicate("uav/#", "altitude_m < 100", "")
    broken = WatchedPredicate("uav/#", "altitude_m <", "")
    counts = []
    for watched in ((), (broken,), (low, broken)):
        report = make_report(
            kept,
            outcomes,
            watched,
            since_ms=START_MS,
            until_ms=START_MS + 86_400_000,
            node=_NODE,
        )
        counts.append(report.kept)
        counts += [use.matched for use in report.predicates]
    return counts


def _match(spark: SparkSession, start: StartPipeline, folder: Path) -> dict[str, list[int]]:
    """With predicates that come along, and from a folder; both times the same."""
    predicates = compile_set(
        [
            Registered(
                key="plain", channel="uav/#", where="altitude_m < 100 AND platform = 'uav-1'"
            ),
            Registered(key="other", where="altitude_m IN (8, 15) AND platform LIKE '%-1'"),
            Registered(key="elsewhere", channel="bus", where="altitude_m < 100"),
        ]
    )
    shared = PredicateFolder(folder / "predicates")
    shared.publish(predicates)
    kept = _events(spark, Archive(start.archive, (_NODE,)))
    found: dict[str, list[int]] = {}
    for origin in (predicates, shared):
        rows = match(kept, origin, columns=["number"]).collect()
        for row in rows:
            found.setdefault(row.predicate, []).append(row.number)
    return {key: sorted(numbers) for key, numbers in found.items()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
