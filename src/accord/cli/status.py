"""`accord status`: a node's state."""

# Imports stand in the functions: help and completion must not wait for tables.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User

if TYPE_CHECKING:
    from accord.cli.status_client import ClientRates, StatusClient
    from accord.http.schemas import NodeSummary

_WAIT_S: Final = 0.2  # between two polls


def status(  # noqa: PLR0913 (a parameter per option)
    *,
    is_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per line, as the HTTP API has it.")
    ] = False,
    is_watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")
    ] = False,
    wait: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Wait up to TIME until the node is ready."),
    ] = None,
    needs_pipeline: Annotated[
        bool, typer.Option("--pipeline", help="With --wait: wait for the pipeline, too.")
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="Interval between two samples, for rates.")
    ] = "1s",
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show what a node does: clients, rates, queues, what was shed, the journal."""
    from accord.cli.quantities import read_duration_s
    from accord.cli.screen import open_console
    from accord.cli.status_client import StatusClient

    every_s = read_duration_s(every, "--every")
    source = StatusClient(url, user, authority)
    try:
        if wait is not None:
            _wait(source, read_duration_s(wait, "--wait"), needs_pipeline=needs_pipeline)
        if not is_watching:
            _print(*next(_poll(source, every_s)), is_json=is_json)
        elif open_console().is_terminal and not is_json:
            _watch(source, every_s)
        else:
            for look in _poll(source, every_s):
                _print(*look, is_json=is_json)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _wait(source: StatusClient, wait_s: float, *, needs_pipeline: bool) -> None:
    """Wait until ready; UnreachableError on timeout."""
    from accord.cli.connection import UnreachableError

    until = time.monotonic() + wait_s
    while True:
        try:
            lacking = _lacking(source.fetch(), needs_pipeline=needs_pipeline)
        except UnreachableError as error:
            lacking = str(error)
        if not lacking:
            return
        if time.monotonic() >= until:
            raise UnreachableError(f"not ready after {wait_s:g} s: {lacking}")
        time.sleep(_WAIT_S)


def _lacking(status: NodeSummary, *, needs_pipeline: bool) -> str:
    """Why it is not ready; empty if it is."""
    if not status.is_ready:
        return f"node {status.name} starts or stops"
    pipeline = status.statistics.pipeline
    if not needs_pipeline or (pipeline is not None and pipeline.state == "ready"):
        return ""
    state, problem = ("off", "") if pipeline is None else (pipeline.state, pipeline.problem)
    return f"the pipeline is {state}" + (f", {problem}" if problem else "")


def _poll(source: StatusClient, every_s: float) -> Iterator[tuple[NodeSummary, ClientRates]]:
    """Poll the status, with rates since the previous poll."""
    from accord.cli.status_client import ClientRates

    before = source.fetch()
    while True:
        time.sleep(every_s)
        now = source.fetch()
        yield now, ClientRates.between(before.statistics, now.statistics)
        before = now


def _print(status: NodeSummary, rates: ClientRates, *, is_json: bool) -> None:
    from accord.cli.screen import open_console
    from accord.cli.status_client import to_fields
    from accord.cli.status_screen import draw_status

    if is_json:
        typer.echo(json.dumps(to_fields(status, rates)))
    else:
        open_console().print(draw_status(status, rates))


def _watch(source: StatusClient, every_s: float) -> None:
    """Redraw in place; if the node becomes unreachable, the last status stays."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from accord.cli.connection import UnreachableError
    from accord.cli.screen import open_console, safe
    from accord.cli.status_client import ClientRates
    from accord.cli.status_screen import draw_status

    before = source.fetch()
    picture = draw_status(before, ClientRates.between(None, before.statistics))
    with Live(picture, console=open_console(), auto_refresh=False) as live:
        live.refresh()
        while True:
            time.sleep(every_s)
            try:
                now = source.fetch()
            except UnreachableError as error:
                lost = Text(f"no answer: {safe(str(error))}", "bold yellow")
                live.update(Group(picture, Text(), lost), refresh=True)
                continue
            picture = draw_status(now, ClientRates.between(before.statistics, now.statistics))
            live.update(picture, refresh=True)
            before = now
