"""How things look: consoles, tables of events, mistakes.

Whatever came from a file or a network is shown through `safe`, because a terminal obeys control
characters, and never as markup.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from accord.cli.events import ReadEvent
from accord.core.errors import AccordError, PredicateError
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.tree import render_name, render_value

MAX_VALUE_LENGTH: Final = 48
MAX_PAIRS: Final = 24
PIPE_WIDTH: Final = 1_000


def open_console(*, stderr: bool = False) -> Console:
    """One as wide as its terminal; files and pipes get rows whole, for `grep` and `awk`."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def safe(text: str) -> str:
    """`text` with everything a terminal might obey written as an escape."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(console: Console, text: str | Text) -> None:
    """One line of prose; only a terminal gets it wrapped, so that pipes keep lines whole."""
    console.print(text, soft_wrap=not console.is_terminal)


def complain(console: Console, error: AccordError) -> None:
    """A mistake, with the character it stands at where that is known."""
    texts, excerpt = error.parts(), [""]
    if isinstance(error, PredicateError):
        text, *excerpt = error.pointed().rsplit("\n", 2)
        texts = [text]
    for text in texts:
        say(console, Text.assemble(("error: ", "bold red"), safe(text)))
    if len(excerpt) == 2:
        line, caret = _clipped(excerpt[0], excerpt[1], console.width)
        console.print(Text(line), no_wrap=True, overflow="ignore", crop=False)
        console.print(Text(caret, "bold red"), no_wrap=True, overflow="ignore", crop=False)


def show_fields(console: Console, fields: Sequence[tuple[str, str]]) -> None:
    """Names and values in two columns; a pipe gets each value on one line."""
    if not console.is_terminal:
        width = max(len(safe(name)) for name, _ in fields)
        for name, value in fields:
            console.print(f"{safe(name):<{width}}  {safe(value)}", soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", overflow="fold", max_width=32)
    grid.add_column(overflow="fold")
    for name, value in fields:
        grid.add_row(Text(safe(name)), Text(safe(value)))
    console.print(grid)


def show_events(console: Console, events: Iterable[ReadEvent]) -> None:
    """A table with a row per event; what comes from XML metadata stands after a mark."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False)
    table.pad_edge, table.collapse_padding = False, True
    table.add_column("line", justify="right", style="dim", no_wrap=True)
    table.add_column("channel", no_wrap=True, overflow="ellipsis", max_width=32)
    table.add_column("attributes", overflow="fold")
    for read in events:
        table.add_row(str(read.line), safe(read.event.channel), _Pairs(read.event))
    console.print(table)


def written(value: Value) -> str:
    """As a selector writes it, but for timestamps, which stand bare."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return render_value(value)


class _Pairs:
    """An event's attributes as `name=value`, wrapped between pairs only."""

    def __init__(self, event: Event) -> None:
        self._pieces = list(_pieces(event))

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        widths = [piece.cell_len for piece in self._pieces] or [0]
        most = sum(widths) + 2 * (len(widths) - 1)
        return Measurement(max(widths), most).with_maximum(options.max_width)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text()
        for piece in self._pieces:
            if line and line.cell_len + 2 + piece.cell_len > options.max_width:
                yield line
                line = Text()
            line = Text.assemble(line, "  " if line else "", piece)
        yield line


def _pieces(event: Event) -> Iterator[Text]:
    from_xml = event.metadata.attributes if event.metadata else {}
    own = [_pair(name, value) for name, value in event.attributes.items()]
    added = [_pair(name, v) for name, v in from_xml.items() if name not in event.attributes]
    yield from own[:MAX_PAIRS]
    if event.metadata:
        yield Text.assemble(("XML: ", "dim"), *added[:1])
        yield from added[1:MAX_PAIRS]
    if (hidden := len(own[MAX_PAIRS:]) + len(added[MAX_PAIRS:])) > 0:
        yield Text(f"… and {hidden} more", "dim")


def _pair(name: str, value: Value) -> Text:
    text = safe(written(value))
    if len(text) > MAX_VALUE_LENGTH:
        text = f"{text[: MAX_VALUE_LENGTH - 1]}…"
    return Text.assemble((f"{safe(render_name(name))}=", "dim"), text)


def _clipped(line: str, caret: str, width: int) -> tuple[str, str]:
    """The part of `line` around the caret that fits, each odd character as one dot."""
    shown = "".join(c if c.isprintable() else "·" for c in line)
    column, room = len(caret) - 1, max(width - 2, 10)
    if len(shown) <= room:
        return shown, caret
    start = max(0, min(column - room // 2, len(shown) - room))
    return shown[start : start + room], " " * (column - start) + "^"
