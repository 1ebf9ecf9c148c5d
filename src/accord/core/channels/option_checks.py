"""Validation of channel options: each template names the options it knows, each with a check.

Options are checked where a channel is defined, so that the author sees the problem. Definitions
from other nodes are accepted as they are: a template uses its defaults for values it cannot use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Final

from accord.core.channels.history.options import PERSISTENT
from accord.core.channels.history.options import problem_with as problem_with_persistent

# Returns the expected value, or "" if the value is valid.
Check = Callable[[str], str]
_DIGITS: Final = 15


def one_of(*choices: str) -> Check:
    expected = f"expected {' or '.join(choices)}"
    return lambda text: "" if text in choices else expected


def whole_number(least: int, most: int) -> Check:
    def check(text: str) -> str:
        is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
        if is_number and least <= int(text) <= most:
            return ""
        return f"expected a whole number from {least:,} to {most:,}"

    return check


def number(least: float, most: float) -> Check:
    def check(text: str) -> str:
        try:
            given = float(text)
        except ValueError:
            given = float("nan")
        is_right = isfinite(given) and least <= given <= most
        return "" if is_right else f"expected a number from {least:,g} to {most:,g}"

    return check


def problem_with_options(
    options: Mapping[str, str], known: Mapping[str, Check]
) -> tuple[str, str] | None:
    """Return the first invalid option and why; None if all are valid."""
    for name, text in options.items():
        if name == PERSISTENT:
            problem = problem_with_persistent(text)
        elif name in known:
            expected = known[name](text)
            problem = f"{expected}, got {text[:40]!r}" if expected else ""
        else:
            problem = _unknown(name, sorted((*known, PERSISTENT)))
        if problem:
            return name, problem
    return None


def _unknown(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    if near:
        return f"the template has no such option, did you mean {near[0]}?"
    return f"the template has no such option, expected one of {', '.join(known)}"
