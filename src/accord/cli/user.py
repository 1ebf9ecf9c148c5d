"""`accord user …`: who may connect to a node."""

# Imports stand in the commands: help and completion must not wait for them.
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Final

import typer

from accord.cli.parameters import argument

app = typer.Typer(no_args_is_help=True, help="Prepare entries for users in accord.toml.")

MAX_LENGTH: Final = 1_024

Name = Annotated[str, argument("NAME", "The user's name", show_default=False)]


@app.callback()
def users() -> None:
    """Keeps `hash` a command of its own, though it is the only one."""


@app.command("hash")
def hash_(name: Name = "NAME") -> None:
    """Ask for a password and print the lines of accord.toml that let NAME in with it.

    Reads the password twice from the terminal, or once from a pipe.
    """
    from accord.core.model.errors import InputError
    from accord.runtime.users import hash_password

    if not name or not name.isprintable() or ":" in name:
        raise InputError("NAME", "expected printable characters other than a colon")
    password = _prompt() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise InputError("password", "expected at least one character")
    if len(password) > MAX_LENGTH:
        raise InputError("password", f"expected at most {MAX_LENGTH} characters")
    try:
        hashed = hash_password(password)
    except UnicodeEncodeError:
        raise InputError("password", "expected Unicode text") from None
    typer.echo(f"[users.{_key(name)}]")
    typer.echo(f'password = "{hashed}"')
    typer.echo('may = { publish = ["#"], subscribe = ["#"] }')


def _prompt() -> str:
    # On standard error, so that the output can be appended to a file.
    answer: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return answer


def _key(name: str) -> str:
    """A name as a TOML key."""
    # A JSON string is a TOML string.
    is_bare = re.fullmatch(r"[A-Za-z0-9_-]+", name)
    return name if is_bare else json.dumps(name, ensure_ascii=False)
