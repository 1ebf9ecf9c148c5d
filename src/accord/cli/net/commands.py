"""`accord net …`: all nodes, their links, channels and routes."""

# Imports stand in the functions: help and completion must not wait for tables.
# ruff: noqa: PLC0415

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User

if TYPE_CHECKING:
    from accord.cli.net.client import NetClient
    from accord.cli.net.text import RecentRates
    from accord.core.overlay.status import NetStatus

_FRAME: Final = 14  # lines of a full screen that are not rows
_MIN_ROWS: Final = 3

IsJson = Annotated[
    bool, typer.Option("--json", help="A JSON object per line, as the HTTP API has it.")
]

app = typer.Typer(
    invoke_without_command=True,
    help="Show all nodes: links, channels, routes, and what arrives in time.",
)


@app.callback()
def net(  # noqa: PLR0913 (a parameter per option)
    context: typer.Context,
    *,
    is_json: IsJson = False,
    is_watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="Interval between two samples.")
    ] = "1s",
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show all nodes as one of them knows them: links, channels, routes, what arrives in time."""
    if context.invoked_subcommand is not None:
        _check_options(context)
        return
    from accord.cli.net.client import NetClient
    from accord.cli.net.text import RecentRates
    from accord.cli.quantities import read_duration_s
    from accord.cli.screen import open_console

    every_s = read_duration_s(every, "--every")
    node = NetClient(url, user, authority)
    try:
        if not is_watching:
            _print(node.status(), None, is_json=is_json)
        elif open_console().is_terminal and not is_json:
            _watch(node, every_s)
        else:
            lately = RecentRates()
            while True:
                status = node.status()
                lately.sample(status, time.monotonic())
                _print(status, lately, is_json=is_json)
                time.sleep(every_s)
    except KeyboardInterrupt:
        raise typer.Exit from None


@app.command("trace")
def trace(
    channel: Annotated[
        str,
        typer.Argument(metavar="CHANNEL", help="A channel, or a filter.", show_default=False),
    ],
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Walk the routes of a channel hop by hop, with what each link takes and what is left."""
    import msgspec

    from accord.cli.net.client import NetClient
    from accord.cli.net.route_trace import traces, why_no_routes
    from accord.cli.net.trace_screen import draw_traces
    from accord.cli.predicate_text import check_filter
    from accord.cli.screen import open_console, print_line

    check_filter(channel, "CHANNEL")
    status = NetClient(url, user, authority).status()
    found = traces(status, channel)
    if is_json:
        for each in found:
            typer.echo(msgspec.json.encode(each).decode())
    elif found:
        open_console().print(draw_traces(channel, found))
    else:
        print_line(open_console(), why_no_routes(status, channel))


def _check_options(context: typer.Context) -> None:
    """Reject options given before a subcommand, which would not get them."""
    from accord.cli.errors import InputError

    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            problem = f"expected options after {context.invoked_subcommand}"
            raise InputError("accord net", problem)


def _print(status: NetStatus, lately: RecentRates | None, *, is_json: bool) -> None:
    import msgspec

    from accord.cli.net.screen import draw_net
    from accord.cli.screen import open_console

    if is_json:
        typer.echo(msgspec.json.encode(status).decode())
    else:
        open_console().print(draw_net(status, lately))


def _watch(node: NetClient, every_s: float) -> None:
    """Redraw the full screen; if the node becomes unreachable, the last one stays."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from accord.cli.connection import UnreachableError
    from accord.cli.net.screen import draw_net
    from accord.cli.net.text import RecentRates
    from accord.cli.screen import open_console, safe

    console = open_console()
    status, lately, lost = node.status(), RecentRates(), Text()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            if not lost:
                lately.sample(status, time.monotonic())
            rows = max(_MIN_ROWS, (console.height - _FRAME) // 5)
            picture = draw_net(status, lately, rows=rows)
            live.update(Group(lost, picture) if lost else picture, refresh=True)
            time.sleep(every_s)
            try:
                status, lost = node.status(), Text()
            except UnreachableError as error:
                lost = Text(f"no answer: {safe(str(error))}", "bold yellow", no_wrap=True)
