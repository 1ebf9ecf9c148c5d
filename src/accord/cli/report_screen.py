"""A report on a terminal."""

from __future__ import annotations

from typing import Final, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accord.cli.report_tables import Section, headline, sections, totals
from accord.cli.screen import safe
from accord.edges.pipeline.report import Report

MAX_ROWS: Final = 10
_WIDE: Final = 110
_GAP: Final = 2
_SHORTEST: Final = 6


def draw_report(report: Report, *, width: int) -> Group:
    parts: list[RenderableType] = [
        Text.assemble((safe(report.node), "bold"), f"  {safe(headline(report))}"),
        Text(),
        _totals(report),
    ]
    for section in sections(report):
        parts += [Text(), Text(section.title, "bold")]
        if section.rows:
            parts.append(_table(section, width=width))
        hidden = len(section.rows) - MAX_ROWS
        more = f"… and {hidden:,} more: --html, --json" if hidden > 0 else section.remark
        if more:
            parts.append(Text(more, "dim"))
    return Group(*parts)


def _totals(report: Report) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in totals(report):
        grid.add_row(name, safe(value))
    return grid


def _table(section: Section, *, width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", show_edge=False)
    table.pad_edge, table.collapse_padding = False, True
    is_wide = width >= _WIDE
    shown = [n for n, each in enumerate(section.columns) if is_wide or not each.is_extra]
    rows = section.rows[:MAX_ROWS]
    for number, room in zip(shown, _widths(section, shown, width), strict=True):
        column = section.columns[number]
        justify: Literal["right", "left"] = "right" if column.is_number else "left"
        table.add_column(
            column.name, justify=justify, no_wrap=True, overflow="ellipsis", width=room
        )
    for row in rows:
        table.add_row(*(Text(safe(row[number])) for number in shown))
    return table


def _widths(section: Section, shown: list[int], width: int) -> list[int]:
    """Figures stay whole; of names the longest give way."""
    widths = [_longest(section, number) for number in shown]
    names = [n for n, number in enumerate(shown) if not section.columns[number].is_number]
    over = sum(widths) + _GAP * (len(widths) - 1) - width
    for _ in range(max(over, 0)):
        longest = max(names, key=lambda n: widths[n])
        widths[longest] = max(widths[longest] - 1, _SHORTEST)
    return widths


def _longest(section: Section, number: int) -> int:
    texts = [safe(row[number]) for row in section.rows[:MAX_ROWS]]
    return max(map(cell_len, (section.columns[number].name, *texts)))
