"""Events on a terminal.

Each event is a line, with columns that stay aligned: a column grows to the width of
its contents so far, within limits. What does not fit continues below, indented; kept events, which
can be fetched again, are cut. A pipe gets each event whole, on one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from accord.client.messages import ReceivedEvent
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.predicates.tree import render_name, render_value
from accord.terminal.amounts import size_text
from accord.terminal.screen import is_fitted, safe

MIN_COLUMN: Final = 16
MAX_COLUMN: Final = 32
MAX_COLUMNS: Final = 500
MAX_TEXT: Final = 240
MAX_LINES: Final = 4
NARROW: Final = 100

_GAP: Final = "  "
_KINDS: Final = (
    (b"\xff\xd8\xff", "JPEG image"),
    (b"\x89PNG\r\n", "PNG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF"),
    (b"PK\x03\x04", "ZIP"),
    (b"\x1f\x8b", "gzip"),
)


class EventPrinter:
    """Live events, or kept ones: with days and ids, and a line for each."""

    def __init__(self, console: Console, *, has_days: bool = False, is_kept: bool = False) -> None:
        self._console = console
        self._is_kept = is_kept
        self._is_short = is_kept and console.width < NARROW
        self._day = "%Y-%m-%d " if has_days or is_kept else ""
        self._has_header = not is_fitted(console)
        self._id_width = 0
        self._channel_width = MIN_COLUMN
        self._widths: dict[str, int] = {}

    def show(self, event: ReceivedEvent) -> None:
        clock = self._clock_text(event.received_ms)
        self._channel_width = _wider(self._channel_width, safe(event.channel))
        if self._is_kept:
            self._id_width = _wider(self._id_width, safe(event.id))
        if not self._has_header:
            self._has_header = True
            title = self._head("time".ljust(len(clock)), "id", "channel")
            self._print(Text(f"{title}{_GAP}attributes, payload", "dim"))
        head = self._head(clock, safe(event.id), safe(event.channel))
        pieces = [*self._pairs(event), *_remarks(event)]
        payload = _payload_lines(event)
        if is_fitted(self._console) and not self._is_kept:
            self._flow(head, pieces, [Text(line, "green") for line in payload])
            return
        shown = [Text("\\n".join(payload), "green")] if payload else []
        self._print(Text(_GAP).join([head, *pieces, *shown]))

    def _head(self, clock: str, event: str, channel: str) -> Text:
        head = Text.assemble((clock, "dim"), _GAP)
        if self._is_kept:
            head.append(event.ljust(self._id_width) + _GAP, "dim")
        return head.append(channel.ljust(self._channel_width), "cyan")

    def _flow(self, head: Text, pieces: list[Text], payload: list[Text]) -> None:
        """As many parts on each line as fit; the payload beside them if it fits, else below."""
        width = self._console.width
        indent = " " * (head.cell_len if width >= NARROW else 4)
        lines = [head]
        for number, piece in enumerate([*pieces, *payload]):
            is_below = number > len(pieces) or (number == len(pieces) and len(payload) > 1)
            room = width - lines[-1].cell_len - len(_GAP)
            if is_below or len(piece.plain.rstrip()) > room:
                lines.append(Text(indent))
            lines[-1] = Text.assemble(lines[-1], _GAP, piece)
        for line in lines:
            self._print(line)

    def _print(self, line: Text) -> None:
        line.rstrip()
        if self._is_kept and is_fitted(self._console):
            self._console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self._console.print(line, soft_wrap=True)

    def _pairs(self, event: ReceivedEvent) -> Iterator[Text]:
        for pair in attribute_texts(event):
            name = pair.plain.partition("=")[0]
            width = _wider(self._widths.get(name, 0), pair.plain)
            if name in self._widths or len(self._widths) < MAX_COLUMNS:
                self._widths[name] = width
            pair.pad_right(max(width - pair.cell_len, 0))
            yield pair

    def _clock_text(self, moment_ms: int) -> str:
        local = datetime.fromtimestamp(moment_ms / 1000).astimezone()
        if self._is_short:
            return f"{local:%m-%d %H:%M:%S}"
        return f"{local:{self._day}%H:%M:%S}.{moment_ms % 1000:03}"


def _wider(width: int, text: str) -> int:
    return max(width, min(cell_len(text), MAX_COLUMN))


def _remarks(event: ReceivedEvent) -> Iterator[Text]:
    if event.problem:
        yield Text(f"not an event: {safe(event.problem)}", "yellow")
    if event.retain:
        yield Text("retained", "dim italic")


def _payload_lines(event: ReceivedEvent) -> list[str]:
    """A text shortened to a few lines; for other data, its type and size."""
    payload = event.payload
    if not payload:
        return []
    text = _as_text(payload)
    if text is None:
        kind = event.properties.content_type or _kind(payload)
        return [f"({safe(kind)}, {size_text(len(payload))})"]
    lines = [safe(line) for line in text[:MAX_TEXT].splitlines()]
    if len(text) > MAX_TEXT or len(lines) > MAX_LINES:
        lines = lines[:MAX_LINES]
        lines[-1] = f"{lines[-1]} … ({size_text(len(payload))})"
    return lines


def _as_text(payload: bytes) -> str | None:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    is_text = all(c.isprintable() or c in "\t\r\n" for c in text[: 2 * MAX_TEXT])
    return text if is_text else None


def _kind(payload: bytes) -> str:
    if payload[:4] == b"RIFF" and payload[8:12] == b"WEBP":
        return "WebP image"
    return next((name for start, name in _KINDS if payload.startswith(start)), "binary")


MAX_VALUE_LENGTH: Final = 48
MAX_PAIRS: Final = 24


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
