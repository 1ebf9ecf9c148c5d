"""A process that archives a journal, until its input ends or its Java is gone.

    python driver.py NODE JOURNAL ARCHIVE WORK

Lines it prints: `java PID` when Spark runs, then an offset after each batch, up to which
everything is archived. Exit code 3 where Java ended first.
"""

from __future__ import annotations

import os
import sys

from accord.pipeline.manifest import Manifest
from tests.pipeline.kills.processes import end_of_input

from accord.core.queries.messages import StartPipeline
from accord.pipeline.archive_job import ArchiveJob
from accord.pipeline.session import java_process, open_session

LOOK_S = 0.2


def main() -> int:
    node, journal, archive, work = sys.argv[1:]
    ended = end_of_input()
    start = StartPipeline(
        node=node,
        journal=journal,
        archive=archive,
        work=work,
        spark="local[2]",
        interval_ms=100,
        declared={"altitude_m": "integer"},
    )
    spark = open_session(start)
    say(f"java {java_process(spark)}")
    job = ArchiveJob(spark, start, Manifest(archive), lambda done: say(str(done.archived)))
    job.start()
    told = ""
    while not ended.wait(LOOK_S):
        if job.problem != told:
            told = job.problem
            say(f"problem {told}")
        if job.is_broken:
            return 3
    job.stop()
    spark.stop()
    return 0


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
