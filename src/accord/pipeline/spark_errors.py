"""One-line summaries of Spark failures: the cause inside their wrapping, from Python or Java."""

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


# Our own errors, whose text gives problem and remedy.
_SELF_EXPLAINING: Final = frozenset(
    {"DeltaLogError", "JournalError", "JournalMismatchError", "RemoteError", "TablesError"}
)


def _without_java(text: str) -> str:
    """Remove Java's stack traces, whose exceptions do not help the operator."""
    return "\n".join(
        line
        for line in text.splitlines()
        if not line.lstrip().startswith(("at ", "Caused by:", "org.", "java.", "scala.", "..."))
    )


def _short(text: str) -> str:
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
