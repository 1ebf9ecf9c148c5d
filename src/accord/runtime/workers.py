"""Pool of worker processes for work that would block the event loop: shaping, and costly XPath.

Jobs wait in the order of the node's strategy, in a bounded backlog. Processes are started on
demand, each as a new interpreter: no state of the node is copied. A job that exceeds its time limit
or ends its process has failed; it is not retried, and the process is replaced when the next job
needs one.

One worker process and the pipes to it, as seen by the node.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, cast

import msgspec
from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.core.scheduling.tasks import Task, Tasks, WorkerJob
from accord.runtime.logs import get_log
from accord.runtime.process import Clock
from accord.runtime.worker_jobs import (
    LENGTH,
    MAX_FRAME,
    UNKNOWN_US,
    ConditionEvaluated,
    Evaluated,
    Failed,
    FailureKind,
    JobFailure,
    JobOutcome,
    Ready,
    Reply,
    Shaped,
    ShapeWork,
    Values,
    Work,
    XPathWork,
    frame,
    read_reply,
)

START_LIMIT_S: Final = 60.0  # the machine may be busy; a worker that hangs is abandoned then
_END_S: Final = 5.0
_STDIN: Final = 0
_STDOUT: Final = 1


class WorkerDiedError(AccordError):
    """A worker process ended, or sent garbage, before it replied."""


class WorkerConnection(asyncio.SubprocessProtocol):
    """The connection to one worker process; `replies` ends with None."""

    def __init__(self) -> None:
        self.replies: asyncio.Queue[Reply | None] = asyncio.Queue()
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.SubprocessTransport | None = None
        self._received = bytearray()

    @classmethod
    async def start(cls, memory_mb: int, time_limit_s: float) -> WorkerConnection:
        """Start a process and wait until it is ready. Raises WorkerDiedError if it never is."""
        command = [sys.executable, "-P", "-m", "accord.runtime.worker_process"]
        try:
            _, line = await asyncio.get_running_loop().subprocess_exec(
                cls,
                *command,
                str(memory_mb),
                str(time_limit_s),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C goes to the node, which then stops it
            )
        except OSError as error:
            raise WorkerDiedError(f"can't start a worker process: {error}") from None
        try:
            async with asyncio.timeout(START_LIMIT_S):
                if not isinstance(await line.next(), Ready):
                    raise WorkerDiedError("worker process failed to start")
        except BaseException as error:
            await line.end()
            if isinstance(error, TimeoutError):
                raise WorkerDiedError("worker process not ready in time") from None
            raise
        return line

    @property
    def pid(self) -> int:
        return self._process().get_pid()

    @property
    def is_open(self) -> bool:
        return not self._closed.done() and self._process().get_returncode() is None

    def send(self, work: Work) -> None:
        pipe = cast(asyncio.WriteTransport | None, self._process().get_pipe_transport(_STDIN))
        if pipe is None:
            raise WorkerDiedError("idle worker process exited")
        pipe.write(frame(work))

    async def next(self) -> Reply:
        """The next reply. Raises WorkerDiedError if there will be none."""
        reply = await self.replies.get()
        if reply is None:
            self.replies.put_nowait(None)
            raise WorkerDiedError(await self._exit_reason())
        return reply

    async def end(self) -> None:
        """Kill the process and wait until it and its pipes are closed."""
        self._kill()
        # Wait for the child watcher first: closing would reap the process before it.
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.shield(self._exited)
        self._process().close()  # the pipes too: child processes may hold them open
        await asyncio.shield(self._closed)

    async def _exit_reason(self) -> str:
        await self.end()
        code = self._process().get_returncode()
        if code is None or code >= 0:
            return f"worker process exited with code {code}"
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        return f"worker process killed by {name}"

    def _kill(self) -> None:
        """Kill the process group, including what a plug-in started."""
        if self._process().get_returncode() is None:
            with suppress(ProcessLookupError, PermissionError):
                if hasattr(os, "killpg"):
                    os.killpg(self.pid, signal.SIGKILL)
                else:
                    self._process().kill()

    def _process(self) -> asyncio.SubprocessTransport:
        assert self._transport is not None
        return self._transport

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != _STDOUT:
            return
        self._received += data
        while len(self._received) >= LENGTH:
            end = LENGTH + int.from_bytes(self._received[:LENGTH], "big")
            if end > MAX_FRAME:
                self._abandon()
                return
            if len(self._received) < end:
                return
            body = bytes(memoryview(self._received)[LENGTH:end])
            del self._received[:end]
            try:
                self.replies.put_nowait(read_reply(body))
            except msgspec.DecodeError:
                self._abandon()
                return

    def _abandon(self) -> None:
        """Kill a worker that was compromised or is broken; its further output is ignored."""
        self._received.clear()
        self.replies.put_nowait(None)
        self._kill()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        if fd == _STDOUT:
            self.replies.put_nowait(None)

    def process_exited(self) -> None:
        if not self._exited.done():
            self._exited.set_result(None)
        self.replies.put_nowait(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """The process has ended and all pipes are closed."""
        self.replies.put_nowait(None)
        if not self._closed.done():
            self._closed.set_result(None)


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
        log.failure("worker result: not usable", error)


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
            log.warning("worker process: replaced", reason=failure.reason, kind=failure.kind)
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
