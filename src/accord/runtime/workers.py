"""Pool of worker processes for work that would block the event loop: shaping, and costly XPath.

Jobs wait in the order of the node's strategy, in a bounded backlog. Processes are started on
demand, each as a new interpreter: no state of the node is copied. A job that exceeds its time limit
or ends its process has failed; it is not retried, and the process is replaced when the next job
needs one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct

from accord.core.scheduling.tasks import Task, Tasks, WorkerJob
from accord.runtime.logs import get_log
from accord.runtime.process import Clock
from accord.runtime.worker_connection import WorkerConnection, WorkerDiedError
from accord.runtime.worker_jobs import (
    UNKNOWN_US,
    ConditionEvaluated,
    Evaluated,
    Failed,
    FailureKind,
    JobFailure,
    JobOutcome,
    Reply,
    Shaped,
    ShapeWork,
    Values,
    Work,
    XPathWork,
)

log = get_log(__name__)

_STOPPING: Final = "the node is stopping"


class WorkerLimits(Struct, frozen=True, kw_only=True):
    processes: int = 0  # 0: one less than there are processors, at least one
    time_limit_s: float = 10.0  # per job
    xpath_time_limit_s: float = 1.0
    memory_mb: int = 1_024  # per process
    waiting_jobs: int = 1_000
    waiting_bytes: int = 64 * 1024 * 1024
    job_bytes: int = 17 * 1024 * 1024


class WorkerCounts(Struct):
    """Outcomes of all jobs so far."""

    done: int = 0
    failed: int = 0
    too_long: int = 0
    died: int = 0
    shed: int = 0
    expired: int = 0
    closed: int = 0
    spent_us: int = 0


class Workers:
    """All worker processes of a node."""

    def __init__(
        self,
        limits: WorkerLimits | None = None,
        tasks: Tasks | None = None,
        *,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.limits = limits or WorkerLimits()
        self.counts = WorkerCounts()
        self.tasks = tasks or Tasks(
            count_limit=self.limits.waiting_jobs, bytes_limit=self.limits.waiting_bytes
        )
        self._now_ms = now_ms or Clock().now_ms
        count = self.limits.processes or max(1, (os.cpu_count() or 1) - 1)
        # Used last in, first out: the last one most likely has a process.
        self._idle = [_Worker(self.limits) for _ in range(count)]
        self._all = tuple(self._idle)
        self._working: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def waiting(self) -> int:
        return self.tasks.waiting

    @property
    def busy(self) -> int:
        return len(self._all) - len(self._idle)

    @property
    def pids(self) -> list[int]:
        """Process IDs of the running workers."""
        return [worker.pid for worker in self._all if worker.pid]

    def cost_us(self, channel: str) -> int:
        """Expected cost of a job of `channel`."""
        learned = self.tasks.cost_estimate(channel)
        return int(learned.mean) if learned.is_known else UNKNOWN_US

    def submit(self, job: WorkerJob) -> None:
        """Queue `job`; its `done` is called later, from the event loop."""
        if self._is_closed:
            self._refuse(job, "closed", _STOPPING)
            return
        if job.size > self.limits.job_bytes:
            limit = self.limits.job_bytes
            self._refuse(job, "failed", f"{job.size} bytes, workers accept at most {limit}")
            return
        for shed in self.tasks.put(job) or ():
            self._refuse(shed, "shed", "more work is waiting than is accepted")
        self._dispatch()

    async def close(self) -> None:
        """End all processes; unfinished jobs fail."""
        self._is_closed = True
        while (task := self.tasks.take()) is not None:
            self._refuse(task, "closed", _STOPPING)
        working = list(self._working)
        for each in working:
            each.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for worker in self._all:
            await worker.end()
        await asyncio.sleep(0)  # refused jobs are reported before `close` returns

    def _dispatch(self) -> None:
        while self._idle and not self._is_closed:
            task = self.tasks.take()
            if task is None:
                return
            assert isinstance(task, WorkerJob)
            if 0 < task.due_ms <= self._now_ms():
                self._refuse(task, "expired", "its deadline passed before its turn came")
                continue
            running = asyncio.get_running_loop().create_task(self._do(self._idle.pop(), task))
            self._working.add(running)
            running.add_done_callback(self._working.discard)

    async def _do(self, worker: _Worker, job: WorkerJob) -> None:
        finished = _Finished(JobFailure("closed", _STOPPING), 0, "closed")
        try:
            finished = await worker.do(job.work)
        finally:
            self._idle.append(worker)
            self._count(finished.kind, finished.spent_us)
            if finished.spent_us:
                self.tasks.record_cost(job.channel, finished.spent_us)
            _notify(job, finished.outcome, finished.spent_us)
            self._dispatch()

    def _count(self, kind: str, spent_us: int = 0) -> None:
        self.counts.spent_us += spent_us
        name = kind.replace(" ", "_")
        setattr(self.counts, name, getattr(self.counts, name) + 1)

    def _refuse(self, task: Task, kind: FailureKind, reason: str) -> None:
        assert isinstance(task, WorkerJob)
        self._count(kind)
        asyncio.get_running_loop().call_soon(_notify, task, JobFailure(kind, reason), 0)


def _notify(job: WorkerJob, outcome: JobOutcome, spent_us: int) -> None:
    try:
        job.done(outcome, spent_us)
    except Exception as error:
        log.failure("worker result not usable", error)


class _Finished(NamedTuple):
    outcome: JobOutcome
    spent_us: int
    kind: str  # the counter it belongs to


class _Worker:
    """Slot for one process, with one job at a time."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._connection: WorkerConnection | None = None

    @property
    def pid(self) -> int:
        return (
            self._connection.pid if self._connection is not None and self._connection.is_open else 0
        )

    async def end(self) -> None:
        if self._connection is not None:
            await self._connection.end()
            self._connection = None

    async def do(self, work: Work) -> _Finished:
        """The outcome of `work`; raises only when cancelled."""
        loop = asyncio.get_running_loop()
        noted: Values = []
        started = loop.time()
        try:
            line = await self._ready()
            started = loop.time()
            line.send(work)
            async with asyncio.timeout(self._time_limit_s(work)):
                reply = await line.next()
                while isinstance(reply, ConditionEvaluated):
                    noted.append(reply.value)
                    reply = await line.next()
            return _outcome(reply, noted)
        except (TimeoutError, WorkerDiedError) as error:
            await self.end()
            spent_us = int((loop.time() - started) * 1_000_000)
            failure = JobFailure("died", str(error))
            if isinstance(error, TimeoutError):
                failure = JobFailure("too long", f"not done in {self._time_limit_s(work):g} s")
            log.warning("worker process replaced", reason=failure.reason, kind=failure.kind)
            return _Finished(_partial_values(work, noted) or failure, spent_us, failure.kind)
        except BaseException:
            await self.end()
            raise

    def _time_limit_s(self, work: Work) -> float:
        limits = self._limits
        return limits.time_limit_s if isinstance(work, ShapeWork) else limits.xpath_time_limit_s

    async def _ready(self) -> WorkerConnection:
        if self._connection is not None and not self._connection.is_open:
            await self.end()
        if self._connection is None:
            limits = self._limits
            self._connection = await WorkerConnection.start(limits.memory_mb, limits.time_limit_s)
        return self._connection


def _outcome(reply: Reply, noted: Values) -> _Finished:
    if isinstance(reply, Shaped):
        return _Finished(reply.content, reply.spent_us, "done")
    if isinstance(reply, Evaluated):
        return _Finished(noted, reply.spent_us, "done")
    if isinstance(reply, Failed):
        return _Finished(JobFailure("failed", reply.problem), reply.spent_us, "failed")
    raise WorkerDiedError("unexpected reply from a worker process")


def _partial_values(work: Work, noted: Values) -> Values | None:
    """The known values although the last condition timed out; the rest are unknown."""
    if not isinstance(work, XPathWork):
        return None
    return [*noted, *[None] * (len(work.conditions) - len(noted))]
