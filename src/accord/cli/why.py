"""`accord why`: the outcome of an event, and its cause."""

# Imports stand in the functions: help and completion must not wait for tables.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.connection import DEFAULT_HTTP_URL, Authority, HttpUrl, User

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Struct


def why(  # noqa: PLR0913 (a parameter per option)
    event: Annotated[
        str | None,
        typer.Argument(metavar="EVENT_ID", help="ID of an event; default: the latest outcomes."),
    ] = None,
    *,
    channel: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Only these channels.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only to or from this client.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            metavar="OUTCOME",
            help="Only delivered, late, shaped, replaced, expired, shed or refused.",
        ),
    ] = None,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=1, max=1_000, help="Number of outcomes.")
    ] = 20,
    is_json: Annotated[
        bool, typer.Option("--json", help="JSON as the HTTP API has it, an object per line.")
    ] = False,
    url: HttpUrl = DEFAULT_HTTP_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show the outcome of an event for each destination and why, or where it still waits.

    Without an ID, list the latest outcomes with the IDs of their events.
    """
    from accord.cli.errors import InputError
    from accord.cli.ledger_client import LedgerClient
    from accord.cli.screen import open_console
    from accord.cli.why_screen import draw_event, draw_outcomes
    from accord.core.model.errors import EventError
    from accord.core.monitoring.ledger import event_id, event_number

    source = LedgerClient(url, user, authority)
    if event is None:
        found = source.recent(last, channel=channel, client=client, outcome=outcome)
        if is_json:
            _print_json(found.outcomes)
        else:
            open_console().print(draw_outcomes(found))
        return
    for name, value in (("--channel", channel), ("--client", client), ("--outcome", outcome)):
        if value is not None:
            raise InputError(name, "expected without an event id")
    try:
        event = event_id(event_number(event))
    except EventError as error:
        raise InputError("EVENT_ID", error.problem) from None
    story = source.event(event)
    if is_json:
        _print_json([story])
    else:
        open_console().print(draw_event(story))


def _print_json(values: Iterable[Struct]) -> None:
    import msgspec

    for value in values:
        typer.echo(msgspec.json.encode(value).decode())
