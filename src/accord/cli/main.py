"""The `accord` command."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from accord.cli import (
    agent,
    config,
    demo,
    predicate,
    pub,
    query,
    report,
    sim,
    status,
    sub,
    top,
    up,
    user,
    why,
)
from accord.cli.admission import commands as admission
from accord.cli.bench import commands as bench
from accord.cli.net import channel_commands as channel
from accord.cli.net import commands as net
from accord.cli.policy import commands as policy
from accord.cli.quality import commands as quality
from accord.core.model.errors import AccordError, file_problem


class Commands(TyperGroup):
    """Error boundary: a problem in user input becomes a message and exit code 2."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().main(*args, **extra)
        except AccordError as error:
            # Imported late, so that the command starts faster.
            from accord.cli.screen import open_console, print_problem  # noqa: PLC0415

            print_problem(open_console(stderr=True), error)
        except OSError as error:
            # A full disk, or a closed terminal; a closed pipe is handled above.
            place = "" if error.filename is None else f"{error.filename}: "
            typer.echo(f"error: {place}{file_problem(error)}", err=True)
        sys.exit(2)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Publish, subscribe and query, with quality of service: what matters arrives in time.",
)
app.command("up")(up.up)
app.command("pub")(pub.pub)
app.command("sub")(sub.sub)
app.command("query")(query.query)
app.command("bench")(bench.bench)
app.command("status")(status.status)
app.command("top")(top.top)
app.command("why")(why.why)
app.command("report")(report.report)
app.command("config")(config.config)
app.command("agent")(agent.agent)
app.add_typer(sim.app, name="sim")
app.add_typer(net.app, name="net")
app.add_typer(channel.app, name="channel")
app.add_typer(policy.app, name="policy")
app.add_typer(quality.app, name="quality")
app.add_typer(admission.app, name="admission")
app.add_typer(demo.app, name="demo")
app.add_typer(user.app, name="user")
app.add_typer(predicate.app, name="predicate")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"accord {version('accord')}")
        raise typer.Exit


@app.callback()
def prepare(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    _reopen_closed()
    # A terminal that can't show a character shows its escape instead.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _reopen_closed() -> None:
    """Replace standard streams that were closed before the start, for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
