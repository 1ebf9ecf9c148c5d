"""`accord quality …`: expectations and profiles with their states, and files of them."""

# Imports stand in the functions: help and completion must not wait for tables.
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User

IsJson = Annotated[bool, typer.Option("--json", help="JSON, as the HTTP API has it.")]
Definitions = Annotated[
    list[Path] | None,
    typer.Option("--properties", metavar="FILE", help="Definitions of further properties."),
]

app = typer.Typer(
    invoke_without_command=True,
    help="Show negotiated quality: profiles, expectations and their states, and why.",
)


@app.callback()
def quality(  # noqa: PLR0913 (a parameter per option)
    context: typer.Context,
    *,
    channel: Annotated[str, typer.Option(metavar="FILTER", help="Only these channels.")] = "#",
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show profiles, the best of them, and expectations with their states and reasons."""
    if context.invoked_subcommand is not None:
        _check_options(context)
        return
    import msgspec

    from accord.cli.predicate_text import check_filter
    from accord.cli.quality.client import QualityClient
    from accord.cli.quality.screen import draw_quality
    from accord.cli.screen import open_console

    check_filter(channel, "--channel")
    status = QualityClient(url, user, authority).status(channel)
    if is_json:
        typer.echo(msgspec.json.encode(status).decode())
    else:
        open_console().print(draw_quality(status))


@app.command("properties")
def properties(
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """List the properties that can be expected and offered."""
    import msgspec

    from accord.cli.quality.client import QualityClient
    from accord.cli.quality.screen import draw_properties
    from accord.cli.screen import open_console
    from accord.http.schemas import PropertyList

    found = QualityClient(url, user, authority).properties()
    if is_json:
        typer.echo(msgspec.json.encode(PropertyList(properties=found)).decode())
    else:
        open_console().print(draw_properties(found))


@app.command("define")
def define(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Properties, as key = value lines.")],
    *,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Define properties for all nodes, from now on."""
    from accord.cli.quality.client import QualityClient
    from accord.cli.quality.files import read_registry, read_text

    read_registry([file])  # reports the line of a problem
    defined = QualityClient(url, user, authority).define(read_text(file))
    typer.echo(f"defined: {', '.join(defined)}")


@app.command("check")
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Expectations and profiles, .xml or .json.")
    ],
    *,
    definitions: Definitions = None,
) -> None:
    """Check a file of expectations and profiles, and say where it is wrong."""
    from accord.cli.quality.files import read_registry, read_stored
    from accord.cli.quantities import count_text

    stored = read_stored(file, read_registry(definitions or []))
    expectations = count_text(len(stored.expectations), "expectation")
    typer.echo(f"{file}: {expectations}, {count_text(len(stored.profiles), 'profile')}")


@app.command("convert")
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="An .xml or .json file.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="An .xml or .json file.")],
    *,
    definitions: Definitions = None,
) -> None:
    """Convert a file of expectations and profiles to XML or JSON."""
    from accord.cli.quality.files import (
        check_format,
        read_registry,
        read_stored,
        write_stored,
    )

    check_format(target)
    write_stored(target, read_stored(source, read_registry(definitions or [])))


def _check_options(context: typer.Context) -> None:
    """Reject options given before a subcommand, which would not get them."""
    from accord.cli.errors import InputError

    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            problem = f"expected options after {context.invoked_subcommand}"
            raise InputError("accord quality", problem)
