"""`accord pub`: publish events."""

# Imports stand in the functions: help and completion must not wait for a client.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from accord.cli.connection import DEFAULT_URL, Authority, Client, Url, User

if TYPE_CHECKING:
    from accord.cli.pub_runner import PayloadSource
    from accord.core.model.values import Value

STDIN: Final = "-"
INTERRUPTED: Final = 130


def pub(  # noqa: PLR0913 (a parameter per option)
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Such as grid/feeder")],
    payload: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD", help="Text, or - for standard input; none if left out"),
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the payload from FILE."),
    ] = None,
    is_lines: Annotated[
        bool, typer.Option("--lines", help="Each line of standard input is an event.")
    ] = False,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute",
            "-a",
            metavar="NAME=VALUE",
            help="Attribute of the event; may be repeated.",
        ),
    ] = None,
    metadata: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An XML document of attributes.")
    ] = None,
    qos: Annotated[
        int,
        typer.Option(
            "--qos", "-q", min=0, max=2, metavar="QOS", help="0: sent, 1: at least once, 2: once."
        ),
    ] = 1,
    retain: Annotated[
        bool, typer.Option("--retain", "-r", help="Retain the event for later subscribers.")
    ] = False,
    deadline_ms: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="MS",
            help="Drop the event if it cannot be delivered within MS milliseconds.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Replacement key: a newer event replaces one that waits."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Publish it N times.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Interval between events, such as 500ms or 2s."),
    ] = None,
    client: Client = None,
    url: Url = DEFAULT_URL,
    user: User = None,
    authority: Authority = None,
) -> None:
    """Publish an event, or many.

    Attributes that look like numbers, booleans or times become such values, others are text.

    Exit code 0 if all were accepted, 1 if any was refused, 2 for a usage error.
    """
    from accord.cli.connection import read_target, run_client
    from accord.cli.pub_runner import PubRunner
    from accord.client.messages import Extras, to_message

    source = _source(payload, file, is_lines=is_lines, count=count, every=every)
    attributes = read_attributes(attribute or ())
    extras = Extras(
        qos=qos,
        retain=retain,
        deadline_ms=deadline_ms,
        key=key,
        metadata=None if metadata is None else _read_file(metadata),
    )
    to_message(channel, b"", attributes, extras)  # report problems before connecting
    publishing = PubRunner(channel, attributes, extras)
    target = read_target(url, user, authority, client)
    try:
        run_client(publishing.run(target, source))
    except KeyboardInterrupt:
        typer.echo(err=True)
        if not publishing.accepted:
            raise typer.Exit(INTERRUPTED) from None
    finally:
        publishing.summarise()
    raise typer.Exit(1 if publishing.refused else 0)


def read_attributes(pairs: Sequence[str]) -> dict[str, Value]:
    """Parse `name=value` pairs; the form of a value gives its type."""
    from accord.cli.errors import InputError
    from accord.core.model.values import infer

    attributes: dict[str, Value] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise InputError("--attribute", f"expected NAME=VALUE, got {pair!r}")
        if name.strip() in attributes:
            raise InputError("--attribute", f"expected {name.strip()!r} once, given twice")
        attributes[name.strip()] = infer(text)
    return attributes


def _source(
    payload: str | None, file: Path | None, *, is_lines: bool, count: int | None, every: str | None
) -> PayloadSource:
    """Where payloads come from, and how often."""
    from accord.cli.pub_runner import Lines, Repeated
    from accord.cli.quantities import read_duration_s

    if (payload is not None) + (file is not None) + is_lines > 1:
        raise typer.BadParameter("give one of PAYLOAD, --file and --lines")
    every_s = None if every is None else read_duration_s(every, "--every")
    if is_lines:
        if count is not None:
            raise typer.BadParameter("give one of --lines and --count")
        return Lines(every_s)
    if count is None:
        count = 1 if every_s is None else 0  # 0: unlimited
    if payload == STDIN:
        return Repeated(None, count, every_s)
    return Repeated(_text(payload or "") if file is None else _read_file(file), count, every_s)


def _text(payload: str) -> str | bytes:
    """A shell passes bytes that are not UTF-8 as lone surrogates."""
    try:
        payload.encode()
    except UnicodeEncodeError:
        return payload.encode(errors="surrogateescape")
    return payload


def _read_file(path: Path) -> bytes:
    from accord.cli.errors import InputError
    from accord.core.model.errors import file_problem
    from accord.core.model.event import MAX_PAYLOAD

    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_PAYLOAD + 1)
    except (OSError, ValueError) as error:
        raise InputError(str(path), file_problem(error)) from None
    if len(data) > MAX_PAYLOAD:
        raise InputError(str(path), f"expected at most {MAX_PAYLOAD} bytes")
    return data
