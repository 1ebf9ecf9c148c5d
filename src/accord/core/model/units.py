"""Bandwidths, durations and sizes as operators write them: `800 kbit/s`, `200 ms`, `40 KB`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

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
