"""Clients and their sessions, and retained messages.

Some operations act for a client: over MQTT for the asking one. To act for another client takes the
right to policies. Clients import this module for the requests, without the broker.
"""

from __future__ import annotations

from base64 import b64encode
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import PolicyError
from accord.core.monitoring.statistics import ClientStatus
from accord.core.mqtt.codes import Reason
from accord.operations.deliveries import ClientChannel, client_channels
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.pages import Descending, Offset, Rows, select
from accord.operations.ports import NodePorts, need
from accord.operations.visibility import check_client

if TYPE_CHECKING:
    from accord.core.broker.broker import Broker
    from accord.core.broker.session import MqttSession

_PREVIEW: Final = 1_000

ClientField = Literal[
    "client", "user", "address", "protocol", "is_connected", "connected_ms", "subscriptions",
    "queued_messages", "queued_bytes", "received", "sent", "shed",
    "replaced",
]  # fmt: skip
ClientId = Annotated[str, Meta(max_length=65_535, examples=["patrol-1"])]
EndedClient = Annotated[str, Meta(max_length=65_535, examples=["patrol-2"])]
Filter = Annotated[str, Meta(max_length=65_535, description="A filter.", examples=["demo/#"])]


class ClientPage(Struct, frozen=True, kw_only=True):
    """A page of sessions: `total` counts all of them, `matching` those found."""

    total: int
    matching: int
    offset: int
    clients: tuple[ClientStatus, ...]


class SubscriptionStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subscription: its filter, maximum QoS and predicate."""

    filter: str
    qos: int
    where: str = ""
    xpath: str = ""


class ClientDetails(Struct, frozen=True, kw_only=True):
    """One session with its subscriptions, of which at most 1,000 are listed."""

    client: ClientStatus
    subscriptions: tuple[SubscriptionStatus, ...]


class ClientChannels(Struct, frozen=True, kw_only=True):
    """What a client got since `since_ms`, by channel: at most 200, the worst served first."""

    client: str
    since_ms: int
    channels: dict[str, ClientChannel]


class ClientEnded(Struct, frozen=True, kw_only=True):
    """What happened to the client: it was disconnected, its session forgotten."""

    client: str
    was_connected: bool
    is_forgotten: bool


class RetainedMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A retained message: the first 1,000 bytes as text where they are some, else as base64."""

    channel: str
    publisher: str
    received_ms: int
    qos: int
    size: int
    payload: str | None = None
    payload_base64: str | None = None


class RetainedPage(Struct, frozen=True, kw_only=True):
    """Retained messages by channel; there are more unless `is_complete`."""

    messages: tuple[RetainedMessage, ...]
    is_complete: bool


class RetainedRemoved(Struct, frozen=True, kw_only=True):
    """How many retained messages were removed."""

    removed: int


class ListClients(Request[ClientPage], frozen=True, kw_only=True, tag="list"):
    limit: Rows = 100
    offset: Offset = 0
    search: Annotated[
        str, Meta(max_length=1_000, description="Words in ID, user or address, in any case.")
    ] = ""
    sort: Annotated[ClientField | None, Meta(description="Left out: in the node's order.")] = None
    descending: Descending = False


class GetClient(Request[ClientDetails], frozen=True, kw_only=True, tag="get"):
    client: ClientId


class ListClientChannels(Request[ClientChannels], frozen=True, kw_only=True, tag="channels"):
    client: ClientId


class DisconnectClient(Request[ClientEnded], frozen=True, kw_only=True, tag="disconnect"):
    client: EndedClient


class EndSession(Request[ClientEnded], frozen=True, kw_only=True, tag="forget"):
    client: EndedClient


class ListRetained(Request[RetainedPage], frozen=True, kw_only=True, tag="list"):
    channel: Filter = "#"
    limit: Rows = 100


class RemoveRetained(Request[RetainedRemoved], frozen=True, kw_only=True, tag="remove"):
    channel: Filter


@operation("clients", "GET /clients", Right.STATISTICS)
async def list_clients(node: NodePorts, ask: ListClients, _asker: Asker) -> ClientPage:
    """Sessions of clients that are connected or offline, page by page."""
    if not ask.search and ask.sort is None:
        page = tuple(islice(node.view.clients(), ask.offset, ask.offset + ask.limit))
        total = node.view.statistics().sessions
        return ClientPage(total=total, matching=total, offset=ask.offset, clients=page)
    field = ask.sort or "client"
    found = await select(
        node.view.clients(),
        text=lambda each: f"{each.client}\n{each.user}\n{each.address}",
        search=ask.search,
        key=lambda each: getattr(each, field),
        descending=ask.descending,
        offset=ask.offset,
        limit=ask.limit,
    )
    return ClientPage(
        total=found.total,
        matching=found.matching,
        offset=ask.offset,
        clients=tuple(found.rows),
    )


@operation("clients", "GET /clients/{client}", Right.STATISTICS)
def get_client(node: NodePorts, ask: GetClient, asker: Asker) -> ClientDetails:
    """One session and its subscriptions."""
    session = _session(_broker(node), ask.client)
    status = next(each for each in node.view.clients() if each.client == ask.client)
    seen = (each for each in session.subscriptions.items() if asker.may_see(each[1].pattern))
    return ClientDetails(
        client=status,
        subscriptions=tuple(
            SubscriptionStatus(filter=name, qos=each.qos, where=each.where, xpath=each.xpath)
            for name, each in islice(seen, 1_000)
        ),
    )


@operation("clients", "GET /clients/{client}/channels", Right.STATISTICS)
async def list_client_channels(
    node: NodePorts, ask: ListClientChannels, asker: Asker
) -> ClientChannels:
    """What a client got on each channel in the last 15 minutes, as far as the ledger is in memory.

    Channels that it subscribed to by name are among them without events, too.
    """
    ledger = need(node.ledger, "ledger")
    now_ms = node.now_ms()
    deliveries = ledger.follow_client(ask.client, now_ms=now_ms)
    await ledger.seed(deliveries)
    channels = client_channels(node, ask.client, deliveries, asker, now_ms=now_ms)
    if not channels:
        _session(_broker(node), ask.client)  # otherwise there is no such client
    since_ms = deliveries.since_ms(now_ms)
    return ClientChannels(client=ask.client, since_ms=since_ms, channels=channels)


@operation("clients", "POST /clients/{client}/disconnect", Right.POLICIES, changes=True)
def disconnect_client(node: NodePorts, ask: DisconnectClient, asker: Asker) -> ClientEnded:
    """Close the connection of a client; it may connect again, and its session is kept."""
    session = _session(_broker(node), ask.client)
    was_connected = _disconnect(node, session, asker)
    return ClientEnded(client=ask.client, was_connected=was_connected, is_forgotten=False)


@operation("clients", "DELETE /clients/{client}", Right.POLICIES, changes=True)
def end_session(node: NodePorts, ask: EndSession, asker: Asker) -> ClientEnded:
    """End the session of a client: its connection, subscriptions and queued messages."""
    broker = _broker(node)
    session = _session(broker, ask.client)
    was_connected = _disconnect(node, session, asker)
    if broker.sessions.get(ask.client) is session:
        broker.end_session(session)
    node.due()
    return ClientEnded(client=ask.client, was_connected=was_connected, is_forgotten=True)


@operation("retained", "GET /retained", Right.STATISTICS)
def list_retained(node: NodePorts, ask: ListRetained, asker: Asker) -> RetainedPage:
    """Retained messages of a filter, as far as the asker may subscribe to them."""
    broker = _broker(node)
    _check_filter(ask.channel)
    found = broker.retained.select(ask.channel, now_ms=node.now_ms())
    seen = [each for each in found if asker.rights.may_subscribe(each.channel)]
    seen.sort(key=lambda each: each.channel)
    return RetainedPage(
        messages=tuple(
            RetainedMessage(
                channel=each.channel,
                publisher=each.publisher,
                received_ms=each.received_ms,
                qos=each.qos,
                size=len(each.payload),
                **_preview(each.payload),
            )
            for each in seen[: ask.limit]
        ),
        is_complete=len(seen) <= ask.limit,
    )


@operation("retained", "DELETE /retained", Right.POLICIES, changes=True)
def remove_retained(node: NodePorts, ask: RemoveRetained, _asker: Asker) -> RetainedRemoved:
    """Remove the retained messages of a filter."""
    broker = _broker(node)
    _check_filter(ask.channel)
    broker.context.now_ms = node.now_ms()
    found = [each.channel for each in broker.retained.select(ask.channel, now_ms=node.now_ms())]
    for channel in found:
        broker.remove_retained(channel)
    node.due()
    return RetainedRemoved(removed=len(found))


def _broker(node: NodePorts) -> Broker:
    return need(node.broker, "sessions")


def client_session(node: NodePorts, client: str, asker: Asker) -> MqttSession:
    """The session of the client that a request acts for."""
    client = client or asker.client
    if not client:
        raise RequestError(400, "expected the client to act for", "client")
    check_client(client, asker)
    broker = _broker(node)
    broker.context.now_ms = node.now_ms()
    return _session(broker, client)


def _session(broker: Broker, client: str) -> MqttSession:
    session = broker.sessions.get(client)
    if session is None:
        raise RequestError(
            404, f"no client {client[:200]!r}", "client", remedy="`accord clients ls` lists them"
        )
    return session


def _disconnect(node: NodePorts, session: MqttSession, asker: Asker) -> bool:
    from accord.core.broker.broker import ClientConnection  # noqa: PLC0415 (see above)

    connection = session.connection
    if not isinstance(connection, ClientConnection):
        return False
    need(node.broker, "sessions").context.now_ms = node.now_ms()
    connection.end(Reason.ADMINISTRATIVE_ACTION, f"disconnected by {asker.who}")
    node.due()
    return True


def _check_filter(pattern: str) -> None:
    if problem := problem_with_filter(pattern):
        raise PolicyError("channel", problem)


def _preview(payload: bytes) -> dict[str, str]:
    start = payload[:_PREVIEW]
    try:
        text = start.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and (text or not start):
        return {"payload": text}
    return {"payload_base64": b64encode(start).decode()}
