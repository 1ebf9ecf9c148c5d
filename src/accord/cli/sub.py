"""`accord sub`: show events as they arrive."""

# Imports stand in the functions: help and completion must not wait for a client.
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.connection import DEFAULT_URL, Authority, Client, Url, User

if TYPE_CHECKING:
    from accord.cli.event_output import Show


def sub(  # noqa: PLR0913 (a parameter per option)
    filters: Annotated[
        list[str],
        typer.Argument(metavar="FILTER...", help="Channels, such as demo/feeder/+ or '#'"),
    ],
    *,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            "-w",
            metavar="PREDICATE",
            help="Only events that match, such as: load_mw > 4",
        ),
    ] = None,
    xpath: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION", help="The same as an XPath 1.0 condition on XML metadata."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start with kept events: -24h, 2026-11-16T07:30:00Z, …"),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON",
            help='Expected quality: {"rate": [5, 10]}; several are alternatives.',
        ),
    ] = None,
    qos: Annotated[
        int,
        typer.Option(
            "--qos",
            "-q",
            min=0,
            max=2,
            metavar="QOS",
            help="Maximum QoS of deliveries; QoS 0 may be dropped.",
        ),
    ] = 1,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="End after N events.")
    ] = None,
    limit: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End after 500ms, 10s, 2min, …")
    ] = None,
    has_retained: Annotated[
        bool,
        typer.Option("--retained/--no-retained", help="Start with retained events."),
    ] = True,
    is_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per line, as `accord predicate` reads.")
    ] = False,
    is_raw: Annotated[
        bool,
        typer.Option("--raw", help="Payloads only, each with a line end unless --count is 1."),
    ] = False,
    client: Client = None,
    url: Url = DEFAULT_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Show events as they arrive, until Ctrl-C; with --since, kept events first.

    Exit code 0, or 1 if --count was not reached in time; 2 for a usage error.
    """
    from accord.cli.connection import read_target, run_client
    from accord.cli.predicate_text import check_predicate, read_since
    from accord.cli.quantities import read_duration_s
    from accord.cli.sub_runner import SubOptions, SubRunner, read_expectation

    if where is not None and xpath is not None:
        raise typer.BadParameter("give one of --where and --xpath")
    if is_json and is_raw:
        raise typer.BadParameter("give one of --json and --raw")
    options = SubOptions(
        filters=tuple(dict.fromkeys(map(_checked, filters))),
        where=where,
        xpath=xpath,
        since=since,
        expect=tuple(map(read_expectation, expect or ())),
        qos=qos,
        has_retained=has_retained,
        count=count,
        limit_s=None if limit is None else read_duration_s(limit, "--for"),
    )
    check_predicate(where, xpath)
    if since is not None:
        read_since(since, "--since")
    following = SubRunner(
        options,
        _show(is_json=is_json, is_raw=is_raw, is_one=count == 1, has_days=since is not None),
    )
    try:
        run_client(following.run(read_target(url, user, authority, client)))
    except KeyboardInterrupt:
        typer.echo(err=True)
    following.summarise()
    raise typer.Exit(0 if count is None or following.shown >= count else 1)


def _checked(pattern: str) -> str:
    from accord.cli.errors import InputError
    from accord.core.mqtt.codec import problem_with_subscription

    if problem := problem_with_subscription(pattern):
        raise InputError("FILTER", problem)
    return pattern


def _show(*, is_json: bool, is_raw: bool, is_one: bool, has_days: bool) -> Show:
    from accord.cli.event_output import EventPrinter, show_json, show_raw
    from accord.cli.screen import open_console

    if is_json:
        return show_json
    if is_raw:
        return lambda event: show_raw(event, has_end=not is_one)
    return EventPrinter(open_console(), has_days=has_days).show
