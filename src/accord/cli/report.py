"""`accord report`: how well events were delivered, on a terminal or as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from accord.apps.report.sections import headline, sections, totals
from accord.cli.arguments import check_filter, read_since
from accord.cli.http_client import NodeHttpClient
from accord.cli.options import IsJson, command, complete_channels
from accord.cli.parameters import option
from accord.core.model.errors import InputError
from accord.core.queries.report import Report, encode_report
from accord.operations.query import GetReport
from accord.terminal.rows import Table, fields
from accord.terminal.screen import open_console, print_line, safe

LAST: Final = "1h"
MAX_ROWS: Final = 10
_TIMEOUT_S: Final = 120.0  # starting a pipeline takes a while


@command
def report(
    *,
    last: str | None = option("TIME", "Length of the period: 30min, 24h, 7d.", show_default=LAST),
    since: str | None = option("TIME", "Start of the period: -24h, 2026-11-16, …"),
    until: str | None = option("TIME", "End of the period.", show_default="now"),
    channel: str = option(
        "FILTER", "Only these channels.", autocompletion=complete_channels, default="#"
    ),
    page: Path | None = option("FILE", "Write an HTML page with plots.", "--html"),
    is_json: IsJson = False,
    node: NodeHttpClient,
) -> None:
    """Report delivered quality: rates, latency, losses, slow subscriptions."""
    if last is not None and since is not None:
        raise typer.BadParameter("give one of --last and --since")
    if since is None:
        last = (last or LAST).strip()
        read_since(f"-{last}", "--last")
    elif read_since(since, "--since") >= read_since(until or "now", "--until"):
        raise InputError("--until", f"expected a time after {since}, got {until or 'now'}")
    if until is not None:
        read_since(until, "--until")
    check_filter(channel)
    if page is not None:
        # Imported late: pages need matplotlib, which may not be installed.
        from accord.apps.report.page import check_plotting, write_page  # noqa: PLC0415

        check_plotting()
    found = node.call(
        GetReport(channel=channel or "#", last=last or "1h", since=since, until=until), _TIMEOUT_S
    )
    if page is not None:
        write_page(found, page)
        print_line(open_console(stderr=True), f"written to {page}")
    if is_json:
        typer.echo(encode_report(found).decode())
    elif page is None:
        open_console().print(draw_report(found))


def draw_report(report: Report) -> Group:
    parts: list[RenderableType] = [
        Text.assemble((safe(report.node), "bold"), f"  {safe(headline(report))}"),
        Text(),
        fields(totals(report)),
    ]
    for section in sections(report):
        parts += [Text(), Text(section.title, "bold")]
        drawn = section.table
        if drawn.rows:
            parts.append(Table(*drawn.columns, rows=drawn.rows[:MAX_ROWS]))
        hidden = len(drawn.rows) - MAX_ROWS
        more = f"… and {hidden:,} more: --html, --json" if hidden > 0 else section.remark
        if more:
            parts.append(Text(more, "dim"))
    return Group(*parts)
