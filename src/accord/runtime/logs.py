"""Structured logs: a constant message, and fields that vary.

    log = get_log(__name__)
    log.warning("client sent a malformed packet", client="raven-7", problem="…")

Logs must not harm the node: `log_limiter` bounds their cost, `log_lines` escapes foreign values.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from typing import Annotated, Final, Literal, TextIO

from msgspec import Meta, Struct

from accord.core.model.errors import AccordError, file_problem
from accord.runtime.log_limiter import BoundedHandler
from accord.runtime.log_lines import FIELDS, ConsoleFormatter, JsonFormatter

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
