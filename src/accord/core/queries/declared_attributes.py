"""Validates the attributes that get columns of their own in the archive, and their types.

Spark ignores the case of names, so a declared attribute may not have the name of a built-in column,
nor differ from another only in case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

TYPES: Final = ("integer", "float", "string", "boolean", "timestamp")
COLUMNS: Final = frozenset(
    {
        "node",
        "offset",
        "number",
        "channel",
        "publisher",
        "received",
        "qos",
        "key",
        "deadline_ms",
        "content_type",
        "attributes",
        "metadata",
        "paths",
        "payload",
        "payload_bytes",
        "payload_ref",
        "properties",
        "day",
        "group",
    }
)
MAX_DECLARED: Final = 200
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


def problem_with(name: str, type_: object) -> str:
    """The problem with one declaration; "" if there is none."""
    if not _NAME.fullmatch(name):
        return "expected the name of an attribute: up to 100 letters, digits and _"
    if name.lower() in COLUMNS:
        return f"every event has a column {name.lower()!r}, expected another name"
    if type_ not in TYPES:
        choices = ", ".join(f'"{each}"' for each in TYPES)
        return f"expected one of {choices}, got {str(type_)[:60]!r}"
    return ""


def problems_among(declared: Iterable[tuple[str, str]]) -> Iterator[tuple[int, str]]:
    """Declarations that contradict an earlier one, by index, with the problem."""
    known: dict[str, tuple[str, str]] = {}
    for position, (name, type_) in enumerate(declared):
        first, first_type = known.setdefault(name.lower(), (name, type_))
        if first != name:
            yield position, f"expected it to be called {first}, as before: case makes no difference"
        elif first_type != type_:
            yield position, f'expected "{first_type}", as it is declared before, got "{type_}"'
        elif len(known) > MAX_DECLARED:
            yield position, f"expected at most {MAX_DECLARED} declared attributes"
            return
