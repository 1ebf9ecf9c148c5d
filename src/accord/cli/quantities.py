"""Parses durations, and formats amounts."""

from __future__ import annotations

import re
from typing import Final

from accord.cli.errors import InputError

MAX_DURATION_S: Final = 30 * 86_400.0

_UNITS_S: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)", re.ASCII)
_SIZES: Final = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3))


def read_duration_s(text: str, where: str, *, needs_unit: bool = False) -> float:
    """Seconds, by default also without a unit; `where` names the option."""
    found = _DURATION.fullmatch(text.strip())
    unit_s = _UNITS_S.get(found[2]) if found else None
    if found is None or unit_s is None:
        raise InputError(where, f"expected a duration such as 500ms, 10s or 2min, got {text!r}")
    if needs_unit and not found[2]:
        units = ", ".join(unit for unit in _UNITS_S if unit)
        raise InputError(where, f"expected a unit ({units}), as in {text.strip()}ms, got {text!r}")
    duration_s = float(found[1]) * unit_s
    if not 0 < duration_s <= MAX_DURATION_S:
        raise InputError(where, f"expected more than nothing and at most 30 days, got {text!r}")
    return duration_s


def size_text(size: float) -> str:
    for unit, factor in _SIZES:
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:.0f} B"


def rate_text(rate: float) -> str:
    """Per second, with a fraction for small values."""
    return f"{rate:,.0f}" if rate >= 10 or rate == int(rate) else f"{rate:.1f}"


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration_text(duration_s: float) -> str:
    """In the two largest units."""
    seconds = int(duration_s)
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"


def latency_text(latency_s: float) -> str:
    """Three digits, in a suitable unit."""
    value, unit = (latency_s, "s") if latency_s >= 1 else (latency_s * 1e3, "ms")
    if value < 1:
        value, unit = latency_s * 1e6, "µs"
    digits = 0 if value >= 100 or unit == "µs" else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"
