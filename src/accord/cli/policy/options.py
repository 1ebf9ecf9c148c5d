"""Options and arguments shared by the policy commands, and their replies."""

# Imports stand in the commands: help and completion must not wait for parsers and tables.
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from accord.cli.policy.client import PolicyClient

Name = Annotated[str, typer.Argument(metavar="NAME", help="A policy's name", show_default=False)]
File = Annotated[str, typer.Argument(metavar="FILE", help="TOML (or .json); - for stdin")]
IsJson = Annotated[bool, typer.Option("--json", help="JSON, as the HTTP API has it.")]
IfVersion = Annotated[
    int | None,
    typer.Option(
        "--if-version", metavar="N", min=0, help="Change only if N is still the current version."
    ),
]
Names = list[str] | None


def find_node(url: str, user: str | None, authority: Path | None) -> PolicyClient:
    from accord.cli.policy.client import PolicyClient

    return PolicyClient(url, user, authority)


def print_version(version: int, *, is_json: bool) -> None:
    typer.echo(f'{{"version":{version}}}' if is_json else f"version {version} is active")


def echo(value: object) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())
