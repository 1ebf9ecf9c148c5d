"""Reads the signs by which `cluster_health` explains a cluster: connections, executors, folders.

A folder is looked at by a small Spark task at as many executors as possible: it has to find what
the driver has just written there, and to write something itself. A path that is another folder on
each machine looks right until files are missing.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import SparkSession

from accord.core.queries.messages import StartPipeline
from accord.core.queries.spark_settings import CONNECT
from accord.pipeline.cluster_health import FolderProblem, Worker
from accord.pipeline.master_state import free_of_workers
from accord.pipeline.session import is_connect

STANDALONE: Final = "spark://"
_CONNECT_PORT: Final = 15_002
_CONNECT_S: Final = 2.0
_TASKS: Final = 8  # at least; a task more for each core
_MOST_TASKS: Final = 256
_MARKS: Final = "_probe"
_SCHEMA: Final = "host string, purpose string, path string, problem string"
_MB: Final = {"k": 1 / 1_024, "m": 1, "g": 1_024, "t": 1_024**2}


def addresses(master: str) -> list[tuple[str, int]]:
    """Where a master, or one of several, or a Connect server listens; none if it is elsewhere."""
    if master.startswith(CONNECT):
        url = urlsplit(master.partition(";")[0])
        return [(url.hostname or "", url.port or _CONNECT_PORT)]
    if not master.startswith(STANDALONE):
        return []
    found = []
    for each in master.removeprefix(STANDALONE).split(","):
        host, _, port = each.rpartition(":")
        found.append((host.strip("[]"), int(port) if port.isdecimal() else 0))
    return found


def connection_problem(places: Iterable[tuple[str, int]], timeout_s: float = _CONNECT_S) -> str:
    """Why none of `places` accepts a connection; "" if one does, or if there are none."""
    problem = ""
    for place in places:
        try:
            socket.create_connection(place, timeout_s).close()
        except (OSError, OverflowError, UnicodeError) as error:
            problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        else:
            return ""
    return problem


def executors(spark: SparkSession) -> int | None:
    """Executors of this application besides the driver; None where only the server knows."""
    if is_connect(spark):
        return None
    context: Any = spark.sparkContext._jsc
    return len(list(context.sc().statusTracker().getExecutorInfos())) - 1


def is_stopped(spark: SparkSession) -> bool:
    """Whether Spark has ended the application by itself."""
    if is_connect(spark):
        return False
    context: Any = spark.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())


def needs(spark: SparkSession) -> tuple[int, int]:
    """Megabytes and cores that an executor needs at least."""
    if is_connect(spark):
        return 1_024, 1
    conf = spark.sparkContext.getConf()
    size = re.fullmatch(r"(\d+)([kmgt]?)b?", (conf.get("spark.executor.memory") or "1g").lower())
    cores = conf.get("spark.executor.cores") or conf.get("spark.task.cpus") or "1"
    megabytes = round(int(size[1]) * _MB[size[2] or "m"]) if size else 1_024
    return megabytes, int(cores) if cores.isdecimal() else 1


def workers(spark: SparkSession, master: str) -> tuple[Worker, ...] | None:
    """The workers of a standalone master; None if it does not say."""
    for place in addresses(master):
        with suppress(Exception):  # from Java: another version of Spark, or a standby master
            return free_of_workers(spark, *place)
    return None


def folder_problems(spark: SparkSession, start: StartPipeline) -> tuple[FolderProblem, ...]:
    """What tasks find wrong with the folders that they need; raises what ends the tasks."""
    paths = {"archive": start.archive, "work folder": start.work}
    marked = {purpose: path for purpose, path in paths.items() if "://" not in path}
    token = uuid.uuid4().hex
    for path in marked.values():
        folder = Path(path) / _MARKS
        folder.mkdir(parents=True, exist_ok=True)
        (folder / start.node).write_text(token)
    journal = "" if "://" in start.journal or not Path(start.journal).is_dir() else start.journal
    look = FolderProbe(tuple(marked.items()), journal, start.node, token)
    cores = 0 if is_connect(spark) else spark.sparkContext.defaultParallelism
    tasks = min(max(2 * cores, _TASKS), _MOST_TASKS)
    found = spark.range(0, tasks, 1, tasks).mapInArrow(look, _SCHEMA).distinct().collect()
    return tuple(sorted((FolderProblem(*row) for row in found), key=lambda each: each.purpose))


@dataclass(frozen=True)
class FolderProbe:
    """The task; its rows are problems."""

    marked: tuple[tuple[str, str], ...]
    journal: str
    node: str
    token: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        rows = [
            {"host": socket.gethostname(), "purpose": purpose, "path": path, "problem": problem}
            for purpose, path, problem in self._problems()
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows)

    def _problems(self) -> Iterator[tuple[str, str, str]]:
        for purpose, path in self.marked:
            problem = self._look(Path(path) / _MARKS)
            if problem is not None:
                yield purpose, path, problem
        if self.journal and not Path(self.journal).is_dir():
            yield "journal", self.journal, ""
        elif self.journal and not os.access(self.journal, os.R_OK | os.X_OK):
            yield "journal", self.journal, os.strerror(13)

    def _look(self, folder: Path) -> str | None:
        """None if all is well; "" if it is another folder than the driver's."""
        try:
            if (folder / self.node).read_text() != self.token:
                return ""
            mine = folder / f"{self.node}-{uuid.uuid4().hex}"
            mine.write_text(self.token)
            mine.unlink()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return error.strerror or str(error)
        return None
