"""Display of event attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from accord.cli.events import ReadEvent
from accord.cli.screen import safe
from accord.cli.table import Table, figures
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.tree import render_name, render_value

MAX_VALUE_LENGTH: Final = 48
MAX_PAIRS: Final = 24


def show_events(console: Console, events: Iterable[ReadEvent]) -> None:
    """A table with a row per event; values from XML metadata follow a mark."""
    table = Table(*figures("line"), "channel", "attributes")
    for read in events:
        attributes = Text("  ").join(attribute_texts(read.event, mark="XML: "))
        table.add_row(Text(str(read.line), "dim"), read.event.channel, attributes)
    console.print(table)


def attribute_texts(event: Event, *, mark: str = "") -> Iterator[Text]:
    """Each as `name=value`; those from XML metadata come last, the first after `mark`."""
    from_xml = event.metadata.attributes if event.metadata else {}
    own = [_pair(name, value) for name, value in event.attributes.items()]
    added = [_pair(name, v) for name, v in from_xml.items() if name not in event.attributes]
    yield from own[:MAX_PAIRS]
    if event.metadata and mark:
        yield Text.assemble((mark, "dim"), *added[:1])
        yield from added[1:MAX_PAIRS]
    else:
        yield from added[:MAX_PAIRS]
    if hidden := len(own[MAX_PAIRS:]) + len(added[MAX_PAIRS:]):
        yield Text(f"… and {hidden} more", "dim")


def written(value: Value) -> str:
    """The value as in a selector, except that timestamps are bare."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return render_value(value)


def _pair(name: str, value: Value) -> Text:
    text = safe(written(value))
    if len(text) > MAX_VALUE_LENGTH:
        text = f"{text[: MAX_VALUE_LENGTH - 1]}…"
    return Text.assemble((f"{safe(render_name(name))}=", "dim"), text)
