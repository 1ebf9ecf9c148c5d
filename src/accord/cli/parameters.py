"""Options and arguments of commands, declared as defaults of their parameters.

    seconds: str = option("TIME", "How long to publish.", default="5s")
    is_dry: bool = flag("Only show what would change.", "--dry-run")
    filters: list[str] = argument("FILTER...", "Channels.")

Names are given where they differ from the parameter's; those that many commands have are types in
`options`.
"""

from __future__ import annotations

from typing import Any

import typer


def option(
    metavar: str | None, text: str, *names: str, default: object = None, **settings: Any
) -> Any:
    """An option with a value; a default of `...` makes it required."""
    return typer.Option(default, *names, metavar=metavar, help=text, **settings)


def shared(metavar: str | None, text: str, *names: str, **settings: Any) -> Any:
    """An option as a type, for several commands; each gives the default."""
    return option(metavar, text, *names, default=..., **settings)


def flag(text: str, *names: str, default: bool | None = False) -> Any:
    return typer.Option(default, *names, metavar="", help=text)


def argument(metavar: str, text: str, *, default: object = ..., **settings: Any) -> Any:
    return typer.Argument(default, metavar=metavar, help=text, **settings)
