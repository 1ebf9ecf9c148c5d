"""Terminal output: consoles, text, errors.

Untrusted text from a file or a network is shown through `safe`, because a terminal obeys control
characters, and never as markup.
"""

from __future__ import annotations

import os
from typing import Final

from rich.console import Console
from rich.text import Text

from accord.core.model.errors import AccordError, PredicateError

PIPE_WIDTH: Final = 100_000


def open_console(*, stderr: bool = False) -> Console:
    """A console as wide as its terminal; files and pipes get whole rows, for `grep` and `awk`."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def safe(text: str) -> str:
    """`text` with all control characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def is_fitted(console: Console) -> bool:
    """Whether there is a width limit: a pipe has none unless `COLUMNS` is set."""
    return console.width < PIPE_WIDTH


def print_line(console: Console, text: str | Text) -> None:
    """Print a line of text, wrapped only on a terminal, so that pipes keep lines whole."""
    console.print(text, soft_wrap=not console.is_terminal)


def print_problem(console: Console, error: AccordError) -> None:
    """Print a problem, with its position in the text if known."""
    texts, excerpt = error.parts(), [""]
    if isinstance(error, PredicateError):
        text, *excerpt = error.pointed().rsplit("\n", 2)
        texts = [text]
    for text in texts:
        print_line(console, Text.assemble(("error: ", "bold red"), safe(text)))
    if len(excerpt) == 2:
        line, caret = _clipped(excerpt[0], excerpt[1], console.width)
        console.print(Text(line), no_wrap=True, overflow="ignore", crop=False)
        console.print(Text(caret, "bold red"), no_wrap=True, overflow="ignore", crop=False)


def _clipped(line: str, caret: str, width: int) -> tuple[str, str]:
    """The part of `line` around the caret that fits, each odd character as one dot."""
    shown = "".join(c if c.isprintable() else "·" for c in line)
    column, room = len(caret) - 1, max(width - 2, 10)
    if len(shown) <= room:
        return shown, caret
    start = max(0, min(column - room // 2, len(shown) - room))
    return shown[start : start + room], " " * (column - start) + "^"
