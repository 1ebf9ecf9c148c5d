"""What went wrong in Spark, in a line: within its wrapping is a cause, in Python or in Java."""

from __future__ import annotations

import re
from typing import Final

from accord.core.model.errors import AccordError

MOST: Final = 500
_RAISED: Final = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): (\S.*)$", re.M)
_CAUSE: Final = re.compile(r"^\s*(?:Caused by)?: (\S.*)$", re.M)


def summary(error: BaseException) -> str:
    """The innermost cause that the text of `error` names."""
    if isinstance(error, AccordError):
        return str(error)
    text = str(error)
    if raised := _RAISED.findall(_without_java(text)):
        kind, problem = raised[-1]
        return _short(problem if kind in _SELF_EXPLAINING else f"{kind}: {problem}")
    if causes := _CAUSE.findall(text):
        return _short(causes[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _short(lines[0]) if lines else type(error).__name__


# Ours, whose text says what is wrong and what helps.
_SELF_EXPLAINING: Final = frozenset(
    {"JournalError", "ManifestError", "OtherJournalError", "RemoteError", "TablesError"}
)


def _without_java(text: str) -> str:
    """Lines of Java's own traces name exceptions that say nothing to people."""
    return "\n".join(
        line
        for line in text.splitlines()
        if not line.lstrip().startswith(("at ", "Caused by:", "org.", "java.", "scala.", "..."))
    )


def _short(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
