"""`accord agent`: adapts a program's publishing to the quality expected of it."""

# Imports stand in the functions: help and completion must not wait for a client.
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accord.cli.connection import ConnectionTarget, open_session, run_client
from accord.cli.options import command
from accord.cli.parameters import argument, flag, option

if TYPE_CHECKING:
    from accord.apps.agent.settings import AgentSettings
    from accord.cli.connection import ConnectionTarget


@command
def agent(
    command: list[str] = argument(
        "-- COMMAND …", "The program and its arguments.", show_default=False
    ),
    *,
    config: Path = option(
        "FILE",
        "Capabilities of the program, and how to configure it (TOML).",
        "--config",
        show_default=False,
        default=...,
    ),
    is_quiet: bool = flag("Print nothing.", "--quiet", "-q"),
    target: ConnectionTarget,
) -> None:
    """Run a program, and reconfigure it when the node advises other values.

    Its configuration is rewritten, and the program is restarted, or signalled, after each change.
    """
    from accord.apps.agent.settings import read_settings

    settings = read_settings(config)
    try:
        code = run_client(_run(target, settings, command, is_quiet=is_quiet))
    except KeyboardInterrupt:
        code = 0  # on request
    raise typer.Exit(code if code >= 0 else 128 - code)  # a shell's exit code for a signal


async def _run(
    target: ConnectionTarget, settings: AgentSettings, command: list[str], *, is_quiet: bool
) -> int:
    from accord.apps.agent.runner import run_agent

    def tell(text: str) -> None:
        if not is_quiet:
            typer.echo(text, err=True)

    async with open_session(target, tell) as session:
        return await run_agent(session, settings, command, tell)
