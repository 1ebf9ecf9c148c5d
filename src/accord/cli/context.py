"""`accord context …`: nodes by name, for MQTT and HTTP, in the user's configuration directory.

A command finds its node by --url, then --context or ACCORD_CONTEXT, then ACCORD_URL
(ACCORD_HTTP_URL for HTTP), then the context in use, then this machine. User and certificates of a
context go only to its own addresses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import environ
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
import typer
from rich.console import RenderableType

from accord.cli.options import CommandGroup, Output, complete_contexts
from accord.cli.parameters import argument, option
from accord.client.contexts import NodeContext, load, save, unknown_context
from accord.core.model.errors import InputError
from accord.terminal.rows import table

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SCHEMES: Final = {"url": ("mqtt", "mqtts", "ws", "wss"), "http": ("http", "https")}


app = CommandGroup()

Name = Annotated[
    str,
    argument("NAME", "Name of the context.", show_default=False, autocompletion=complete_contexts),
]


@app.command("add")
def add(
    name: Name,
    *,
    url: str = option("URL", "MQTT address: mqtt://HOST:PORT.", default=...),
    http: str = option("URL", "HTTP address; default: port 8080 of the same host.", default=""),
    user: str = option("NAME", "User name.", default=""),
    authority: Path | None = option("FILE", "Certificates (PEM) to trust.", "--ca"),
) -> None:
    """Add the context NAME, or replace it; the first one is used from then on."""
    if not _NAME.fullmatch(name):
        raise InputError("NAME", f"expected letters, digits, - and _, got {name!r}")
    _check_url("url", url)
    _check_url("http", http)
    found = load()
    ca = "" if authority is None else str(authority.absolute())
    found.contexts[name] = NodeContext(url=url, http=http, user=user, ca=ca)
    found.current = found.current or name
    save(found)
    typer.echo(f"context {name} added" + (", and in use" if found.current == name else ""))
    _warn_of_environment()


@app.command("use")
def use(name: Name) -> None:
    """Use the context NAME in commands that do not name a node."""
    found = load()
    if name not in found.contexts:
        raise InputError("NAME", unknown_context(name, found))
    found.current = name
    save(found)
    typer.echo(f"context {name} is in use")
    _warn_of_environment()


@app.command("ls")
def ls(*, output: Output) -> None:
    """List the contexts, with the one in use."""
    output.show(_rows, _draw, lambda found: found)


@app.command("rm")
def rm(name: Name) -> None:
    """Delete the context NAME."""
    found = load()
    if found.contexts.pop(name, None) is None:
        raise InputError("NAME", unknown_context(name, found))
    was_used = found.current == name
    found.current = "" if was_used else found.current
    save(found)
    typer.echo(f"context {name} deleted" + ("; none is in use" if was_used else ""))


class ContextRow(msgspec.Struct, frozen=True):
    name: str
    in_use: str
    url: str
    http: str
    user: str
    ca: str


def _warn_of_environment() -> None:
    names = [
        name for name in ("ACCORD_CONTEXT", "ACCORD_URL", "ACCORD_HTTP_URL") if name in environ
    ]
    if names:
        typer.echo(f"but commands go by {' and '.join(names)}, as long as it is set", err=True)


def _rows() -> list[ContextRow]:
    found = load()
    return [
        ContextRow(
            name=name,
            in_use="yes" if name == found.current else "",
            url=_hidden(each.url),
            http=_hidden(each.http_url),
            user=each.user,
            ca=each.ca,
        )
        for name, each in sorted(found.contexts.items())
    ]


def _draw(rows: Sequence[ContextRow]) -> RenderableType:
    if rows:
        return table(ContextRow, rows)
    return "no contexts: `accord context add NAME --url mqtt://HOST:PORT` adds one"


def _check_url(name: str, text: str) -> None:
    expected = _SCHEMES[name]
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in expected and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good and (text or name == "url"):
        shown = text.rpartition("@")[2][:80]
        raise InputError(f"--{name}", f"expected {expected[0]}://HOST:PORT, got {shown!r}")


def _hidden(url: str) -> str:
    """A URL without the password that it may contain."""
    return re.sub(r"(://[^/@]*?):[^/@]*@", r"\1:…@", url)
