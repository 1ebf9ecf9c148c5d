"""Times as operators write them: `-24h`, `now`, an ISO 8601 time, a day."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

NOW: Final = "now"
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_AGO: Final = re.compile(r"-\s?(\d{1,12}(?:\.\d{1,6})?)\s?([a-z]+)", re.ASCII)
_LONGEST: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EXPECTED: Final = "expected a time such as -24h, -30min, now, 2026-11-16 or 2026-11-16T07:30:00Z"


def parse_time(text: str, *, now_ms: int) -> int:
    """Milliseconds since 1970; without a zone it is UTC. ValueError states what was expected."""
    text = text.strip()
    if text == NOW:
        return now_ms
    ago = _AGO.fullmatch(text)
    if ago is not None and ago[2] in _UNITS_MS:
        return max(0, now_ms - round(float(ago[1]) * _UNITS_MS[ago[2]]))
    try:
        moment = datetime.fromisoformat(text) if len(text) <= _LONGEST else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(f"{EXPECTED}, got {text[:_LONGEST]!r}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return max(0, round((moment - _EPOCH).total_seconds() * 1_000))
    except OverflowError:
        raise ValueError(f"{EXPECTED}, got {text!r}") from None
