"""A process that archives a journal, until its input ends or its Java is gone.

    python driver.py NODE JOURNAL ARCHIVE WORK [MOMENT]

Lines it prints: `java PID` when Spark runs, then an offset after each batch, up to which
everything is archived. Exit code 3 where Java ended first. At MOMENT it kills itself: between the
commits of the two tables, before or after that of a compaction, or while files are deleted.

Files that left the tables are deleted at once, instead of after hours.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Collection
from typing import Any

from deltalake import DeltaTable
from tests.pipeline.kills.processes import end_of_input

from accord.core.queries.messages import StartPipeline
from accord.pipeline import delta_log, maintenance
from accord.pipeline.archive_job import ArchiveJob
from accord.pipeline.delta_log import KEPT_H, Archive, DeltaLog, JournalPart
from accord.pipeline.maintenance import Maintenance
from accord.pipeline.session import java_process, open_session

LOOK_S = 0.2
BETWEEN = "between"
COMPACTING = "compacting"
VACUUMING = "vacuuming"
AFTER_BATCHES = 2


def main() -> int:
    node, journal, place, work, *moments = sys.argv[1:]
    ended = end_of_input()
    hasten()
    start = StartPipeline(
        node=node,
        journal=journal,
        archive=place,
        work=work,
        spark="local[2]",
        interval_ms=100,
        declared={"altitude_m": "integer"},
    )
    spark = open_session(start)
    say(f"java {java_process(spark)}")
    archive = Archive(place, [node])
    for moment in moments:
        DEATHS[moment]()
    job = ArchiveJob(spark, start, archive, lambda done: say(str(done.archived[node])))
    job.start()
    keeper = Maintenance(spark, archive, retain_ms=None)
    keeper.start()
    try:
        told = ""
        while not ended.wait(LOOK_S):
            if job.problem != told:
                told = job.problem
                say(f"problem {told}")
            if job.is_broken:
                return 3
        job.stop()
    finally:
        keeper.stop(30.0)
    spark.stop()
    return 0


def hasten() -> None:
    maintenance._LOOK_S = 0.2  # type: ignore[misc]
    maintenance._VACUUM_S = 1.0  # type: ignore[misc]
    earlier_ms = (KEPT_H + 1) * 3_600_000
    delta_log.now_ms = lambda: time.time_ns() // 1_000_000 - earlier_ms


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_between_the_tables() -> None:
    append = DeltaLog.append
    batches = 0

    def dying(table: DeltaLog, parts: Collection[JournalPart]) -> bool:
        nonlocal batches
        batches += table.name == "ledger"
        if table.name == "ledger" and batches > AFTER_BATCHES:
            die()
        return append(table, parts)

    setattr(DeltaLog, "append", dying)  # noqa: B010


def die_compacting() -> None:
    replace = DeltaLog.replace
    is_after = os.getpid() % 2

    def dying(table: DeltaLog, *files: Any) -> None:
        if is_after:
            replace(table, *files)
        die()

    setattr(DeltaLog, "replace", dying)  # noqa: B010


def die_vacuuming() -> None:
    vacuum = DeltaTable.vacuum

    def dying(table: DeltaTable, *arguments: Any, **options: Any) -> Any:
        if not options.get("dry_run", True):
            threading.Timer(os.getpid() % 20 / 1000, die).start()
        return vacuum(table, *arguments, **options)

    setattr(DeltaTable, "vacuum", dying)  # noqa: B010


DEATHS = {BETWEEN: die_between_the_tables, COMPACTING: die_compacting, VACUUMING: die_vacuuming}


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
