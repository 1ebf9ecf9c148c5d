"""Amounts for people: sizes, rates, counts and times with their units."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_SIZES: Final = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3))


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


def moment_text(time_ms: int) -> str:
    """Date and time of day, in the local zone."""
    return f"{_local(time_ms):%Y-%m-%d %H:%M:%S}"


def clock_text(time_ms: int) -> str:
    return f"{_local(time_ms):%H:%M:%S}"


def _local(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1_000).astimezone()
