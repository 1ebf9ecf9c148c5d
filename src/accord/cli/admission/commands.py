"""`accord admission …`: advertised filters, reserved and free resources, refusals."""

# Imports stand in the functions: help and completion must not wait for tables.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Annotated

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User

IsJson = Annotated[bool, typer.Option("--json", help="JSON, as the HTTP API has it.")]

app = typer.Typer(
    invoke_without_command=True,
    help="Show what publishers advertise, what is reserved and free, and what was refused.",
)


@app.callback()
def admission(
    context: typer.Context,
    *,
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show advertised filters with rate and count, resources of all nodes, recent refusals."""
    if context.invoked_subcommand is not None:
        _check_options(context)
        return
    import msgspec

    from accord.cli.admission.client import AdmissionClient
    from accord.cli.admission.screen import draw_admission
    from accord.cli.screen import open_console

    status = AdmissionClient(url, user, authority).status()
    if is_json:
        typer.echo(msgspec.json.encode(status).decode())
    else:
        open_console().print(draw_admission(status))


@app.command("check")
def check(  # noqa: PLR0913 (a parameter per option)
    channel: Annotated[
        str,
        typer.Argument(metavar="FILTER", help="A channel, or a filter.", show_default=False),
    ],
    *,
    where: Annotated[
        str,
        typer.Option(
            metavar="PREDICATE", help="Predicate of the subscription; default: all events."
        ),
    ] = "",
    client: Annotated[
        str, typer.Option(metavar="ID", help="Client whose link and policies apply; default: none.")
    ] = "",
    is_json: IsJson = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Say what a subscription would need, and whether it would be admitted now.

    Exit code 1 if it would be refused.
    """
    import msgspec

    from accord.cli.admission.client import AdmissionClient
    from accord.cli.admission.screen import draw_need
    from accord.cli.predicate_text import check_filter
    from accord.cli.screen import open_console

    check_filter(channel, "FILTER")
    need = AdmissionClient(url, user, authority).demand(channel, where, client)
    if is_json:
        typer.echo(msgspec.json.encode(need).decode())
    else:
        open_console().print(draw_need(need))
    if need.state != "admitted":
        raise typer.Exit(1)


def _check_options(context: typer.Context) -> None:
    """Reject options given before a subcommand, which would not get them."""
    from accord.cli.errors import InputError

    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            problem = f"expected options after {context.invoked_subcommand}"
            raise InputError("accord admission", problem)
