"""A session over some events: each line is a predicate, or a command that starts with a colon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Final

from lxml import etree
from rich.console import Console

from accord.cli.errors import InputError
from accord.cli.events import ReadEvent
from accord.cli.explain import show_explanation
from accord.cli.match import summary
from accord.cli.relate import show_covers, show_intersects
from accord.cli.screen import safe, say, show_events, show_fields, written
from accord.cli.text import read_namespaces, read_prefixed, read_two
from accord.core.model.event import Event
from accord.core.predicates.tree import render_name

MAX_ROWS: Final = 20
HELP: Final = (
    ("PREDICATE", "the events that match it: altitude_m > 300"),
    ("xpath: CONDITION", "the same in XPath: xpath: /report/sighting > 10"),
    (":explain PREDICATE", "what it says and what it reads"),
    (":covers A ; B", "does every event that matches B match A?"),
    (":intersects A ; B", "can an event match both?"),
    (":namespace P=URI", "let XPath conditions use the prefix P"),
    (":events", "all events"),
    (":event LINE", "one event in full"),
    (":help", "this list"),
    (":quit", "leave, as Ctrl-D does"),
)


class Session:
    """Answers one line at a time; a mistake is raised as AccordError and changes nothing."""

    def __init__(
        self, console: Console, events: Sequence[ReadEvent], namespaces: dict[str, str]
    ) -> None:
        self._console = console
        self._events = events
        self._namespaces = dict(namespaces)
        self._commands: dict[str, Callable[[str], None]] = {
            ":explain": self._explain,
            ":covers": self._covers,
            ":intersects": self._intersects,
            ":namespace": self._namespace,
            ":events": self._show_all,
            ":event": self._show_one,
            ":help": self._help,
            ":quit": self._quit,
        }
        self.is_over = False

    def answer(self, line: str) -> None:
        line = line.strip()
        if line.startswith(":"):
            name, _, rest = line.partition(" ")
            command = self._commands.get(name)
            if command is None:
                raise InputError(name, f"expected one of {', '.join(self._commands)}")
            command(rest.strip())
        elif line:
            self._match(line)

    def _match(self, line: str) -> None:
        predicate = read_prefixed(line, self._namespaces)
        matching = [read for read in self._events if predicate.matches(read.event)]
        show_fields(self._console, [("canonical", str(predicate))])
        self._show_rows(matching)
        say(self._console, summary(len(matching), len(self._events)))

    def _explain(self, text: str) -> None:
        show_explanation(self._console, read_prefixed(text, self._namespaces))

    def _covers(self, text: str) -> None:
        show_covers(self._console, *read_two(text, self._namespaces))

    def _intersects(self, text: str) -> None:
        show_intersects(self._console, *read_two(text, self._namespaces))

    def _namespace(self, text: str) -> None:
        self._namespaces |= read_namespaces([text], ":namespace")

    def _show_all(self, _text: str) -> None:
        self._show_rows(self._events)

    def _show_one(self, text: str) -> None:
        found = [read for read in self._events if str(read.line) == text]
        if not found:
            raise InputError(":event", f"expected the line of an event, got {text!r}")
        _show_event(self._console, found[0])

    def _help(self, _text: str) -> None:
        show_fields(self._console, HELP)

    def _quit(self, _text: str) -> None:
        self.is_over = True

    def _show_rows(self, events: Sequence[ReadEvent]) -> None:
        if not events:
            return
        self._console.print()
        show_events(self._console, events[:MAX_ROWS])
        if len(events) > MAX_ROWS:
            say(self._console, f"… and {len(events) - MAX_ROWS} more")
        self._console.print()


def _show_event(console: Console, read: ReadEvent) -> None:
    event = read.event
    show_fields(console, list(_fields_of(event)))
    if event.metadata:
        console.print()
        # A copy: predicates must go on seeing the document as it came.
        root = deepcopy(event.metadata.root)
        etree.indent(root)
        for line in etree.tostring(root, encoding="unicode").splitlines():
            console.print(safe(line), soft_wrap=True)


def _fields_of(event: Event) -> Iterator[tuple[str, str]]:
    yield "channel", event.channel
    if event.source:
        yield "source", f"{event.source}, sequence {event.sequence}"
    if event.key is not None:
        yield "key", event.key
    if event.deadline_ms is not None:
        yield "deadline", f"{event.deadline_ms} ms"
    if event.payload:
        yield "payload", f"{len(event.payload)} bytes"
    for name, value in event.values.items():
        yield f"  {render_name(name)}", written(value)
