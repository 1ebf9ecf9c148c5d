"""`accord retained …`: retained messages."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType

from accord.cli.arguments import check_filter
from accord.cli.http_client import NodeHttpClient
from accord.cli.options import CommandGroup, Limit, Output
from accord.cli.parameters import argument
from accord.operations.clients import ListRetained, RemoveRetained, RetainedPage
from accord.terminal.amounts import count_text, moment_text, size_text
from accord.terminal.rows import Column, table

app = CommandGroup()


def _start(text: str) -> str:
    return text[:80]


class RetainedRow(msgspec.Struct, frozen=True):
    channel: Annotated[str, Column(weight=2)]
    received_ms: Annotated[int, Column("at", moment_text, is_whole=True)]
    publisher: str
    size: Annotated[int, Column(unit=size_text)]
    payload: Annotated[str | None, Column(unit=_start, weight=0, nothing="(binary)")]


@app.command("ls")
def list_retained(
    channel: str = argument("FILTER", "Only these channels.", default="#"),
    *,
    limit: Limit = 100,
    output: Output,
    node: NodeHttpClient,
) -> None:
    """List retained messages: of each channel the last one that was published with --retain."""
    check_filter(channel, "FILTER")
    output.show(
        lambda: node.call(ListRetained(channel=channel, limit=limit)),
        draw_retained,
        lambda found: found.messages,
    )


@app.command("rm")
def remove_retained(
    channel: str = argument("FILTER", "Channels whose retained messages are removed."),
    *,
    node: NodeHttpClient,
) -> None:
    """Remove retained messages."""
    check_filter(channel, "FILTER")
    found = node.call(RemoveRetained(channel=channel))
    typer.echo(f"removed {count_text(found.removed, 'retained message')}")


def draw_retained(page: RetainedPage) -> RenderableType:
    if not page.messages:
        return "no retained messages"
    drawn = table(RetainedRow, page.messages)
    return drawn if page.is_complete else Group(drawn, "… and more: --limit, or name a filter")
