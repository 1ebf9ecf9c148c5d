"""`accord query`: find kept events."""

# Imports stand in the functions: help and completion must not wait for a client.
# ruff: noqa: PLC0415

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from accord.cli.connection import DEFAULT_URL, Authority, Client, Url, User

if TYPE_CHECKING:
    from accord.cli.query_runner import QueryOptions, ResultSink

LIMIT: Final = 100
SINCE: Final = "-24h"


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    PARQUET = "parquet"


_BY_ENDING: Final = {".parquet": Format.PARQUET, ".json": Format.JSON, ".jsonl": Format.JSON}


def query(  # noqa: PLR0913 (a parameter per option)
    channel: Annotated[
        str, typer.Argument(metavar="CHANNEL", help="Channels, such as demo/feeder/+ or '#'")
    ] = "#",
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
        typer.Option(
            metavar="TIME",
            help="Only events received since: -24h, 2026-11-16, …",
            show_default=f"{SINCE}, or any time with --event",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only events received before.", show_default="now"),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of events.")
    ] = LIMIT,
    is_newest_first: Annotated[
        bool,
        typer.Option("--newest/--oldest", help="Order of the events; the limit applies to it."),
    ] = True,
    event: Annotated[
        str | None, typer.Option(metavar="ID", help="Only the event with this ID.")
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="Format of the output.", show_default="table"),
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the events to FILE (.parquet, .json)."
        ),
    ] = None,
    client: Client = None,
    url: Url = DEFAULT_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Find kept events by channel, content and time, including the latest.

    Exit code 0, or 1 if there are none; 2 for a usage error.
    """
    from accord.cli.connection import read_target, run_client
    from accord.cli.query_runner import QueryOptions, QueryRunner

    form = _choose_format(Format.JSON if is_json and form is None else form, output)
    wanted = QueryOptions(
        channel=channel,
        where=where,
        xpath=xpath,
        since=SINCE if since is None and event is None else since,
        until=until,
        limit=limit,
        is_newest_first=is_newest_first,
        event=event,
    )
    _check(wanted)
    sink = _open_sink(form, output)
    querying = QueryRunner(wanted, sink)
    try:
        run_client(querying.run(read_target(url, user, authority, client)))
        sink.finish()
    except KeyboardInterrupt:
        querying.interrupted()
        raise typer.Exit(1) from None
    finally:
        sink.close()
    querying.summarise()
    raise typer.Exit(0 if querying.found else 1)


def _choose_format(form: Format | None, output: Path | None) -> Format:
    from accord.cli.errors import InputError

    if form is None and output is not None:
        form = _BY_ENDING.get(output.suffix.lower())
        if form is None:
            raise InputError(
                "--output", "expected --format, or a name that ends in .parquet, .json"
            )
    if form is Format.PARQUET and output is None:
        raise InputError("--format", "expected --output FILE for parquet")
    if form is Format.TABLE and output is not None:
        raise InputError("--output", "expected --format json or parquet for a file")
    return form or Format.TABLE


def _check(wanted: QueryOptions) -> None:
    """Report problems with their location before the node is contacted."""
    from accord.cli.errors import InputError
    from accord.cli.predicate_text import check_filter, check_predicate, read_since
    from accord.core.model.errors import EventError
    from accord.core.monitoring.ledger import event_number

    if wanted.where is not None and wanted.xpath is not None:
        raise typer.BadParameter("give one of --where and --xpath")
    check_filter(wanted.channel, "CHANNEL")
    check_predicate(wanted.where, wanted.xpath)
    for name, text in (("--since", wanted.since), ("--until", wanted.until)):
        if text is not None:
            read_since(text, name)
    if wanted.event is not None:
        try:
            event_number(wanted.event)
        except EventError as error:
            raise InputError("--event", error.problem) from None


def _open_sink(form: Format, output: Path | None) -> ResultSink:
    from accord.cli.query_runner import JsonFile, ScreenSink

    if output is None:
        return ScreenSink(is_json=form is Format.JSON)
    if form is Format.JSON:
        return JsonFile(output)
    from accord.cli.parquet_export import ParquetFile

    return ParquetFile(output)
