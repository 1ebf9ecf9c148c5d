"""`accord config`: a configuration to start from."""

from __future__ import annotations

import typer


def config() -> None:
    """Print an accord.toml with every setting, its meaning and its default."""
    # Only now, because other commands should not wait for it.
    from accord.config.reference import example_toml  # noqa: PLC0415

    typer.echo(example_toml(), nl=False)
