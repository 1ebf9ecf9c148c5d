"""Conversion of text to numbers as in XPath."""

from __future__ import annotations

import math
import re
from typing import Final

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
