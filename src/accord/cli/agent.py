"""`accord agent`: adapts a program's publishing to the quality expected of it."""

# Imports stand in the functions: help and completion must not wait for a client.
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.connection import DEFAULT_URL, Authority, Client, Url, User

if TYPE_CHECKING:
    from accord.apps.agent.settings import AgentSettings
    from accord.cli.connection import ConnectionTarget


def agent(  # noqa: PLR0913 (a parameter per option)
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND …", help="The program and its arguments.", show_default=False
        ),
    ],
    *,
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Capabilities of the program, and how to configure it (TOML).",
            show_default=False,
        ),
    ],
    is_quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
    client: Client = None,
    url: Url = DEFAULT_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Run a program, and rewrite its configuration when the node advises other values.

    The program is restarted, or signalled, after each change.
    """
    from accord.apps.agent.settings import read_settings
    from accord.cli.connection import read_target, run_client

    settings = read_settings(config)
    target = read_target(url, user, authority, client)
    try:
        code = run_client(_run(target, settings, command, is_quiet=is_quiet))
    except KeyboardInterrupt:
        code = 0  # on request
    raise typer.Exit(code if code >= 0 else 128 - code)  # a shell's exit code for a signal


async def _run(
    target: ConnectionTarget, settings: AgentSettings, command: list[str], *, is_quiet: bool
) -> int:
    from accord.apps.agent.runner import run_agent
    from accord.cli.connection import open_session

    def tell(text: str) -> None:
        if not is_quiet:
            typer.echo(text, err=True)

    async with open_session(target, tell) as session:
        return await run_agent(session, settings, command, tell)
