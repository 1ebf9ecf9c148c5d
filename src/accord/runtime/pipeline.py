"""Supervises the data pipeline: a separate process that archives events and answers queries.

It is started here, or it is the one of a site, which connects. The process may exit, hang or send
garbage at any time; it is then restarted after a backoff. Live traffic never waits for it, and
archiving does not depend on queries. Requests in progress when it exited are sent to the next
process once more, one at a time, which identifies the one that ends the process: that one fails,
and similar ones are refused for a while. If the process exits because something must be provided
first, such as Java, requests are refused until it is there.

Options of the data pipeline, and its errors.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, Protocol, TypeVar

from msgspec import Struct, structs

from accord.core.model.errors import AccordError
from accord.core.monitoring.statistics import PipelineStatus
from accord.core.queries.messages import (
    Answerable,
    Answers,
    Cancel,
    EventQuery,
    ExportFormat,
    ExportPart,
    ExportRequest,
    FromNode,
    FromPipeline,
    Health,
    HistogramPart,
    HistogramRequest,
    LedgerLookup,
    LedgerReply,
    MeasuredValues,
    NetLookup,
    NetReply,
    Page,
    PageQuery,
    QueryFailure,
    ReportReply,
    ReportRequest,
    StartPipeline,
    WatchedPredicate,
    WatchPredicates,
)
from accord.runtime.durability import EVENTS
from accord.runtime.logs import get_log
from accord.runtime.pipeline_process import OUTPUT, PipelineProcess
from accord.runtime.pipeline_site import JournalRelease, Site

INSTALL: Final = "pip install 'accord[pipeline]'"
_NEEDED: Final = ("pyspark", "pyarrow", "pandas", "deltalake")

Kind = Literal["off", "unavailable", "busy", "timeout", "question", "failed", "ended"]


class PipelineTimeouts(Struct, frozen=True, kw_only=True):
    """Timeouts and restart delays of the pipeline's process, all in seconds."""

    first_pause_s: float = 1.0  # initial backoff before a restart; doubles each time
    max_pause_s: float = 60.0
    settings_pause_s: float = 300.0  # restart delay if the operator must act: no Java, bad settings
    refuse_s: float = 600.0  # for a request that ended the process twice
    stable_s: float = 60.0  # after working this long, the backoff is reset
    silence_s: float = 60.0  # silence after which it counts as hanging
    start_silence_s: float = 180.0  # the same before it is first ready
    stop_s: float = 15.0
    term_s: float = 5.0


class PipelineOptions(Struct, frozen=True, kw_only=True):
    """Settings from the [pipeline] section of `accord.toml`."""

    spark: str = ""
    spark_settings: dict[str, str] = {}
    archive: str = ""  # a directory, or a URI; empty: beside the journal
    interval_ms: int = 500
    retain_ms: int | None = None
    large_bytes: int = 1 << 20
    memory_mb: int = 1_024
    timeout_s: float = 60.0
    declared: dict[str, str] = {}
    is_site: bool = False  # none is started: the pipeline of the site connects
    command: tuple[str, ...] = ()  # starts another program, for tests
    timeouts: PipelineTimeouts = PipelineTimeouts()


_STATUS: Final[dict[Kind, int]] = {
    "off": 503,
    "unavailable": 503,
    "busy": 503,
    "timeout": 504,
    "question": 400,
    "failed": 500,
    "ended": 500,
}


class PipelineError(AccordError):
    """The pipeline gave no result.

    `kind`: it is `off` until the operator acts, `unavailable` at the moment, too `busy`, did not
    reply in time (`timeout`), `failed`, or its process `ended` while working on the request; or the
    `question` was invalid, at the location `place`. After `retry_s` a retry may succeed; 0: never.
    """

    def __init__(self, kind: Kind, problem: str, place: str = "", retry_s: int = 0) -> None:
        self.kind: Kind = kind
        self.problem = problem
        self.place = place
        self.retry_s = retry_s
        self.status = _STATUS[kind]
        super().__init__(f"{place}: {problem}" if place else problem)


def why_off(options: PipelineOptions | None, data: Path | None) -> str:
    """Why there can be no pipeline, and what to do; "" if there can."""
    if options is None:
        return "it is switched off (--no-pipeline, or enabled = false under [pipeline])"
    if data is None:
        return "nothing is kept on disk: it needs a folder in node.data (or --data)"
    return "" if options.command or options.is_site else why_missing()


def why_missing() -> str:
    """What is to be installed for a pipeline here; "" if nothing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: {INSTALL}" if missing else ""


log = get_log(__name__)

ARCHIVE: Final = "archive"
WORK: Final = "pipeline"
MAX_PENDING: Final = 200
MAX_SENDS: Final = 2  # per request: it may be what ends the process
MAX_REFUSED: Final = 100
OFF: Final = "off"
_ANSWERING: Final = ("partial", "ready")
_SETTINGS_CODE: Final = 2
_SUMS: Final = ("events", "ledger_rows", "compactions", "queries")
_CHECK_S: Final = 1.0


_Key = tuple[str, ...]
_Reply = TypeVar("_Reply", Page, HistogramPart, ExportPart, ReportReply, LedgerReply, NetReply)


class PipelineConnection(Protocol):
    """A pipeline at work: a process of the node, or the connection of the site's."""

    problem: str  # protocol violation
    received_s: float
    has_ended: asyncio.Event

    @property
    def code(self) -> int | None:
        """The exit code, if it is a process that has ended."""

    def send(self, message: FromNode) -> None: ...
    async def stop(self, timeout_s: float, term_s: float) -> None: ...
    def last_lines(self) -> tuple[str, ...]:
        """The last lines that it printed."""

    def bound_output(self) -> None: ...


class _Question:
    """A request without a reply yet."""

    def __init__(self, message: Answerable) -> None:
        self.message = message
        self.sends = 0
        self.is_sent = False  # to the current process
        self.reply: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()

    def fail(self, error: PipelineError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class Pipeline:
    """Starts the process or lets it connect, and supervises it, from `start` to `close`."""

    def __init__(
        self,
        options: PipelineOptions | None,
        *,
        node: str,
        data: Path | None,
        on_measured: Callable[[MeasuredValues], None] | None = None,
    ) -> None:
        self.options = options or PipelineOptions()
        why = why_off(options, data)
        self.is_enabled = not why
        self.lack = why  # why it can't run until the operator acts; "" if it can
        self.health = Health(state=OFF, problem=why) if why else Health()
        self.site = Site() if self.is_enabled and self.options.is_site else None
        self.archive = self.options.archive or ("" if data is None else str(data / ARCHIVE))
        if self.options.is_site:
            self.archive = ""  # the site's is no concern of the node
        self._node = node
        self._data = data
        self._on_measured = on_measured
        self._process: PipelineConnection | None = None
        self._release: JournalRelease | None = None
        self._ready_s: float | None = None  # when the current process became ready
        self._restarts = 0
        self._before = Health()  # totals of all previous processes
        self._progress_s = time.monotonic()  # time of the last progress report
        self._logged = ""  # last problem logged, to log it once
        self._last_end: tuple[str, int, tuple[str, ...]] = (
            "",
            0,
            (),
        )  # of the last process: why it ended, when in ms, and its last output
        self._on_lack: Callable[[str], None] = lambda _: None
        self._refused: dict[_Key, tuple[float, str]] = {}  # until when, and why
        self._watched: tuple[WatchedPredicate, ...] | None = None
        self._pending: dict[int, _Question] = {}
        self._ids = itertools.count(1)
        self._task: asyncio.Task[None] | None = None
        self._output: tuple[str, ...] = ()  # last output of the process that ended
        self._is_closed = False

    def start(self) -> None:
        """Start the process without waiting; `health` shows when it is ready."""
        if self.is_enabled and self._task is None:
            if self.site is not None and self._data is not None:
                self._release = JournalRelease(self._data / EVENTS)
                self._release.start()
            self._task = asyncio.create_task(self._supervise(), name="accord-pipeline")

    def watch_lack(self, on_lack: Callable[[str], None]) -> None:
        """Call `on_lack` with `lack`, now and at each change."""
        self._on_lack = on_lack
        on_lack(self.lack)

    async def close(self) -> None:
        """Let the process finish its current work, and stop it."""
        self.refuse_all()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self.health = structs.replace(self.health, state="stopping")

    def refuse_all(self) -> None:
        """Fail all pending and future requests."""
        self._is_closed = True
        if self.site is not None:
            self.site.close()
        self._fail_all(_stopping())

    async def page(  # noqa: PLR0913 (by keyword, most are left out)
        self,
        ask: EventQuery,
        *,
        cursor: str = "",
        rows: int = 1_000,
        bytes_: int = 1 << 20,
        within_ms: int = 10_000,
        importance: int = 3,
        timeout_s: float | None = None,
    ) -> Page:
        """The first page of a query, or the one after `cursor`. Raises PipelineError."""
        question = PageQuery(
            id=next(self._ids),
            ask=ask,
            cursor=cursor,
            rows=rows,
            bytes=bytes_,
            within_ms=within_ms,
            importance=importance,
        )
        return await self._ask(question, Page, timeout_s)

    async def histogram(  # noqa: PLR0913 (by keyword)
        self,
        ask: EventQuery,
        *,
        until_ms: int,
        cursor: str = "",
        buckets: int = 120,
        within_ms: int = 1_000,
        importance: int = 3,
    ) -> HistogramPart:
        """The first part of a histogram, or the one after `cursor`. Raises PipelineError."""
        question = HistogramRequest(
            id=next(self._ids),
            ask=ask,
            until_ms=until_ms,
            cursor=cursor,
            buckets=buckets,
            within_ms=within_ms,
            importance=importance,
        )
        return await self._ask(question, HistogramPart)

    async def export(  # noqa: PLR0913 (by keyword)
        self,
        ask: EventQuery,
        *,
        format_: ExportFormat,
        cursor: str = "",
        columns: dict[str, str] | None = None,
        bytes_: int = 4 << 20,
        importance: int = 3,
    ) -> ExportPart:
        """The first part of a file, or the one after `cursor`. Raises PipelineError."""
        question = ExportRequest(
            id=next(self._ids),
            ask=ask,
            format=format_,
            cursor=cursor,
            columns=columns or {},
            bytes=bytes_,
            importance=importance,
        )
        return await self._ask(question, ExportPart)

    async def report(
        self,
        *,
        since_ms: int,
        until_ms: int,
        channel: str = "#",
        importance: int = 3,
        timeout_s: float | None = None,
    ) -> bytes:
        """A report on delivered quality, as JSON. Raises PipelineError."""
        question = ReportRequest(
            id=next(self._ids),
            since_ms=since_ms,
            until_ms=until_ms,
            channel=channel,
            importance=importance,
        )
        return (await self._ask(question, ReportReply, timeout_s)).body

    async def ledger(self, number: int, most: int) -> bytes:
        """Archived outcomes of an event: `ArchivedEntry`s as msgpack. Raises PipelineError."""
        question = LedgerLookup(id=next(self._ids), number=number, most=most)
        return (await self._ask(question, LedgerReply)).body

    async def net_records(self, since_ms: int, until_ms: int, most: int) -> bytes:
        """Archived changes of the network, as in `NetReply`. Raises PipelineError."""
        question = NetLookup(id=next(self._ids), since_ms=since_ms, until_ms=until_ms, most=most)
        return (await self._ask(question, NetReply)).body

    def watch(self, predicates: Sequence[WatchedPredicate]) -> None:
        """Set the predicates whose rates and selectivities are measured."""
        watched = tuple(predicates)
        if watched != self._watched:
            self._watched = watched
            self._send(WatchPredicates(watched))

    def status(self, committed_offset: int = 0) -> PipelineStatus:
        """Health; while the process can't report, its lag is computed from the journal's end."""
        health = self.health
        known = set(PipelineStatus.__struct_fields__)
        fields = {name: value for name, value in structs.asdict(health).items() if name in known}
        if health.state not in (*_ANSWERING, OFF):
            fields["lag_records"] = behind = max(0, committed_offset - health.archived_offset)
            silent_ms = round((time.monotonic() - self._progress_s) * 1_000)
            fields["lag_ms"] = health.lag_ms + silent_ms if behind else 0
        last_end, last_end_ms, last_output = self._last_end
        return PipelineStatus(
            **fields,
            archive=self.archive,
            waiting=len(self._pending),
            last_end=last_end,
            last_end_ms=last_end_ms,
            last_output=last_output,
        )

    # Requests.

    async def _ask(
        self, message: Answerable, wanted: type[_Reply], timeout_s: float | None = None
    ) -> _Reply:
        reply = await self._request(message, timeout_s)
        if not isinstance(reply, wanted):
            problem = f"the data pipeline answered a {type(message).__name__} with a "
            raise PipelineError("failed", problem + type(reply).__name__)
        return reply

    async def _request(self, message: Answerable, timeout_s: float | None) -> Answers:
        self._check_possible(message)
        question = _Question(message)
        self._pending[message.id] = question
        try:
            self._send_pending()
            async with asyncio.timeout(self.options.timeout_s if timeout_s is None else timeout_s):
                return await question.reply
        except TimeoutError:
            if not self._is_answering():
                raise self._unavailable() from None
            problem = "the data pipeline did not answer in time"
            raise PipelineError("timeout", problem, retry_s=5) from None
        finally:
            if self._pending.pop(message.id, None) is not None and question.is_sent:
                self._send(Cancel(message.id))
            self._send_pending()

    def _check_possible(self, message: Answerable) -> None:
        if self._is_closed:
            raise _stopping()
        if self.lack:
            raise self._lacking()
        until_s, problem = self._refused.get(_key(message), (0.0, ""))
        left_s = until_s - time.monotonic()
        if left_s > 0:
            words = f"it ended the data pipeline {MAX_SENDS} times ({problem})"
            problem = f"refused for another {left_s:.0f} s: {words}"
            raise PipelineError("ended", problem, retry_s=round(left_s) + 1)
        if len(self._pending) >= MAX_PENDING:
            problem = f"{MAX_PENDING} questions wait for the data pipeline, try again later"
            raise PipelineError("busy", problem, retry_s=5)

    def _send_pending(self) -> None:
        """Send unsent requests; one that may have ended a process is sent first, and alone."""
        questions = self._pending.values()
        if not self._is_answering() or any(each.is_sent and each.sends > 1 for each in questions):
            return
        suspects = [each for each in questions if each.sends and not each.is_sent]
        for question in suspects[:1] or questions:
            if not question.is_sent:
                question.sends += 1
                question.is_sent = True
                self._send(question.message)

    def _send(self, message: FromNode) -> None:
        if self._process is not None and self._is_answering():
            self._process.send(message)

    def _is_answering(self) -> bool:
        return self._process is not None and self.health.state in _ANSWERING

    def _lacking(self) -> PipelineError:
        retry_s = 60 if self.is_enabled else 0
        return PipelineError("off", f"there is no data pipeline: {self.lack}", retry_s=retry_s)

    def _unavailable(self) -> PipelineError:
        problem = f": {self.health.problem}" if self.health.problem else ""
        words = f"the data pipeline is not ready ({self.health.state}{problem})"
        return PipelineError("unavailable", words, retry_s=5)

    def _fail_all(self, error: PipelineError) -> None:
        questions, self._pending = self._pending, {}
        for question in questions.values():
            question.fail(error)

    # Messages of the process.

    def _handle(self, message: FromPipeline) -> None:
        match message:
            case Health():
                self._on_health(message)
            case MeasuredValues():
                if self._on_measured is not None:
                    self._on_measured(message)
            case _:
                self._on_reply(message)

    def _on_reply(self, message: Answers | QueryFailure) -> None:
        question = self._pending.pop(message.id, None)
        if question is None or question.reply.done():
            return  # the request was cancelled
        if isinstance(message, QueryFailure):
            question.fail(PipelineError(message.kind, message.problem, message.place))
        else:
            question.reply.set_result(message)

    def _on_health(self, health: Health) -> None:
        was_answering = self._is_answering()
        sums = {name: getattr(self._before, name) + getattr(health, name) for name in _SUMS}
        self.health = structs.replace(health, restarts=self._restarts, **sums)
        if health.state in _ANSWERING or health.lag_ms:
            self._progress_s = time.monotonic()
        if self._release is not None:
            self._release.release(health.released_offset)
        if health.problem and health.state != "failed":  # a failed process is logged when it ends
            self._log_problem(health.problem)
        if health.state == "ready" and self._ready_s is None:
            self._ready_s = time.monotonic()
            self._set_lack("")
            log.info("pipeline: ready", spark=health.spark, version=health.spark_version)
        if not was_answering and self._is_answering():
            if self._watched is not None:
                self._send(WatchPredicates(self._watched))
            self._send_pending()

    # Life cycle of the process.

    async def _supervise(self) -> None:
        pause_s = self.options.timeouts.first_pause_s
        while True:
            try:
                problem, code = await self._run()
            except Exception as error:  # otherwise supervision would end for good
                log.failure("pipeline: supervision failed", error)
                problem, code = f"it could not be supervised: {error!r}", None
            timeouts = self.options.timeouts
            if self._was_stable():
                pause_s, self._logged = timeouts.first_pause_s, ""
            is_lacking = code == _SETTINGS_CODE
            wait_s = timeouts.settings_pause_s if is_lacking else pause_s
            if self.site is not None:
                wait_s = 0.0  # it comes by itself
            self._on_end(problem, is_lacking=is_lacking, wait_s=wait_s)
            await asyncio.sleep(wait_s)
            if not is_lacking:
                pause_s = min(2 * pause_s, timeouts.max_pause_s)
            self._restarts += 1

    async def _run(self) -> tuple[str, int | None]:
        """Run one process from start to end; returns why it ended and its exit code."""
        self._ready_s = None
        self.health = structs.replace(
            self.health, state="starting", queries_running=0, queries_waiting=0, rows_per_s=0.0
        )
        try:
            process = await (self._start_process() if self.site is None else self._await(self.site))
        except OSError as error:
            return f"it could not be started: {error}", None
        self._process = process
        stop_s = self.options.timeouts.stop_s
        try:
            silence = await self._watch_process(process)
            stop_s = 1.0  # it ended, hangs or sends garbage: no need to wait longer
        finally:
            self._process = None
            await process.stop(stop_s, self.options.timeouts.term_s)
        self._output = process.last_lines()
        return silence or process.problem or self._end_of(process), process.code

    async def _start_process(self) -> PipelineConnection:
        assert self._data is not None
        work = self._data / WORK
        process = PipelineProcess(work / OUTPUT, self._handle)
        work.mkdir(parents=True, exist_ok=True)
        await process.start(self._command())
        process.send(self._start_message())
        return process

    async def _await(self, site: Site) -> PipelineConnection:
        """Wait for the site's pipeline; after a while requests are refused until it is there."""
        waiting = (
            "waits for the pipeline of the site, which is not connected since"
            f" {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}: start `accord pipeline` with {self._node}"
            " under [pipeline.nodes]"
        )
        self.health = structs.replace(self.health, problem=waiting)
        try:
            async with asyncio.timeout(self.options.timeouts.silence_s):
                connection = await site.connected()
        except TimeoutError:
            self._set_lack(waiting)
            self._fail_all(self._lacking())
            connection = await site.connected()
        self._set_lack("")
        self.health = structs.replace(self.health, problem="")
        connection.accept(self._handle)
        log.info("pipeline: connected", address=connection.address)
        return connection

    async def _watch_process(self, process: PipelineConnection) -> str:
        """Wait until it ends, sends garbage or hangs; in the last case, returns the problem."""
        timeouts = self.options.timeouts
        while True:
            is_new = self._ready_s is None
            silence_s = timeouts.start_silence_s if is_new else timeouts.silence_s
            try:
                async with asyncio.timeout(min(_CHECK_S, silence_s)):
                    await process.has_ended.wait()
                return ""
            except TimeoutError:
                process.bound_output()
            if time.monotonic() - process.received_s > silence_s:
                return f"it said nothing for {silence_s:.0f} s"

    def _on_end(self, problem: str, *, is_lacking: bool, wait_s: float) -> None:
        output, self._output = self._output, ()
        self._last_end = (problem, time.time_ns() // 1_000_000, output)
        log.warning(
            "pipeline: exited",
            problem=problem,
            restarts=self._restarts,
            restart_in_s=wait_s,
            output="\n".join(output),
        )
        self._before = structs.replace(
            self._before, **{name: getattr(self.health, name) for name in _SUMS}
        )
        state = "failed" if is_lacking else "starting"
        self.health = structs.replace(
            self.health, state=state, problem=problem, restarts=self._restarts, rows_per_s=0.0
        )
        self._set_lack(problem if is_lacking else "")
        if is_lacking:
            self._fail_all(self._lacking())
        ended_of = {
            _key(each.message)
            for each in self._pending.values()
            if each.is_sent and each.sends >= MAX_SENDS
        }
        for key in ended_of:
            self._refuse(key, problem)
        for number, question in list(self._pending.items()):
            question.is_sent = False
            if _key(question.message) in ended_of:
                del self._pending[number]
                words = "the data pipeline exited during this request"
                question.fail(PipelineError("ended", f"{words}: {problem}"))

    def _refuse(self, key: _Key, problem: str) -> None:
        self._refused.pop(key, None)
        if len(self._refused) >= MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = (time.monotonic() + self.options.timeouts.refuse_s, problem)

    def _set_lack(self, lack: str) -> None:
        if lack != self.lack:
            self.lack = lack
            self._on_lack(lack)

    def _end_of(self, process: PipelineConnection) -> str:
        """Why the process ended: its own report, or else its exit code or signal."""
        if self.health.state == "failed" and self.health.problem:
            return self.health.problem
        code = process.code
        if code is None:
            how = "it disconnected"
        elif code < 0:
            known = -code in list(signal.Signals)
            how = f"it was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"
        else:
            how = f"it ended with code {code}"
        return f"{how}: {self._output[-1].strip()}" if self._output else how

    def _log_problem(self, problem: str) -> None:
        """Log a problem once, even if it repeats."""
        if problem != self._logged:
            self._logged = problem
            log.warning("pipeline: problem reported", problem=problem)

    def _was_stable(self) -> bool:
        return (
            self._ready_s is not None
            and time.monotonic() - self._ready_s > self.options.timeouts.stable_s
        )

    def _command(self) -> tuple[str, ...]:
        return self.options.command or (sys.executable, "-P", "-m", "accord.pipeline")

    def _start_message(self) -> StartPipeline:
        assert self._data is not None
        options = self.options
        return StartPipeline(
            node=self._node,
            journal=str((self._data / EVENTS).resolve()),
            archive=archive_place(self.archive),
            work=str((self._data / WORK).resolve()),
            spark=options.spark,
            spark_settings=options.spark_settings,
            interval_ms=options.interval_ms,
            retain_ms=options.retain_ms,
            large_bytes=options.large_bytes,
            memory_mb=options.memory_mb,
            timeout_s=options.timeout_s,
            declared=options.declared,
        )


def archive_place(archive: Path | str) -> str:
    """Where the archive is: on an object store by its URI, in a directory by its absolute path."""
    return str(archive) if "://" in str(archive) else str(Path(archive).resolve())


def _stopping() -> PipelineError:
    return PipelineError("unavailable", "the node is stopping", retry_s=5)


def _key(message: Answerable) -> _Key:
    """Key of a request; requests with the same key are likely to end alike."""
    match message:
        case ReportRequest():
            return ("report", message.channel)
        case HistogramRequest():
            kind: _Key = ("histogram",)
        case ExportRequest():
            kind = ("export", message.format)
        case LedgerLookup():
            return ("ledger",)
        case NetLookup():
            return ("net",)
        case _:
            kind = ()
    return (*kind, message.ask.channel, message.ask.where, message.ask.xpath)
