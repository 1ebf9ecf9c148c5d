"""Attribute values: five types, four kinds.

A value is a string, an integer (64 bits), a float (finite), a boolean or a timestamp (an instant,
to the microsecond). Integers and floats are one *kind*: they compare with each other. Values of
unlike kinds never compare; a predicate that tries gets unknown.

Text converts to numbers as in XPath.
"""

from __future__ import annotations

import enum
import math
import re
from datetime import UTC, datetime
from typing import Final

Value = str | int | float | bool | datetime

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
# Floats hold every integer up to here.
EXACT_MAX: Final = 2**53


class Kind(enum.IntEnum):
    """Values compare within a kind only."""

    NUMBER = 0
    STRING = 1
    BOOLEAN = 2
    TIMESTAMP = 3


_KINDS: Final[dict[type, Kind]] = {
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    str: Kind.STRING,
    bool: Kind.BOOLEAN,
    datetime: Kind.TIMESTAMP,
}


def kind_of(value: Value) -> Kind:
    return _KINDS[type(value)]


def problem_with(value: object) -> str | None:
    """Why `value` is not a valid attribute value, or None if it is."""
    kind = type(value)
    if kind not in _KINDS:
        return f"expected string, integer, float, boolean or timestamp, got {kind.__name__}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, got {value}"
    if kind is int and not INTEGER_MIN <= value <= INTEGER_MAX:  # type: ignore[operator]
        return f"expected an integer of 64 bits, got {value}"
    if isinstance(value, datetime) and value.utcoffset() is None:
        return "expected a timestamp with its time zone, got one without"
    if isinstance(value, str):
        return problem_with_text(value)
    return None


def problem_with_text(text: str) -> str | None:
    """Why `text` cannot be sent or stored, or None if it can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"expected Unicode text, got a lone surrogate at character {error.start + 1}"
    return None


# One expression for all types, because it runs once per attribute of every event.
_LITERAL: Final = re.compile(
    r"([+-]?[0-9]{1,19})"
    r"|([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)"
    r"|(true|false)"
    r"|(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2}))"
)
_INTEGER: Final = 1
_FLOAT: Final = 2
_BOOLEAN: Final = 3
_MAX_LITERAL: Final = 64


def infer(text: str) -> Value:
    """Infers the value of undeclared text.

    A number, `true`, `false` or an ISO 8601 time with its offset becomes that; everything else
    stays text, unchanged. An integer that 64 bits can't hold stays text: an identifier must not be
    rounded.
    """
    bare = text.strip()
    found = _LITERAL.fullmatch(bare) if len(bare) <= _MAX_LITERAL else None
    if found is None:
        return text
    kind = found.lastindex
    if kind == _INTEGER:
        number = int(bare)
        return number if INTEGER_MIN <= number <= INTEGER_MAX else text
    if kind == _FLOAT:
        real = float(bare)
        return real if math.isfinite(real) else text
    if kind == _BOOLEAN:
        return bare == "true"
    return parse_timestamp(bare) or text


def parse_timestamp(text: str) -> datetime | None:
    """ISO 8601 with an offset, or without one in UTC; None if `text` is not such a time."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


# What libxml2 accepts as a number: XPath 1.0's form, and an exponent.
_NUMBER: Final = re.compile(
    r"[ \t\r\n]*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]*))?[ \t\r\n]*"
)


def xpath_number(text: str) -> float:
    """XPath's number() of a string; NaN if it is not a number.

    As libxml2 does it, except that no exponent makes its arithmetic overflow on the way.
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return math.nan
    digits, exponent = found.groups()
    return float(digits if exponent in (None, "", "+", "-") else f"{digits}e{exponent}")
