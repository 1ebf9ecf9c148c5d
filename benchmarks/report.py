"""Results as tables: on the terminal, and as Markdown to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.measure import machine

RESULTS = Path(__file__).parent / "results"


@dataclass
class Table:
    """Rows of text below a heading that says what is compared."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        assert len(cells) == len(self.columns)
        self.rows.append(list(cells))

    @property
    def widths(self) -> list[int]:
        return [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]

    def markdown(self) -> str:
        widths = self.widths
        lines = [_line(self.columns, widths), _line(["-" * width for width in widths], widths)]
        lines += [_line(row, widths) for row in self.rows]
        notes = "".join(f"\n{note}" for note in self.notes)
        return f"## {self.title}\n\n" + "\n".join(lines) + f"\n{notes}\n"


def show(table: Table) -> None:
    shown = RichTable(title=table.title, title_justify="left", caption="\n".join(table.notes))
    shown.caption_justify = "left"
    for number, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    # Wide enough for every column, whatever the terminal: these lines are also read from logs.
    Console(width=max(100, 1 + sum(3 + width for width in table.widths))).print(shown)


def keep(name: str, about: str, tables: Sequence[Table], *, is_full: bool) -> Path:
    """Writes the tables to `results/`; a partial run must not replace what a full one found."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}{'' if is_full else '-partial'}.md"
    body = "\n".join(table.markdown() for table in tables)
    path.write_text(f"# {name.capitalize()}\n\n{about}\n\nMachine: {machine()}.\n\n{body}")
    return path


def number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def significant(value: float | None) -> str:
    """Three digits that count, for figures of any size."""
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return number(value, digits)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"
