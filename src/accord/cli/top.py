"""`accord top`: a node's busiest channels, clients and queues."""

# Imports stand in the functions: help and completion must not wait for tables.
# ruff: noqa: PLC0415

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User

if TYPE_CHECKING:
    from accord.cli.ledger_client import LedgerClient
    from accord.core.monitoring.top import Top

_LINES: Final = 100
_LINES_IN_A_PIPE: Final = 60  # of a full screen


def top(  # noqa: PLR0913 (a parameter per option)
    *,
    interval: Annotated[
        str, typer.Option("--interval", "-i", metavar="TIME", help="Interval between two samples.")
    ] = "1s",
    is_once: Annotated[bool, typer.Option("--once", help="Print one sample and exit.")] = False,
    is_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per line, as the HTTP API has it.")
    ] = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Watch a node: channels, clients and their links, queues, what policies decide."""
    from accord.cli.ledger_client import LedgerClient
    from accord.cli.quantities import read_duration_s
    from accord.cli.screen import open_console

    interval_s = read_duration_s(interval, "--interval")
    source = LedgerClient(url, user, authority)
    try:
        if not is_once and not is_json and open_console().is_terminal:
            _watch(source, interval_s)
            return
        _print(source.top(_LINES), is_json=is_json)
        while not is_once:
            time.sleep(interval_s)
            _print(source.top(_LINES), is_json=is_json)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _print(now: Top, *, is_json: bool) -> None:
    import msgspec

    from accord.cli.screen import open_console
    from accord.cli.top_screen import draw_top

    if is_json:
        typer.echo(msgspec.json.encode(now).decode())
        return
    console = open_console()
    height = console.height if console.is_terminal else _LINES_IN_A_PIPE
    console.print(draw_top(now, width=console.width, height=height))


def _watch(source: LedgerClient, interval_s: float) -> None:
    """Redraw the full screen; if the node becomes unreachable, the last one stays."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from accord.cli.connection import UnreachableError
    from accord.cli.screen import open_console, safe
    from accord.cli.top_screen import draw_top

    console = open_console()
    now = source.top(_LINES)
    lost = Text()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            picture = draw_top(now, width=console.width, height=console.height - bool(lost))
            live.update(Group(lost, picture) if lost else picture, refresh=True)
            time.sleep(interval_s)
            try:
                now, lost = source.top(_LINES), Text()
            except UnreachableError as error:
                lost = Text(f"no answer: {safe(str(error))}", "bold yellow", no_wrap=True)
