"""Schedules queries by importance; queries can be cancelled.

Two run at a time; the others wait in the queue that a node uses for tasks, so that important ones
come sooner and none starves. A query that does not fit in the queue or takes too long gets an
error.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Literal

from accord.core.model.errors import AccordError
from accord.core.model.units import IMPORTANCES
from accord.core.queries.messages import FromPipeline, QueryFailure
from accord.core.scheduling.tasks import Task, Tasks
from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.spark_errors import summary

WORKERS: Final = 2
WAITING: Final = 200
LIMIT_S: Final = 60.0
CANCELLED: Final = "cancelled"
_COST_US: Final = 100_000
_log: Final = logging.getLogger(__name__)


class QueryStoppedError(Exception):
    """The job is to stop now; the job holds the reason."""


class QueryJob:
    """A query and its execution, queued as a task whose number is its id."""

    def __init__(self, id_: int, importance: int, work: Callable[[QueryJob], FromPipeline]) -> None:
        self.id = id_
        self.importance = min(max(importance, 0), IMPORTANCES - 1)
        self.tag = f"accord-{id_}-{time.monotonic_ns()}"
        self.began_s = 0.0
        self.reason = ""  # why it must stop early, if so
        self.is_late = False
        self._work = work

    def run(self) -> FromPipeline:
        """Return the reply; never raises."""
        kind: Literal["question", "timeout", "busy"]
        try:
            self.check()
            return self._work(self)
        except InvalidQueryError as error:
            kind = "question" if error.place else "busy"
            return QueryFailure(id=self.id, problem=error.problem, place=error.place, kind=kind)
        except Exception as error:  # from Spark, Py4J or here: queries are isolated from each other
            if self.reason:
                kind = "timeout" if self.is_late else "busy"
                return QueryFailure(id=self.id, problem=self.reason, kind=kind)
            if not isinstance(error, AccordError):
                _log.exception("query %d: failed", self.id)
            return QueryFailure(id=self.id, problem=summary(error))

    def check(self) -> None:
        """Raise QueryStoppedError if it is to stop."""
        if self.reason:
            raise QueryStoppedError


class QueryScheduler:
    """Worker threads; they call `send`, and `interrupt` with a tag."""

    def __init__(
        self,
        send: Callable[[FromPipeline], object],
        interrupt: Callable[[str], object],
        *,
        workers: int = WORKERS,
        waiting: int = WAITING,
        limit_s: float = LIMIT_S,
    ) -> None:
        self.completed = 0
        self._send = send
        self._interrupt = interrupt
        self._limit_s = limit_s
        self._tasks = Tasks(count_limit=waiting, bytes_limit=waiting)
        self._known: dict[int, QueryJob] = {}
        self._running: set[QueryJob] = set()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"query-{number}", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        """Start the threads; earlier queries have waited until now."""
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return self._tasks.waiting

    def put(self, job: QueryJob) -> None:
        with self._changed:
            is_known = job.id in self._known
            if not is_known:
                self._known[job.id] = job
                task = Task(1, _COST_US, job.importance, 0, number=job.id)
                shed = [self._known[each.number] for each in self._tasks.put(task) or []]
                self._changed.notify()
        if is_known:
            self._send(
                QueryFailure(id=job.id, problem="a query with this ID is running", place="id")
            )
            return
        for each in shed:
            self._finish(
                each, QueryFailure(id=each.id, problem="too many queries wait", kind="busy")
            )

    def cancel(self, id_: int) -> None:
        """Cancel a query; it is still reported as failed."""
        with self._changed:
            job = self._known.get(id_)
        if job is not None:
            self._end(job, CANCELLED)

    def expire(self) -> None:
        """Stop queries that exceed their time limit."""
        now_s = time.monotonic()
        with self._changed:
            late = [job for job in self._running if now_s - job.began_s > self._limit_s]
        for job in late:
            job.is_late = True
            self._end(job, f"took longer than {self._limit_s:.0f} s")

    def stop(self, timeout_s: float) -> None:
        with self._changed:
            self._is_stopping = True
            jobs = list(self._known.values())
            self._changed.notify_all()
        for job in jobs:
            self._end(job, "the pipeline stops")
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until_s - time.monotonic()))

    def _end(self, job: QueryJob, reason: str) -> None:
        """Stop a query; a waiting one ends when its turn comes, at no cost."""
        if not job.reason:
            job.reason = reason
        if job in self._running:
            self._interrupt(job.tag)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._tasks.waiting and not self._is_stopping:
                    self._changed.wait()
                if self._is_stopping:
                    return
                task = self._tasks.take()
                assert task is not None
                job = self._known[task.number]
                job.began_s = time.monotonic()
                self._running.add(job)
            answer = job.run()
            with self._changed:
                self._running.discard(job)
            self._finish(job, answer)

    def _finish(self, job: QueryJob, answer: FromPipeline) -> None:
        with self._changed:
            self._known.pop(job.id, None)
            self.completed += 1
        self._send(answer)
