"""Watches the cluster that the pipeline runs on, and says what is wrong with it.

Before Spark is opened it waits for a connection, afterwards for executors that see the folders:
what comes later would only fail. From then on a thread looks every few seconds. A Connect server
that is gone, or an application that Spark has ended, is lost: the process ends, and the next one
waits for the cluster. With Spark in this process there is nothing to watch.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from msgspec.structs import replace
from pyspark.sql import SparkSession

from accord.core.queries.messages import StartPipeline
from accord.core.queries.spark_settings import CONNECT
from accord.pipeline import cluster_probes as probes
from accord.pipeline.cluster_health import Signs, diagnose
from accord.pipeline.session import has_java, is_connect, stop_reason
from accord.pipeline.spark_errors import summary

_PAUSE_S: Final = 5.0
_TROUBLE_S: Final = 2.0  # the same while something is wrong
_WAIT_S: Final = 1.0
_AGAIN_S: Final = 3.0  # between two looks at the folders while something is wrong there
_LOST_S: Final = 30.0  # silence of a Connect server
_log: Final = logging.getLogger(__name__)


class ClusterWatch:
    """`problem` is one sentence, "" while all is well."""

    def __init__(self, start: StartPipeline) -> None:
        self.problem = ""
        self.is_lost = False
        self._start = start
        self._place = start.spark.partition(";")[0].rstrip("/")
        self._addresses = probes.addresses(start.spark)
        self._spark: SparkSession | None = None
        self._is_looking = False  # whether a task looks at the folders
        self._working_s = time.monotonic()  # when Java was not there yet, or executors were
        self._answered_s = time.monotonic()
        self._unreachable = 0  # in a row
        self._found = Signs()  # `folders` and `failure` of the last look
        self._stopping = threading.Event()

    def await_connection(self) -> None:
        """Wait until something listens where Spark should be; then watch."""
        while problem := probes.connection_problem(self._addresses):
            self._report(Signs(unreachable=problem))
            self._stopping.wait(_WAIT_S)
        self._report(Signs())
        self._working_s = time.monotonic()
        if self._place and not self._place.startswith("local"):
            threading.Thread(target=self._watch, name="cluster", daemon=True).start()

    def await_executors(self, spark: SparkSession) -> None:
        """Wait until tasks run, and see the folders that they need."""
        if not self._place or self._place.startswith("local"):
            return
        self._working_s = self._answered_s = time.monotonic()
        self._spark = spark
        if is_connect(spark):
            threading.Thread(target=self._ask, name="cluster-answers", daemon=True).start()
        while not self._sees_folders(spark):
            self._stopping.wait(_AGAIN_S)

    def stop(self) -> None:
        self._stopping.set()

    def _sees_folders(self, spark: SparkSession) -> bool:
        self._is_looking = True
        try:
            self._found = Signs(folders=probes.folder_problems(spark, self._start))
        except Exception as error:  # from Spark, or this machine's own disk
            self._found = Signs(failure=summary(error))
        self._is_looking = False
        self._working_s = time.monotonic()
        self._report(self._found)
        return not self._found.folders and not self._found.failure

    def _watch(self) -> None:
        while not self._stopping.wait(self._pause_s()):
            try:
                self._report(self._signs())
            except Exception as error:  # from Py4J when Java has exited, which is noticed elsewhere
                _log.info("cluster: can't be read: %s", summary(error))

    def _pause_s(self) -> float:
        is_troubled = self._spark is None or self.problem or self._unreachable
        return _TROUBLE_S if is_troubled else _PAUSE_S

    def _ask(self) -> None:
        """Ask the Connect server something small, again and again; it may take its time."""
        assert self._spark is not None
        while not self._stopping.wait(_WAIT_S):
            try:
                self._spark.conf.get("spark.sql.session.timeZone")
            except Exception as error:  # from gRPC, or of a session that the server forgot
                self._report(Signs(stopped=summary(error)))
                return
            self._answered_s = time.monotonic()

    def _signs(self) -> Signs:
        now_s = time.monotonic()
        unreachable = probes.connection_problem(self._addresses)
        self._unreachable = self._unreachable + 1 if unreachable else 0
        signs = replace(self._found, unreachable=unreachable if self._unreachable > 1 else "")
        spark = self._spark
        if spark is None:
            if not (self._place.startswith(CONNECT) or has_java()):
                self._working_s = now_s
            return replace(signs, opening_s=now_s - self._working_s)
        if is_connect(spark):
            idle_s = now_s - self._working_s if self._is_looking else 0.0
            return replace(signs, silent_s=now_s - self._answered_s, idle_s=idle_s)
        if probes.is_stopped(spark):
            return replace(signs, stopped=stop_reason(self._start.work))
        if probes.executors(spark):
            self._working_s = now_s
            return signs
        executor_mb, executor_cores = probes.needs(spark)
        return replace(
            signs,
            idle_s=now_s - self._working_s,
            workers=probes.workers(spark, self._place),
            executor_mb=executor_mb,
            executor_cores=executor_cores,
        )

    def _report(self, signs: Signs) -> None:
        problem = diagnose(self._place, signs)
        if self.is_lost:
            return  # what ended it counts
        if problem != self.problem:
            _log.warning("cluster: %s", problem or "works again")
        self.problem = problem
        if self._spark is not None:
            is_gone = bool(signs.unreachable) and is_connect(self._spark)
            self.is_lost = is_gone or bool(signs.stopped) or signs.silent_s > _LOST_S
