"""Sizes and durations as people write them: `16 MB`, `64 MiB`, `24h`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

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
DURATIONS_S: Final = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}

_QUANTITY: Final = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]+)\s*", re.ASCII)


def parse_size(text: str) -> int | None:
    """Bytes, or None where `text` is no whole number of them."""
    return _parse(text, SIZES)


def parse_duration(text: str) -> int | None:
    """Seconds, or None where `text` is no whole number of them."""
    return _parse(text, DURATIONS_S)


def format_size(size: int) -> str:
    """The shortest way to write `size` exactly."""
    return _format(size, SIZES, " ")


def format_duration(duration_s: int) -> str:
    return _format(duration_s, DURATIONS_S, "")


def _parse(text: str, units: dict[str, int]) -> int | None:
    quantity = _QUANTITY.fullmatch(text)
    factor = units.get(quantity[2]) if quantity else None
    if quantity is None or factor is None:
        return None
    value = Decimal(quantity[1]) * factor
    return int(value) if value == int(value) else None


def _format(value: int, units: dict[str, int], space: str) -> str:
    fitting = [(value // factor, unit) for unit, factor in units.items() if value % factor == 0]
    number, unit = min(fitting, key=lambda each: each[0]) if value else fitting[0]
    return f"{number}{space}{unit}"
