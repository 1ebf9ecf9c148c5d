"""The data pipeline as the node sees it: a process beside it that archives, and answers questions.

The process may end at any time, hang or talk nonsense; then it is started again, after pauses that
grow. Live traffic never waits for it. Questions do: those that are not answered when it ends are
asked again, as nothing is remembered between two of them. Only where it ends for the lack of
something that somebody has to provide, such as Java, they are told so at once.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import structs

from accord.core.monitoring.statistics import PipelineStatus
from accord.edges.pipeline.messages import (
    Ask,
    Cancel,
    Failed,
    FromPipeline,
    Health,
    Measured,
    Page,
    Query,
    ReportAsked,
    ReportMade,
    Start,
    Watch,
    Watched,
)
from accord.live.durability import EVENTS
from accord.live.logs import get_log
from accord.live.pipeline_options import PipelineError, PipelineOptions, why_off
from accord.live.pipeline_process import OUTPUT, PipelineProcess

log = get_log(__name__)

ARCHIVE: Final = "archive"
WORK: Final = "pipeline"
MAX_QUESTIONS: Final = 200
MAX_TIMES: Final = 3  # a question may be what the process dies of
OFF: Final = "off"
_SETTINGS_CODE: Final = 2
_NOT_ASKED_IN: Final = ("starting", "stopping")
_SUMS: Final = ("events", "ledger_rows", "compactions", "queries")
_LOOK_S: Final = 1.0


class _Question:
    """Something asked that is not answered yet."""

    def __init__(self, message: Query | ReportAsked) -> None:
        self.message = message
        self.times = 0
        self.answer: asyncio.Future[Page | ReportMade] = asyncio.get_running_loop().create_future()

    def fail(self, error: PipelineError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Pipeline:
    """Starts and supervises the process, from `start` to `close`."""

    def __init__(
        self,
        options: PipelineOptions | None,
        *,
        node: str,
        data: Path | None,
        on_measured: Callable[[Measured], None] | None = None,
    ) -> None:
        self.options = options or PipelineOptions()
        why = why_off(options, data)
        self.is_enabled = not why
        self.health = Health(state=OFF, problem=why) if why else Health()
        self.archive = self.options.archive or (None if data is None else data / ARCHIVE)
        self._node = node
        self._data = data
        self._on_measured = on_measured
        self._process: PipelineProcess | None = None
        self._ready_s: float | None = None  # since when this process has been ready
        self._restarts = 0
        self._before = Health()  # what all processes before this one have done
        self._told_s = time.monotonic()  # when it said last how far it is
        self._told = ""  # of what went wrong, to say it once
        self._remedy = ""  # where only somebody can help
        self._watched: tuple[Watched, ...] | None = None
        self._questions: dict[int, _Question] = {}
        self._ids = itertools.count(1)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Returns at once: it is ready when `health` says so."""
        if self.is_enabled and self._task is None:
            self._task = asyncio.create_task(self._supervise(), name="accord-pipeline")

    async def close(self) -> None:
        """Have the process end what it does, and stop it."""
        self.turn_away()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self.health = structs.replace(self.health, state="stopping")

    def turn_away(self) -> None:
        """Answer nobody any more: neither who waits, nor who comes yet."""
        self._is_closed = True
        self._fail_all(_stopping())

    async def page(  # noqa: PLR0913 (by keyword, most are left out)
        self,
        ask: Ask,
        *,
        cursor: str = "",
        rows: int = 1_000,
        bytes_: int = 1 << 20,
        importance: int = 3,
        timeout_s: float | None = None,
    ) -> Page:
        """The first page of what is asked for, or the one behind `cursor`; PipelineError."""
        question = Query(
            id=next(self._ids),
            ask=ask,
            cursor=cursor,
            rows=rows,
            bytes=bytes_,
            importance=importance,
        )
        answer = await self._answer(question, timeout_s)
        if not isinstance(answer, Page):
            raise PipelineError("failed", "the data pipeline answered with a report, not a page")
        return answer

    async def report(
        self,
        *,
        since_ms: int,
        until_ms: int,
        channel: str = "#",
        importance: int = 3,
        timeout_s: float | None = None,
    ) -> bytes:
        """Delivered quality, as JSON; PipelineError."""
        question = ReportAsked(
            id=next(self._ids),
            since_ms=since_ms,
            until_ms=until_ms,
            channel=channel,
            importance=importance,
        )
        answer = await self._answer(question, timeout_s)
        if not isinstance(answer, ReportMade):
            raise PipelineError("failed", "the data pipeline answered with a page, not a report")
        return answer.body

    def watch(self, predicates: Sequence[Watched]) -> None:
        """Have the rates and selectivities of these measured from now on."""
        watched = tuple(predicates)
        if watched != self._watched:
            self._watched = watched
            if self._process is not None and self._is_answering():
                self._process.send(Watch(watched))

    def status(self, committed_offset: int = 0) -> PipelineStatus:
        """How it is; while it can't say so itself, how far it is behind the journal's end."""
        health = self.health
        known = set(PipelineStatus.__struct_fields__)
        fields = {name: value for name, value in structs.asdict(health).items() if name in known}
        if health.state not in ("ready", OFF):
            fields["lag_records"] = behind = max(0, committed_offset - health.archived_offset)
            silent_ms = round((time.monotonic() - self._told_s) * 1_000)
            fields["lag_ms"] = health.lag_ms + silent_ms if behind else 0
        archive = "" if self.archive is None else str(self.archive)
        return PipelineStatus(**fields, archive=archive, waiting=len(self._questions))

    # Questions.

    async def _answer(
        self, message: Query | ReportAsked, timeout_s: float | None
    ) -> Page | ReportMade:
        self._check_possible()
        question = _Question(message)
        self._questions[message.id] = question
        try:
            self._ask(question)
            async with asyncio.timeout(self.options.timeout_s if timeout_s is None else timeout_s):
                return await question.answer
        except TimeoutError:
            raise self._too_late(question) from None
        finally:
            if self._questions.pop(message.id, None) is not None and question.times:
                self._send_cancel(message.id)

    def _check_possible(self) -> None:
        if self._is_closed:
            raise _stopping()
        if not self.is_enabled:
            raise PipelineError("off", f"there is no data pipeline: {self.health.problem}")
        if self._remedy:
            raise self._unavailable()
        if len(self._questions) >= MAX_QUESTIONS:
            problem = f"{MAX_QUESTIONS} questions wait for the data pipeline, try again later"
            raise PipelineError("busy", problem, retry_s=5)

    def _ask(self, question: _Question) -> None:
        if self._process is None or not self._is_answering():
            return
        question.times += 1
        self._process.send(question.message)

    def _send_cancel(self, number: int) -> None:
        if self._process is not None and self._is_answering():
            self._process.send(Cancel(number))

    def _is_answering(self) -> bool:
        return self._process is not None and self.health.state not in _NOT_ASKED_IN

    def _too_late(self, question: _Question) -> PipelineError:
        if question.times:
            return PipelineError("timeout", "the data pipeline did not answer in time", retry_s=5)
        return self._unavailable()

    def _unavailable(self) -> PipelineError:
        problem = f": {self.health.problem}" if self.health.problem else ""
        words = f"the data pipeline is not ready ({self.health.state}{problem})"
        return PipelineError("unavailable", words, retry_s=60 if self._remedy else 5)

    def _fail_all(self, error: PipelineError) -> None:
        questions, self._questions = self._questions, {}
        for question in questions.values():
            question.fail(error)

    # What the process says.

    def _handle(self, message: FromPipeline) -> None:
        match message:
            case Health():
                self._take_health(message)
            case Measured():
                if self._on_measured is not None:
                    self._on_measured(message)
            case Page() | ReportMade() | Failed():
                self._take_answer(message)

    def _take_answer(self, message: Page | ReportMade | Failed) -> None:
        question = self._questions.pop(message.id, None)
        if question is None or question.answer.done():
            return  # nobody waits any more
        if isinstance(message, Failed):
            question.fail(PipelineError(message.kind, message.problem, message.place))
        else:
            question.answer.set_result(message)

    def _take_health(self, told: Health) -> None:
        was_answering = self._is_answering()
        sums = {name: getattr(self._before, name) + getattr(told, name) for name in _SUMS}
        self.health = structs.replace(told, restarts=self._restarts, **sums)
        if told.state == "ready" or told.lag_ms:
            self._told_s = time.monotonic()
        if told.problem:
            self._tell(told.problem)
        if told.state == "ready" and self._ready_s is None:
            self._ready_s = time.monotonic()
            log.info("the data pipeline is ready", spark=told.spark, version=told.spark_version)
        if not was_answering and self._is_answering():
            self._catch_up()

    def _catch_up(self) -> None:
        """Say to a process what it must know, and what is not answered yet."""
        assert self._process is not None
        if self._watched is not None:
            self._process.send(Watch(self._watched))
        for question in self._questions.values():
            self._ask(question)

    # The life of the process.

    async def _supervise(self) -> None:
        pause_s = self.options.patience.first_pause_s
        while True:
            try:
                problem, code = await self._run()
            except Exception as error:  # or there would be no pipeline ever after
                log.failure("supervising the data pipeline failed", error)
                problem, code = f"it could not be supervised: {error!r}", None
            patience = self.options.patience
            if self._was_calm():
                pause_s, self._told = patience.first_pause_s, ""
            is_lacking = code == _SETTINGS_CODE
            self._take_end(problem, is_lacking=is_lacking)
            await asyncio.sleep(patience.settings_pause_s if is_lacking else pause_s)
            if not is_lacking:
                pause_s = min(2 * pause_s, patience.longest_pause_s)
            self._restarts += 1

    async def _run(self) -> tuple[str, int | None]:
        """One process from its start to its end; why it ended, and with which code."""
        assert self._data is not None
        work = self._data / WORK
        self._remedy, self._ready_s = "", None
        self.health = structs.replace(
            self.health, state="starting", queries_running=0, queries_waiting=0, rows_per_s=0.0
        )
        process = PipelineProcess(work / OUTPUT, self._handle)
        try:
            work.mkdir(parents=True, exist_ok=True)
            await process.start(self._command())
        except OSError as error:
            return f"it could not be started: {error}", None
        self._process = process
        stop_s = self.options.patience.stop_s
        try:
            process.send(self._start_message())
            silence = await self._watch_over(process)
            stop_s = 1.0  # nothing that it could still do is worth waiting for
        finally:
            self._process = None
            await process.stop(stop_s, self.options.patience.term_s)
        return silence or process.problem or _end_of(process, self.health), process.code

    async def _watch_over(self, process: PipelineProcess) -> str:
        """Until it ends, talks nonsense or hangs; what is wrong in the last case."""
        patience = self.options.patience
        while True:
            is_new = self._ready_s is None
            silence_s = patience.start_silence_s if is_new else patience.silence_s
            try:
                async with asyncio.timeout(min(_LOOK_S, silence_s)):
                    await process.has_ended.wait()
                return ""
            except TimeoutError:
                process.bound_output()
            if time.monotonic() - process.heard_s > silence_s:
                return f"it said nothing for {silence_s:.0f} s"

    def _take_end(self, problem: str, *, is_lacking: bool) -> None:
        self._before = structs.replace(
            self._before, **{name: getattr(self.health, name) for name in _SUMS}
        )
        state = "failed" if is_lacking else "starting"
        self.health = structs.replace(
            self.health, state=state, problem=problem, restarts=self._restarts, rows_per_s=0.0
        )
        self._tell(problem)
        if is_lacking:
            self._remedy = problem
            self._fail_all(self._unavailable())
            return
        for number, question in list(self._questions.items()):
            if question.times >= MAX_TIMES:
                del self._questions[number]
                words = f"the data pipeline ended {MAX_TIMES} times before it had answered"
                question.fail(PipelineError("failed", f"{words}: {problem}"))

    def _tell(self, problem: str) -> None:
        """Once: it may come again and again."""
        if problem != self._told:
            self._told = problem
            log.warning("the data pipeline has a problem", problem=problem)

    def _was_calm(self) -> bool:
        return (
            self._ready_s is not None
            and time.monotonic() - self._ready_s > self.options.patience.calm_s
        )

    def _command(self) -> tuple[str, ...]:
        return self.options.command or (sys.executable, "-P", "-m", "accord.pipeline")

    def _start_message(self) -> Start:
        assert self._data is not None
        assert self.archive is not None
        options = self.options
        return Start(
            node=self._node,
            journal=str((self._data / EVENTS).resolve()),
            archive=str(self.archive.resolve()),
            work=str((self._data / WORK).resolve()),
            spark=options.spark,
            interval_ms=options.interval_ms,
            retain_ms=options.retain_ms,
            large_bytes=options.large_bytes,
            memory_mb=options.memory_mb,
            timeout_s=options.timeout_s,
            declared=options.declared,
        )


def _stopping() -> PipelineError:
    return PipelineError("unavailable", "the node is stopping", retry_s=5)


def _end_of(process: PipelineProcess, health: Health) -> str:
    """Why it ended: what it said itself, or else what can be seen."""
    code = process.code
    if health.state == "failed" and health.problem:
        return health.problem
    if code is not None and code < 0:
        known = -code in list(signal.Signals)
        how = f"it was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"
    else:
        how = f"it ended with code {code}"
    words = process.last_words()
    return f"{how}: {words}" if words else how
