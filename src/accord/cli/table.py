"""Responsive tables: fit any terminal width without omitting anything.

A row is one line if that fits. Otherwise text wraps between words, and columns move to indented
lines of their own below, those of the least weight first, with their titles in the header:
whichever takes the fewest lines. Numbers are never cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from accord.cli.screen import safe

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
    """`least` keeps the widths of a live view steady."""

    title: str
    is_number: bool = False
    is_whole: bool = False
    weight: int = 1
    least: int = 0


def figures(*titles: str, weight: int = 1, least: int = 0) -> Iterator[Column]:
    """Columns of numbers, aligned right."""
    for title in titles:
        yield Column(title, is_number=True, is_whole=True, weight=weight, least=least)


def whole(title: str) -> Column:
    """A column whose cells are not wrapped, such as times and ids."""
    return Column(title, is_whole=True)


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
            titles = [Text(column.title, "dim") for column in self.columns]
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
        most = max(longest, cell_len(column.title), column.least)
        texts = [column.title]
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
