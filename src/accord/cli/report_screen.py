"""A report on a terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from accord.cli.report_tables import headline, sections, totals
from accord.cli.screen import safe
from accord.cli.table import Table, fields
from accord.core.queries.report import Report

MAX_ROWS: Final = 10


def draw_report(report: Report) -> Group:
    parts: list[RenderableType] = [
        Text.assemble((safe(report.node), "bold"), f"  {safe(headline(report))}"),
        Text(),
        fields(totals(report)),
    ]
    for section in sections(report):
        parts += [Text(), Text(section.title, "bold")]
        table = section.table
        if table.rows:
            parts.append(Table(*table.columns, rows=table.rows[:MAX_ROWS]))
        hidden = len(table.rows) - MAX_ROWS
        more = f"… and {hidden:,} more: --html, --json" if hidden > 0 else section.remark
        if more:
            parts.append(Text(more, "dim"))
    return Group(*parts)
