"""`accord config`: a configuration to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def config(
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Say whether FILE is valid instead.")
    ] = None,
) -> None:
    """Print an accord.toml with every setting, its meaning and its default."""
    # Only now, because other commands should not wait for them.
    if check is not None:
        from accord.config import load  # noqa: PLC0415

        load(check)
        typer.echo(f"{check} is valid")
        return
    from accord.config.reference import example_toml  # noqa: PLC0415

    typer.echo(example_toml(), nl=False)
