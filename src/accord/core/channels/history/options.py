"""The channel option `persistent`: `true`, or a span such as `7d`."""

from __future__ import annotations

from typing import Final

from accord.core.model.times import parse_time
from accord.core.overlay.channel_directory import ChannelDefinition

PERSISTENT: Final = "persistent"
_NO: Final = ("", "false")
_ALL: Final = "true"
_LATE_MS: Final = 1 << 50
EXPECTED: Final = "expected true, or how far new subscribers look back, such as 7d or 12h"


def is_persistent(definition: ChannelDefinition | None) -> bool:
    return definition is not None and definition.options.get(PERSISTENT, "") not in _NO


def span_ms(definition: ChannelDefinition) -> int | None:
    """How far back a new subscription's history goes; None if there is no limit."""
    text = definition.options.get(PERSISTENT, "")
    return None if text in (*_NO, _ALL) or problem_with(text) else _read(text)


def problem_with(text: str) -> str:
    """Return why the option is invalid; "" if it is valid."""
    if text in (*_NO, _ALL):
        return ""
    try:
        _read(text)
    except ValueError:
        return f"{EXPECTED}, got {text[:40]!r}"
    return ""


def _read(text: str) -> int:
    if not text[:1].isdigit():
        raise ValueError(EXPECTED)
    return _LATE_MS - parse_time(f"-{text}", now_ms=_LATE_MS)
