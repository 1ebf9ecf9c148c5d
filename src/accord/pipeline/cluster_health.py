"""Why a cluster does not do the pipeline's work: one sentence, with the remedy.

`diagnose` decides on signs that `cluster_probes` read. The first that explains all the others
counts: without a connection there are no executors, and without executors no task that could
look at the folders.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from accord.core.queries.spark_settings import CONNECT

PATIENCE_S: Final = 8.0  # an executor needs a few seconds to start
OPENING_S: Final = 12.0  # so does Spark in Java


class Worker(Struct, frozen=True):
    """A live worker of a standalone cluster, and what it has free."""

    host: str
    cores_free: int
    memory_free_mb: int


class FolderProblem(Struct, frozen=True):
    """What a task found wrong with a folder; `problem` is empty if the folder is not there."""

    host: str
    purpose: str  # archive, journal, work folder
    path: str
    problem: str = ""


class Signs(Struct, frozen=True, kw_only=True):
    """What is known of the cluster at a moment; None and "" are unknown."""

    unreachable: str = ""  # why there is no TCP connection
    opening_s: float = 0.0  # since Spark began to connect
    silent_s: float = 0.0  # since a Connect server last answered
    idle_s: float = 0.0  # since there was an executor, or while a task waits for one
    workers: tuple[Worker, ...] | None = None  # of a standalone master
    executor_mb: int = 1_024
    executor_cores: int = 1
    folders: tuple[FolderProblem, ...] = ()
    failure: str = ""  # of the task that looks at the folders
    stopped: str = ""  # why Spark has ended the application


def diagnose(place: str, signs: Signs) -> str:
    """What is wrong with the cluster at `place`, a master's or server's address; "" if nothing."""
    if signs.unreachable:
        return _unreachable(place, signs.unreachable)
    if signs.stopped:
        return f"the cluster at {place} ended the pipeline's application: {signs.stopped}"
    if signs.opening_s > OPENING_S:
        return _slow(place)
    if signs.silent_s > PATIENCE_S:
        return _silent(place)
    if signs.idle_s > PATIENCE_S:
        return _without_executors(place, signs)
    if signs.folders:
        return _folder(signs.folders[0])
    return _failed(place, signs.failure) if signs.failure else ""


def _unreachable(place: str, reason: str) -> str:
    if place.startswith(CONNECT):
        what, command = "the Spark Connect server", "accord spark connect"
    else:
        what, command = "the Spark master", "accord spark master"
    return (
        f"{what} at {place} can't be reached ({reason}): start it ({command}), or correct `spark` "
        "under [pipeline]; the pipeline connects as soon as it is there"
    )


def _slow(place: str) -> str:
    what = "a Spark Connect server" if place.startswith(CONNECT) else "a Spark master, not its page"
    return (
        f"Spark takes long to connect to {place}: if this lasts, check that {what}, of the same "
        "version of Spark, listens there"
    )


def _silent(place: str) -> str:
    return (
        f"the Spark Connect server at {place} accepts connections but does not answer: if this "
        "lasts, restart it (accord spark connect); the pipeline connects again by itself"
    )


def _without_executors(place: str, signs: Signs) -> str:
    wanted = f"{signs.executor_mb:,} MB and {_cores(signs.executor_cores)}"
    if signs.workers is None:
        return (
            f"the cluster at {place} runs no tasks: check that it has "
            f"workers with {wanted} free for an executor"
        )
    if not signs.workers:
        return (
            f"the Spark master at {place} has no workers: start some (accord spark worker {place})"
        )
    if any(_fits(each, signs) for each in signs.workers):
        return (
            f"the workers of {place} have room, but executors do not start: see their stderr in "
            "the workers' folders (--work); often they can't connect to this machine: set "
            '"spark.driver.host" under [pipeline.spark]'
        )
    best = max(signs.workers, key=lambda each: (each.memory_free_mb, each.cores_free))
    free = f"{best.memory_free_mb:,} MB and {_cores(best.cores_free)}"
    return (
        f"no worker of {place} has {wanted} free for an executor (at most {free}, at {best.host}): "
        "start larger workers (accord spark worker --memory-mb), end other applications, or lower "
        '"spark.executor.memory" or "spark.executor.cores" under [pipeline.spark]'
    )


def _fits(worker: Worker, signs: Signs) -> bool:
    return worker.memory_free_mb >= signs.executor_mb and worker.cores_free >= signs.executor_cores


def _cores(number: int) -> str:
    return "1 core" if number == 1 else f"{number} cores"


def _folder(found: FolderProblem) -> str:
    where = f"the {found.purpose} {found.path}"
    if found.problem:
        return (
            f"worker {found.host} can't use {where} ({found.problem}): let the user that runs the "
            "worker read and write there"
        )
    setting = "`archive` under [pipeline]" if found.purpose == "archive" else "`data` under [node]"
    return (
        f"worker {found.host} does not see {where}: put it on storage that all workers share under "
        f"the same path (such as NFS), and name it with {setting}"
    )


def _failed(place: str, failure: str) -> str:
    if "No module named" in failure:
        return (
            f"the Python of the workers at {place} lacks a package ({failure}): install "
            "'accord[pipeline]' there, or set PYSPARK_PYTHON to a Python that has it"
        )
    return f"tasks fail on the cluster at {place}: {failure}"
