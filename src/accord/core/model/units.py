"""Quantities and times as operators write them: `800 kbit/s`, `200 ms`, `40 KB`, `-24h`, `now`.

Importance is how much something matters to the mission, as a number that only policies grant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

NEVER_US: Final = 1 << 62  # later than any time of any clock
BANDWIDTHS_BPS: Final = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9}
DURATIONS_S: Final = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
DURATIONS_MS: Final = {"ms": 1, **{unit: 1_000 * value for unit, value in DURATIONS_S.items()}}
SIZES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

_QUANTITY: Final = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z/]+)\s*", re.ASCII)


def parse(text: str, units: Mapping[str, int]) -> int | None:
    """In the smallest of `units`, or None if `text` is not a whole number of them."""
    quantity = _QUANTITY.fullmatch(text)
    factor = units.get(quantity[2]) if quantity else None
    if quantity is None or factor is None:
        return None
    value = Decimal(quantity[1]) * factor
    return int(value) if value == int(value) else None


def render(value: int, units: Mapping[str, int], space: str = " ") -> str:
    """The shortest exact text for `value`."""
    fitting = [(value // factor, unit) for unit, factor in units.items() if value % factor == 0]
    number, unit = min(fitting, key=lambda each: each[0]) if value else fitting[0]
    return f"{number}{space}{unit}"


IMPORTANCES: Final = 8  # from 0, the least, to 7
DEFAULT_IMPORTANCE: Final = 3


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
