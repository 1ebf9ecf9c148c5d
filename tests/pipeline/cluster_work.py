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

from pyspark.sql import SparkSession
from tests.pipeline.journals import START_MS, ledger_record, records, write_journal
from tests.spark_cluster import JAVA_OPTIONS

from accord.core.queries.messages import (
    EventQuery,
    PageQuery,
    StartPipeline,
    WatchedPredicate,
)
from accord.pipeline.archive_job import ArchiveJob
from accord.pipeline.archive_lookup import ArchiveLookup
from accord.pipeline.attributes import TYPES
from accord.pipeline.bulk_brokering import PredicateFolder, Registered, compile_set, match
from accord.pipeline.manifest import Manifest
from accord.pipeline.query_engine import QueryEngine
from accord.pipeline.report import make_report
from accord.pipeline.session import is_connect, open_session
from accord.pipeline.tables import events, ledger
from accord.pipeline.tail import Tail

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
    manifest = Manifest(start.archive)
    job = ArchiveJob(spark, start, manifest)
    job.start()
    try:
        until_s = time.monotonic() + _PATIENCE_S
        while manifest.snapshot().archived.get(_NODE, 0) <= EVENTS:
            if time.monotonic() > until_s:
                raise TimeoutError(f"archived {manifest.snapshot().archived}: {job.problem}")
            time.sleep(0.1)
    finally:
        job.stop()
    return events(spark, start.archive).count()


def _query(spark: SparkSession, start: StartPipeline) -> list[int]:
    tail = Tail(start.journal, start.declared)
    queries = QueryEngine(
        ArchiveLookup(spark, start.archive),
        Manifest(start.archive),
        tail,
        node=_NODE,
        journal=start.journal,
    )
    ask = EventQuery(channel="uav/#", where="altitude_m < 100 AND platform = 'uav-1'")
    return [event.number for event in queries.page(PageQuery(id=1, ask=ask)).events]


def _report(spark: SparkSession, start: StartPipeline) -> list[int]:
    """How many events are kept and match: without predicates, with a broken one, and with two."""
    kept, outcomes = (
        events(spark, start.archive, None, start.declared),
        ledger(spark, start.archive),
    )
    declared = {name: TYPES[kind] for name, kind in start.declared.items()}
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
            declared=declared,
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
    kept = events(spark, start.archive)
    found: dict[str, list[int]] = {}
    for origin in (predicates, shared):
        rows = match(kept, origin, columns=["number"]).collect()
        for row in rows:
            found.setdefault(row.predicate, []).append(row.number)
    return {key: sorted(numbers) for key, numbers in found.items()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
