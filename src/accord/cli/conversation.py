"""Runs a session: on a terminal with a prompt, otherwise on the lines that come in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final

from rich.console import Console
from rich.text import Text

from accord.cli.errors import InputError
from accord.cli.events import STDIN, read_events, read_lines
from accord.cli.screen import complain, open_console, say
from accord.cli.session import Session
from accord.core.errors import AccordError

with suppress(ImportError):
    # Importing it is enough: the prompt gets line editing and history.
    import readline  # noqa: F401

PROMPT: Final = "accord> "
EXAMPLES: Final = (
    "platform = 'UAV' AND altitude_m > 300",
    "load_mw / limit_mw > 0.9 OR islanded",
    "xpath: /report/sighting > 10",
)
QUESTION: Final = f":covers altitude_m > 100 ; {EXAMPLES[0]}"

_MISTAKE: Final = 2


def converse(events_file: str | None, namespaces: dict[str, str]) -> int:
    """Answers line after line until they end; returns the exit code."""
    if events_file == STDIN:
        raise InputError("EVENTS", "expected a file: standard input has the predicates")
    console = open_console()
    session = Session(console, list(read_events(events_file)), namespaces)
    examples = (*EXAMPLES, QUESTION) if events_file is None else ()
    try:
        if sys.stdin.isatty():
            _welcome(console, session, examples)
            _answer_all(console, session, _typed_lines(console))
            return 0
        return _answer_piped(console, session, examples)
    except KeyboardInterrupt:
        console.print()
        return 0


def _answer_piped(console: Console, session: Session, examples: Iterable[str]) -> int:
    lines: Iterator[str] = (text for _, text in read_lines(sys.stdin.buffer, "standard input"))
    first = next(lines, None)
    if first is None:
        # Nobody is there to ask anything: show what it would be like.
        _welcome(console, session, examples)
        lines = _shown_lines(console, examples)
    else:
        lines = chain((first,), lines)
    return _MISTAKE if _answer_all(console, session, lines) else 0


def _answer_all(console: Console, session: Session, lines: Iterable[str]) -> int:
    """Returns how many lines had a mistake."""
    mistakes = 0
    for line in lines:
        try:
            session.answer(line)
        except AccordError as error:
            complain(open_console(stderr=True), error)
            mistakes += 1
        if session.is_over:
            break
        if line.strip():
            console.print()
    return mistakes


def _typed_lines(console: Console) -> Iterator[str]:
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            console.print()
            return
        except UnicodeDecodeError:
            say(console, "error: expected UTF-8 text")
            continue
        yield line


def _shown_lines(console: Console, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        say(console, Text.assemble((PROMPT, "bold"), line))
        yield line


def _welcome(console: Console, session: Session, examples: Iterable[str]) -> None:
    say(console, "Type a predicate to see which of these events match it.")
    session.answer(":events")
    if examples:
        say(console, "For example:")
        for example in examples:
            say(console, f"  {example}")
        console.print()
    say(console, ":help lists what else can be asked, :quit leaves.")
    console.print()
