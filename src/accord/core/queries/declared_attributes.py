"""Which attributes of events may have columns of their own in the archive, and of which types.

Spark reads names in any case, so a declared attribute may not be called like a column that events
have anyway, nor like another in other letters.
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
    """What is wrong with one declaration; "" where nothing is."""
    if not _NAME.fullmatch(name):
        return "expected the name of an attribute: up to 100 letters, digits and _"
    if name.lower() in COLUMNS:
        return f"every event has a column {name.lower()!r}, expected another name"
    if type_ not in TYPES:
        choices = ", ".join(f'"{each}"' for each in TYPES)
        return f"expected one of {choices}, got {str(type_)[:60]!r}"
    return ""


def problems_among(declared: Iterable[tuple[str, str]]) -> Iterator[tuple[int, str]]:
    """Which of several declarations, by position, contradict one before, and how."""
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
