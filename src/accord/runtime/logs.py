"""Structured logs: a constant message, and fields that vary.

    log = get_log(__name__)
    log.warning("client: malformed packet received", client="raven-7", problem="…")

Logs must not harm the node. A separate thread writes records from a bounded queue, because a full
pipe or a stopped terminal would otherwise block the event loop. Repeats of a message are suppressed
after the first few and summarised later.

Foreign values (client IDs, channels, reasons) are escaped, so that they can't inject log lines or
terminal commands.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile
from logging.handlers import RotatingFileHandler
from typing import Annotated, Final, Literal, TextIO

from msgspec import Meta, Struct

from accord.core.model.errors import AccordError, file_problem

MAX_VALUE_LENGTH: Final = 1_000
FIELDS: Final = "accord_fields"  # attribute of a record that holds its fields


class ConsoleFormatter(logging.Formatter):
    """One line per record: time, level, message, fields as name=value; tracebacks are indented."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        words = [
            _time(record),
            f"{record.levelname:<7}",
            escape(record.getMessage()),
            *(f"{escape(name)}={_shown(value)}" for name, value in fields.items()),
        ]
        lines = [" ".join(words)]
        if record.exc_text:
            lines += [f"    | {escape(line)}" for line in record.exc_text.splitlines()]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, log and message, and each field beside them."""

    def format(self, record: logging.LogRecord) -> str:
        own = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "log": record.name,
            "message": record.getMessage(),
        }
        if record.exc_text:
            own["traceback"] = record.exc_text
        fields = {name: _plain(value) for name, value in _fields(record).items()}
        return json.dumps({**fields, **own})


def escape(text: str) -> str:
    """`text` on one line, with control characters shown as escapes."""
    if len(text) > MAX_VALUE_LENGTH:
        text = f"{text[:MAX_VALUE_LENGTH]}… ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )


def _shown(value: object) -> str:
    text = str(_plain(value))
    if text and not any(c in text for c in ' "=') and text.isprintable():
        return escape(text)
    return '"' + escape(text.replace("\\", "\\\\")).replace('"', '\\"') + '"'


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, FIELDS, {})
    return fields


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RepeatLimiter:
    """Passes `burst` records of the same message per period, and counts the rest."""

    def __init__(
        self,
        *,
        burst: int = 50,
        period_s: float = 10.0,
        kinds: int = 1_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._burst, self._period_s, self._kinds, self._clock = burst, period_s, kinds, clock
        self._seen: dict[tuple[str, int, str], _Seen] = {}

    def admit(self, record: logging.LogRecord) -> bool:
        kind = (record.name, record.levelno, str(record.msg)[:MAX_VALUE_LENGTH])
        seen = self._seen.get(kind)
        if seen is None:
            if len(self._seen) >= self._kinds:
                kind = (record.name, record.levelno, "other messages")
            seen = self._seen.setdefault(kind, _Seen(self._clock()))
        seen.count += 1
        return seen.count <= self._burst

    def summaries(self, *, is_last: bool = False) -> list[logging.LogRecord]:
        """One record per message that was suppressed in a period now over; resets their counts."""
        due = self._clock() - self._period_s
        # In order of first occurrence, so the oldest come first.
        ended = list(takewhile(lambda kind: is_last or self._seen[kind].since_s <= due, self._seen))
        found = []
        for kind in ended:
            cut = self._seen.pop(kind).count - self._burst
            if cut > 0:
                name, level, message = kind
                summary = logging.LogRecord(name, level, "", 0, message, None, None)
                setattr(summary, FIELDS, {"repeated": cut, "within_s": self._period_s})
                found.append(summary)
        return found


class _Seen:
    __slots__ = ("count", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.count = 0


class BoundedHandler(logging.Handler):
    """Passes records to `target` in its own thread; drops them if the queue is full."""

    def __init__(
        self,
        target: logging.Handler,
        *,
        repetition: RepeatLimiter | None = None,
        waiting: int = 10_000,
        tick_s: float = 1.0,
    ) -> None:
        super().__init__()
        self.dropped = 0
        self._target = target
        self._repetition = repetition or RepeatLimiter()
        self._tick_s = tick_s
        self._queue: queue.Queue[logging.LogRecord | None] = queue.Queue(waiting)
        self._is_closed = False
        self._thread = threading.Thread(target=self._write, name="accord-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_closed or not self._repetition.admit(record):
            return
        # Formatted now: arguments may have changed when the thread writes the record.
        try:
            record.msg, record.args = record.getMessage(), None
        except Exception:  # mismatched arguments, from any library
            record.args = None
        if record.exc_info:
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            record.exc_info = None
        self._put(record)

    def close(self) -> None:
        """Write queued records, with a short timeout: the reader may be stopped."""
        if not self._is_closed:
            self._is_closed = True
            self.acquire()
            for record in self._repetition.summaries(is_last=True):
                self._put(record)
            self.release()
            with suppress(queue.Full):
                self._queue.put(None, timeout=1.0)
            self._thread.join(timeout=2.0)
            if not self._thread.is_alive():
                self._target.close()
        super().close()

    def _put(self, record: logging.LogRecord) -> None:
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def _write(self) -> None:
        while True:
            with suppress(queue.Empty):
                record = self._queue.get(timeout=self._tick_s)
                if record is None:
                    return
                self._target.handle(record)
            self._write_summaries()

    def _write_summaries(self) -> None:
        self.acquire()
        summaries = self._repetition.summaries()
        dropped, self.dropped = self.dropped, 0
        self.release()
        for record in summaries:
            self._target.handle(record)
        if dropped:
            record = logging.LogRecord(__name__, logging.WARNING, "", 0, "log lines lost", (), None)
            setattr(record, FIELDS, {"count": dropped})
            self._target.handle(record)


_CALLER: Final = 3  # frames between the record's creation and the caller of `log.info`


class LogSettings(Struct, frozen=True, kw_only=True):
    """Level, format and destination of the logs."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least severe messages that are logged."),
    ] = "info"
    format: Annotated[
        Literal["console", "json"],
        Meta(description="Lines for people, or a JSON object per line."),
    ] = "console"
    file: Annotated[
        str,
        Meta(description="Where to log; to standard error if left out.", extra={"kind": "path"}),
    ] = ""
    file_bytes: Annotated[
        int,
        Meta(ge=1_000, le=1 << 40, description="Size at which a log file is put aside."),
    ] = 10_000_000
    files: Annotated[
        int, Meta(ge=1, le=1_000, description="Files put aside before the oldest is removed.")
    ] = 5


class LogError(AccordError):
    """The log file can't be written."""

    def __init__(self, file: str, problem: str) -> None:
        self.file = file
        self.problem = problem
        super().__init__(f"{file}: {problem}")


class Log:
    """A named log that takes fields as keywords."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, message: str, **fields: object) -> None:
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: object) -> None:
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, **fields: object) -> None:
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._log(logging.ERROR, message, fields)

    def failure(self, message: str, error: BaseException, **fields: object) -> None:
        """Log an unexpected error with its traceback."""
        self._log(logging.ERROR, message, fields, error)

    def _log(
        self,
        level: int,
        message: str,
        fields: Mapping[str, object],
        error: BaseException | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            extra = {FIELDS: fields}
            self._logger.log(level, message, extra=extra, exc_info=error, stacklevel=_CALLER)


def get_log(name: str) -> Log:
    return Log(logging.getLogger(name))


class Logs:
    """All logging of a process, from `start_logs` to `close`."""

    def __init__(self, handler: BoundedHandler, before: tuple[int, list[logging.Handler]]) -> None:
        self._handler = handler
        self._before = before

    def close(self) -> None:
        """Write queued records and restore the previous logging set-up."""
        root = logging.getLogger()
        root.setLevel(self._before[0])
        root.handlers[:] = self._before[1]
        logging.captureWarnings(False)
        self._handler.close()

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_logs(settings: LogSettings, *, stream: TextIO | None = None) -> Logs:
    """Start logging according to `settings`; `stream` replaces standard error."""
    target: logging.Handler = (
        _open_file(settings) if settings.file else logging.StreamHandler(stream or sys.stderr)
    )
    target.setFormatter(JsonFormatter() if settings.format == "json" else ConsoleFormatter())
    handler = BoundedHandler(target)
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    logging.captureWarnings(True)
    return Logs(handler, before)


def _open_file(settings: LogSettings) -> logging.Handler:
    try:
        return _QuietFileHandler(
            settings.file,
            maxBytes=settings.file_bytes,
            backupCount=settings.files,
            encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError as error:
        raise LogError(settings.file, file_problem(error)) from None


class _QuietFileHandler(RotatingFileHandler):
    """A full disk loses log lines, without a traceback on standard error for each."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002
        return
