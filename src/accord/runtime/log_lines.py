"""Formats log records as text.

Foreign values (client IDs, channels, reasons) are escaped, so that they can't inject log lines or
terminal commands.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

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
