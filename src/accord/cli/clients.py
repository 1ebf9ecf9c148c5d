"""`accord clients …`: sessions of clients."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType

from accord.cli.http_client import AnyNodeHttpClient, NodeHttpClient
from accord.cli.options import CommandGroup, Output, Paging
from accord.cli.parameters import argument
from accord.core.monitoring.statistics import ClientStatus
from accord.operations.clients import (
    ClientField,
    DisconnectClient,
    EndSession,
    GetClient,
    ListClientChannels,
    ListClients,
    SubscriptionStatus,
)
from accord.operations.deliveries import ClientChannel, GrantedPreferences
from accord.terminal.amounts import clock_text, size_text
from accord.terminal.rows import (
    Column,
    Count,
    count,
    milliseconds,
    page,
    percent,
    rate,
    size,
    table,
    warned,
)

Client = Annotated[str, argument("CLIENT", "The ID of the client.")]

app = CommandGroup()


def _state(is_connected: bool) -> str:
    return "connected" if is_connected else "offline"


class ClientRow(msgspec.Struct, frozen=True):
    client: Annotated[str, Column(weight=2)]
    user: Annotated[str, Column(is_optional=True)]
    is_connected: Annotated[bool, Column("state", _state)]
    address: Annotated[str, Column(weight=0)]
    protocol: Annotated[str, Column(weight=0)]
    subscriptions: Count
    queued_bytes: Annotated[int, Column("queued", size)]
    received: Count
    sent: Count
    shed: Count


class ClientChannelRow(msgspec.Struct, frozen=True, kw_only=True):
    channel: Annotated[str, Column(weight=2)]
    sources: Annotated[str, Column(weight=0)]
    importance: int | None
    policy: Annotated[str, Column(is_optional=True)]
    preferences: Annotated[str, Column(is_optional=True)]
    received: Count
    dropped: Annotated[int, Column(unit=warned(count), is_number=True)]
    shaped: Annotated[int, Column(unit=count, weight=0, is_number=True)]
    late: Annotated[int, Column(unit=warned(count), weight=0, is_number=True)]
    last_ms: Annotated[int | None, Column("last", clock_text, weight=0)]
    rate_hz: Annotated[float, Column("events/s", rate)]
    p50_ms: Annotated[float | None, Column("p50", milliseconds)]
    p95_ms: Annotated[float | None, Column("p95", milliseconds)]
    in_time: Annotated[float | None, Column(unit=percent)]


class ClientReport(msgspec.Struct, frozen=True):
    """A session with its subscriptions, and what it got on each channel."""

    client: ClientStatus
    subscriptions: tuple[SubscriptionStatus, ...]
    since_ms: int
    channels: dict[str, ClientChannel]


class SubscriptionRow(msgspec.Struct, frozen=True):
    filter: Annotated[str, Column(weight=2)]
    qos: Annotated[int, Column("QoS")]
    where: Annotated[str, Column("predicate", is_optional=True)]
    xpath: Annotated[str, Column(is_optional=True)]


@app.command("ls")
def list_clients(*, paging: Paging, output: Output, node: AnyNodeHttpClient) -> None:
    """List the clients that are connected, and the sessions of others."""
    ask = ListClients(**paging.fields(ClientField))
    output.show(
        lambda: node.call(ask),
        lambda found: page(table(ClientRow, found.clients), found.matching, found.offset),
        lambda found: found.clients,
    )


@app.command("show")
def show_client(client: Client, *, output: Output, node: AnyNodeHttpClient) -> None:
    """Show a client, its subscriptions, and what it got on each channel in the last 15 minutes."""

    def fetch() -> ClientReport:
        found = node.call(GetClient(client=client))
        got = node.call(ListClientChannels(client=client))
        return ClientReport(found.client, found.subscriptions, got.since_ms, got.channels)

    output.show(fetch, draw_client)


@app.command("disconnect")
def disconnect_client(client: Client, *, node: NodeHttpClient) -> None:
    """Close the connection of a client; it may connect again."""
    found = node.call(DisconnectClient(client=client))
    typer.echo(f"{client}: {'disconnected' if found.was_connected else 'was not connected'}")


@app.command("forget")
def end_session(client: Client, *, node: NodeHttpClient) -> None:
    """End the session of a client, with its subscriptions and queued messages."""
    node.call(EndSession(client=client))
    typer.echo(f"{client}: session ended")


def draw_client(found: ClientReport) -> RenderableType:
    subscriptions = table(SubscriptionRow, found.subscriptions)
    parts: list[RenderableType] = [
        table(ClientRow, [found.client]),
        "",
        subscriptions if found.subscriptions else "no subscriptions",
    ]
    if found.channels:
        rows = [_channel_row(name, each) for name, each in found.channels.items()]
        parts += ["", f"events since {clock_text(found.since_ms)}", table(ClientChannelRow, rows)]
    return Group(*parts)


def _channel_row(channel: str, each: ClientChannel) -> ClientChannelRow:
    more = each.sources_total - len(each.sources)
    return ClientChannelRow(
        channel=channel,
        sources=", ".join(each.sources) + (f" and {more:,} more" if more > 0 else ""),
        importance=each.importance,
        policy=each.policy,
        preferences=each.preset or _preferences(each.preferences),
        received=each.received,
        dropped=each.dropped,
        shaped=each.shaped,
        late=each.late,
        last_ms=each.last_ms,
        rate_hz=each.rate_hz,
        p50_ms=each.p50_ms,
        p95_ms=each.p95_ms,
        in_time=each.in_time,
    )


def _preferences(granted: GrantedPreferences | None) -> str:
    """What policies grant, if anything."""
    if granted is None:
        return ""
    words = (
        f"within {milliseconds(granted.deadline_ms)}" if granted.deadline_ms else "",
        granted.shaping,
        size_text(granted.max_bytes) if granted.max_bytes else "",
        f"{granted.max_pixels:,} pixels" if granted.max_pixels else "",
    )
    return ", ".join(filter(None, words))
