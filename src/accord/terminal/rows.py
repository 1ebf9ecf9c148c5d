"""Tables from structs: a row is a struct whose fields say how they are shown.

    class LinkRow(Struct, frozen=True):
        link: str
        latency_us: Annotated[int | None, Column("delay", microseconds)]

`table(LinkRow, rows)` draws them for any width without omitting anything. A row is one line if
that fits. Otherwise text wraps between words, and columns move to indented lines of their own
below, those of the least weight first, with their titles in the header: whichever takes the fewest
lines. Numbers are never cut. Other structs that have its
fields serve as rows, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from accord.terminal.amounts import latency_text, rate_text, size_text
from accord.terminal.screen import safe

NOTHING: Final = "–"

_GAP: Final = 2
_INDENT: Final = 4
_MAX_WORD: Final = 32  # longer ones may be broken
_NARROWEST: Final = 20
_FIXED: Final = 2  # columns of at least this weight stay in the first line
_PHRASES: Final = re.compile(r"\s*(?:\S| (?! ))+\s*|\s+")
_WORDS: Final = re.compile(  # a number and its unit count as one
    r"\s*(?:\S*\d (?:[mµ]?s|min|h|[KMG]?B|[kMG]?bit/s|%)(?![^\s,;:.)/])\S*|\S+)\s*|\s+"
)

Cell = str | Text
Layout = list[list[tuple[int, int]]]  # lines of a row: columns with their widths


@dataclass(frozen=True, slots=True)
class Column:
    """How a field is shown: `unit` formats it, `least` keeps the widths of a live view steady.

    `of` makes its value from the whole object, if that has no such field.

    Without a title it has the field's name; columns of the least weight give way first.
    """

    title: str | None = None
    unit: Callable[[Any], Cell] | None = None
    weight: int = 1
    least: int = 0
    is_number: bool | None = None  # aligned right; by its type if None
    is_whole: bool = False
    is_optional: bool = False  # left out if all its cells are empty
    nothing: str = NOTHING  # in place of None
    of: Callable[[Any], object] | None = None


def count(value: int) -> str:
    return f"{value:,}" if value else NOTHING


def rate(value: float) -> str:
    return rate_text(value) if value else NOTHING


def size(value: float) -> str:
    return size_text(value) if value else NOTHING


def milliseconds(value: float) -> str:
    return latency_text(value / 1e3) if value else "0 ms"


def microseconds(value: float) -> str:
    """At most three significant digits."""
    text = latency_text(value / 1e6) if value > 0 else "0 ms"
    number, _, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.')} {unit}" if "." in number else text


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def names(value: Iterable[str]) -> str:
    return ", ".join(value) or NOTHING


def warned(unit: Callable[[Any], Cell], style: str = "yellow") -> Callable[[Any], Cell]:
    """As `unit`, coloured unless it is nothing."""
    return lambda value: Text(safe(str(unit(value))), style if value else "")


# Types of fields: numbers are aligned right, and are not wrapped.
Count = Annotated[int, Column(unit=count, is_number=True)]
Figure = Annotated[Cell, Column(is_number=True)]
Whole = Annotated[str, Column(is_whole=True)]


def table(
    kind: type[msgspec.Struct],
    rows: Iterable[object],
    *,
    indent: int = 0,
    has_rule: bool = True,
    title: str = "",
) -> Table:
    """A table of rows, or of objects with their fields; `title` replaces the first column's."""
    columns = columns_of(kind)
    cells = [
        [_cell(c, getattr(row, name) if c.of is None else c.of(row)) for name, c in columns]
        for row in rows
    ]
    shown = [
        n
        for n, (_, column) in enumerate(columns)
        if not column.is_optional or any(str(row[n]) for row in cells)
    ]
    used = [columns[n][1] for n in shown]
    if title:
        used[0] = replace(used[0], title=title)
    picked = (
        [row[n] or (NOTHING if columns[n][1].is_optional else "") for n in shown] for row in cells
    )
    return Table(*used, rows=picked, indent=indent, has_rule=has_rule)


@cache
def columns_of(kind: type[msgspec.Struct]) -> list[tuple[str, Column]]:
    """Names and columns of a row's fields."""
    found = []
    # Only names of the module: a field may be called like a function of its annotation.
    names = vars(sys.modules[kind.__module__])
    hints = get_type_hints(kind, names, names, include_extras=True)
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        given = [each for each in get_args(hint) if isinstance(each, Column)]
        column = given[-1] if given else Column()
        plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        kinds = set(get_args(plain)) - {type(None)} or {plain}
        is_number = kinds <= {int, float} if column.is_number is None else column.is_number
        name = column.title if column.title is not None else field.name.replace("_", " ")
        is_whole = column.is_whole or is_number
        shown = replace(column, title=name, is_number=is_number, is_whole=is_whole)
        found.append((field.name, shown))
    return found


def _cell(column: Column, value: object) -> Cell:
    if value is None:
        return column.nothing
    if column.unit is not None:
        return column.unit(value)
    if isinstance(value, float):
        return f"{value:g}"
    return (
        f"{value:,}" if isinstance(value, int) else value if isinstance(value, Text) else str(value)
    )


class Table:
    """Rows of cells: control characters in a `str` are escaped; a `Text` is trusted."""

    def __init__(
        self,
        *columns: str | Column,
        rows: Iterable[Iterable[Cell]] = (),
        indent: int = 0,
        has_rule: bool = True,
    ) -> None:
        self.columns = [Column(each) if isinstance(each, str) else each for each in columns]
        self.rows: list[list[Text]] = []
        self._indent = indent
        self._has_rule = has_rule
        for row in rows:
            self.add_row(*row)

    def add_row(self, *cells: Cell) -> None:
        assert len(cells) == len(self.columns)
        self.rows.append([each if isinstance(each, Text) else Text(safe(each)) for each in cells])

    def height(self, width: int) -> int:
        """Number of lines on a terminal of this width."""
        return sum(1 for _ in self._lines(width))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        space = " " * self._indent
        for line in self._lines(options.max_width - self._indent):
            yield Text.assemble(space, line, no_wrap=True, overflow="crop")

    def _lines(self, width: int) -> Iterator[Text]:
        layout = self._layout(max(width, _NARROWEST))
        if any(column.title for column in self.columns):
            titles = [Text(column.title or "", "dim") for column in self.columns]
            yield from self._drawn(titles, layout)
            if self._has_rule:
                yield Text("─" * max(map(_extent, layout, range(len(layout)))), "dim")
        for row in self.rows:
            yield from self._drawn(row, layout, is_sparse=True)

    def _drawn(self, row: list[Text], layout: Layout, *, is_sparse: bool = False) -> Iterator[Text]:
        """The lines of a row; if it is sparse, without empty ones below the first."""
        for place, line in enumerate(layout):
            if place and is_sparse and all(row[n].plain in ("", NOTHING) for n, _ in line):
                continue
            cells = [(n, room, _wrapped(row[n], room)) for n, room in line]
            for level in range(max(len(wrapped) for _, _, wrapped in cells)):
                drawn = Text(" " * (_INDENT if place else 0))
                for at, (n, room, wrapped) in enumerate(cells):
                    cell = wrapped[level] if level < len(wrapped) else Text()
                    space = " " * (room - cell.cell_len)
                    before, after = (space, "") if self.columns[n].is_number else ("", space)
                    drawn = Text.assemble(drawn, " " * (_GAP if at else 0), before, cell, after)
                drawn.rstrip()
                yield drawn

    def _layout(self, width: int) -> Layout:
        """The layout with the fewest lines, then with the fewest columns below."""
        bounds = [self._bounds(n) for n in range(len(self.columns))]
        movable = [n for n, column in enumerate(self.columns) if n and column.weight < _FIXED]
        ranked = sorted(movable, key=lambda n: (self.columns[n].weight, -n))
        best: tuple[int, Layout] | None = None
        for count in range(len(ranked) + 1):
            below = sorted(ranked[:count])
            above = [n for n in range(len(bounds)) if n not in below]
            if count < len(ranked) and not _has_room([bounds[n][0] for n in above], width):
                continue
            lines = [above, *_packed(below, bounds, width - _INDENT)]
            layout = [
                _widths(line, bounds, width - (_INDENT if place else 0))
                for place, line in enumerate(lines)
            ]
            height = self._height(layout, best[0] if best else None)
            if best is None or height < best[0]:
                best = height, layout
        assert best is not None
        return best[1]

    def _bounds(self, n: int) -> tuple[int, int]:
        """Minimum and preferred width of a column."""
        column = self.columns[n]
        longest = max((row[n].cell_len for row in self.rows), default=0)
        most = max(longest, cell_len(column.title or ""), column.least)
        texts = [column.title or ""]
        if not column.is_whole:
            texts += [row[n].plain for row in self.rows]
        words = (match[0].strip() for text in texts for match in _words(text))
        word = max(map(cell_len, words), default=0)
        need = max(word, longest) if column.is_whole else min(word, _MAX_WORD)
        return max(need, column.least), most

    def _height(self, layout: Layout, limit: int | None) -> int:
        """Height of all rows, counted up to `limit`."""
        height = 0
        for row in self.rows:
            for place, line in enumerate(layout):
                if place and all(row[n].plain in ("", NOTHING) for n, _ in line):
                    continue
                height += 1 + max(len(_breaks(row[n].plain, room)) for n, room in line)
            if limit is not None and height >= limit:
                break
        return height


def section(drawn: Table, total: int, *, title: str = "") -> list[RenderableType]:
    """An empty line, the title, the table and how many of `total` rows it omits; or nothing."""
    if not total:
        return []
    parts: list[RenderableType] = [Text(), *([Text(title, "bold")] if title else []), drawn]
    if (omitted := total - len(drawn.rows)) > 0:
        parts.append(Text(f"… and {omitted:,} more (--json has all)", "dim"))
    return parts


def page(drawn: Table, total: int, offset: int) -> RenderableType:
    """A table of the rows from `offset` on, and how many of `total` come after them."""
    end = offset + len(drawn.rows)
    return drawn if total <= end else Group(drawn, f"… and {total - end:,} more: --offset {end}")


def fields(pairs: Iterable[tuple[str, Cell]]) -> Table:
    """Names and values, without a header."""
    rows = ((Text(safe(name), "dim"), value) for name, value in pairs)
    return Table("", Column("", weight=_FIXED), rows=rows)


def _has_room(widths: Sequence[int], width: int) -> bool:
    return sum(widths) + _GAP * (len(widths) - 1) <= width


def _packed(columns: list[int], bounds: list[tuple[int, int]], width: int) -> list[list[int]]:
    """As many lines as needed for all columns to have their preferred widths."""
    lines: list[list[int]] = []
    for n in columns:
        if lines and _has_room([bounds[each][1] for each in (*lines[-1], n)], width):
            lines[-1].append(n)
        else:
            lines.append([n])
    return lines


def _widths(line: list[int], bounds: list[tuple[int, int]], width: int) -> list[tuple[int, int]]:
    """Minimum widths; spare width goes to the narrowest columns first."""
    rooms = {n: min(bounds[n][0], width) for n in line}
    spare = width - sum(rooms.values()) - _GAP * (len(line) - 1)
    while spare > 0 and (short := [n for n in line if rooms[n] < bounds[n][1]]):
        least = min(short, key=rooms.__getitem__)
        rooms[least] += 1
        spare -= 1
    return list(rooms.items())


def _extent(line: list[tuple[int, int]], place: int) -> int:
    return sum(room for _, room in line) + _GAP * (len(line) - 1) + (_INDENT if place else 0)


def _wrapped(cell: Text, room: int) -> list[Text]:
    lines = list(cell.divide(_breaks(cell.plain, room)))
    for line in lines:
        line.rstrip()
    return lines


def _words(text: str) -> Iterator[re.Match[str]]:
    """Unbreakable parts with the space around them; double spaces, if any, separate them."""
    return (_PHRASES if "  " in text.strip() else _WORDS).finditer(text)


def _breaks(text: str, room: int) -> list[int]:
    """Where further lines start: at words, and within those that are longer than a line."""
    if cell_len(text) <= room:
        return []
    found: list[int] = []
    used = 0
    for match in _words(text):
        start, word = match.start(), match[0].rstrip()
        if used and used + cell_len(word) > room:
            found.append(start)
            used = 0
        *pieces, last = chop_cells(word, room) or [""]
        for piece in pieces:
            start += len(piece)
            found.append(start)
        used += cell_len(last) + len(match[0]) - len(word)
    return found
