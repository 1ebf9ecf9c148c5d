"""`accord report`: how well events were delivered."""

# Imports stand in the functions: help and completion must not wait for tables and plots.
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User

LAST: Final = "1h"


def report(  # noqa: PLR0913 (a parameter per option)
    *,
    last: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Length of the period: 30min, 24h, 7d.", show_default=LAST
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start of the period: -24h, 2026-11-16, …")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="End of the period.", show_default="now")
    ] = None,
    channel: Annotated[str, typer.Option(metavar="FILTER", help="Only these channels.")] = "#",
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page with plots.")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="JSON as the HTTP API has it.")] = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Report delivered quality: rates, latency, what was lost and why, slow subscriptions."""
    from accord.cli.errors import InputError
    from accord.cli.ledger_client import LedgerClient
    from accord.cli.predicate_text import check_filter, read_since
    from accord.cli.screen import open_console, print_line

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
        from accord.cli.report_plots import check_plotting

        check_plotting()
    found = LedgerClient(url, user, authority).report(
        channel=channel, last=last, since=since, until=until
    )
    if page is not None:
        from accord.cli.report_html import write_page

        write_page(found, page)
        print_line(open_console(stderr=True), f"written to {page}")
    if is_json:
        from accord.core.queries.report import encode_report

        typer.echo(encode_report(found).decode())
    elif page is None:
        from accord.cli.report_screen import draw_report

        open_console().print(draw_report(found))
