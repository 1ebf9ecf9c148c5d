"""`accord config`: prints or checks a configuration."""

from __future__ import annotations

from pathlib import Path

import typer

from accord.cli.parameters import option


def config(
    check: Path | None = option("FILE", "Say whether a node could start with FILE instead."),
) -> None:
    """Print an accord.toml with every setting and its default, or check one."""
    # Imported late, so that other commands start faster.
    from accord.config import load  # noqa: PLC0415
    from accord.config.reference import example_toml  # noqa: PLC0415

    if check is None:
        typer.echo(example_toml(), nl=False)
    else:
        load(check)
        typer.echo(f"{check}: good")
