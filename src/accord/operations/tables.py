"""Tables of all channels and of all clients: searched, sorted by any column, and cut to a window.

The rows of a window are built, and the values of the column that it is sorted by are read for all.
The same tables are offered as operations and as live sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, json, structs

from accord.core.monitoring.delivery_lines import in_time_share
from accord.core.monitoring.samplers import CLIENT_RATES
from accord.core.monitoring.table_window import Cell, Window, select_window
from accord.core.monitoring.top import ChannelActivity, ClientActivity
from accord.operations.operation import Asker, RequestError
from accord.operations.ports import LedgerPort, NodePorts, need
from accord.operations.table_cache import MAX_LOOKED_UP, ChannelDefinitions

if TYPE_CHECKING:  # clients import this for the requests, without the broker
    from accord.core.broker.session import MqttSession
    from accord.core.monitoring.samplers import ClientSampler

MAX_NAMES_BYTES: Final = 65_536  # of all rows together, as JSON: names are external input


class TableWindow(Struct, frozen=True, kw_only=True):
    """Which rows of a table: those that match, in which order, from where on."""

    search: str = ""
    sort: str = ""
    is_descending: bool = False
    limit: int = 100
    offset: int = 0


class ChannelTableRow(ChannelActivity, frozen=True, kw_only=True):
    """Activity of a channel, the definition that applies to it, and who uses it at this node.

    `in_time` is the share of the last seconds; `publishers` are those connected here.
    """

    in_time: float | None = None
    template: str = ""
    max_delay_ms: float | None = None
    is_kept: bool = False
    subscribers: int = 0
    publishers: int = 0


class ClientTableRow(ClientActivity, frozen=True, kw_only=True):
    """Status of a client's session, and rates of what it was sent."""

    address: str = ""
    protocol: str = ""
    connected_ms: int | None = None
    subscriptions: int = 0
    received: int = 0
    sent: int = 0


CHANNEL_COLUMNS: Final = ChannelTableRow.__struct_fields__
CLIENT_COLUMNS: Final = ClientTableRow.__struct_fields__


def _check_column(sort: str, columns: tuple[str, ...]) -> None:
    if sort not in columns:
        raise RequestError(400, f"expected one of {', '.join(columns)}, got {sort[:40]!r}", "sort")


# Channels.


def channel_window(node: NodePorts, wanted: TableWindow, asker: Asker) -> Window[ChannelTableRow]:
    """Channels with and without activity, as far as the asker may see them."""
    return ChannelTableView(node).window(wanted, asker)


class ChannelTableView:
    """The table at one moment: make another after a return to the event loop."""

    def __init__(self, node: NodePorts) -> None:
        self._node = node
        self._now_ms = node.now_ms()
        self._sampler = _ledger(node).channel_sampler()
        self._definitions = definitions_of(node)
        self._counts: Callable[[str], int] | None = None

    def window(self, wanted: TableWindow, asker: Asker) -> Window[ChannelTableRow]:
        sort = wanted.sort or "channel"
        _check_column(sort, CHANNEL_COLUMNS)
        names = self._node.tables.visible(self._sampler, self._definitions, asker)
        found = select_window(
            names,
            text=str,
            key=self._key(sort),
            search=wanted.search,
            is_descending=wanted.is_descending,
            limit=wanted.limit,
            offset=wanted.offset,
        )
        rows = [self.row(name) for name in _within(found.rows, str)]
        return Window(total=found.total, matching=found.matching, rows=rows)

    def row(self, channel: str) -> ChannelTableRow:
        activity = self._sampler.activity(channel) or ChannelActivity(channel=channel)
        definition = self._definitions.look_up(channel)
        return ChannelTableRow(
            **structs.asdict(activity),
            in_time=_in_time(activity),
            template="" if definition is None else definition.template,
            max_delay_ms=self._max_delay_ms(channel),
            is_kept=self._is_kept(channel),
            subscribers=self._subscribers(channel),
            publishers=self._publishers(channel),
        )

    def _key(self, sort: str) -> Callable[[str], Cell]:
        own: Mapping[str, Callable[[str], Cell]] = {
            "channel": str,
            "template": self._template,
            "max_delay_ms": self._max_delay_ms,
            "is_kept": self._is_kept,
            "subscribers": self._known_subscribers,
            "publishers": self._publishers,
        }
        if sort in own:
            return own[sort]
        values = self._sampler.values(sort)
        least = None if sort in ("latency_ms", "latency_p95_ms", "in_time") else 0
        return lambda channel: values.get(channel, least)

    def _template(self, channel: str) -> str:
        definition = self._definitions.look_up(channel)
        return "" if definition is None else definition.template

    def _max_delay_ms(self, channel: str) -> float | None:
        definition = self._definitions.look_up(channel)
        if definition is None or not definition.max_delay_us:
            return None
        return definition.max_delay_us / 1_000

    def _is_kept(self, channel: str) -> bool:
        kept = self._definitions.kept
        known = kept.get(channel)
        if known is None:
            broker = self._node.broker
            known = broker is not None and broker.router.is_kept(channel)
            if len(kept) < MAX_LOOKED_UP:
                kept[channel] = known
        return known

    def _subscribers(self, channel: str) -> int:
        if self._counts is None:
            from accord.core.router.subscribers import SubscriberCounts  # noqa: PLC0415

            broker = self._node.broker
            self._counts = (
                (lambda _: 0) if broker is None else SubscriberCounts(broker.router).count
            )
        return self._counts(channel)

    def _known_subscribers(self, channel: str) -> int:
        """To sort by: some seconds old while subscriptions change."""
        broker = self._node.broker
        version = 0 if broker is None else broker.router.version
        counts = self._node.tables.subscribers(version, self._now_ms)
        count = counts.get(channel)
        if count is None:
            count = counts[channel] = self._subscribers(channel)
        return count

    def _publishers(self, channel: str) -> int:
        broker = self._node.broker
        sessions = () if broker is None else broker.sessions.values()
        return self._node.tables.publishers(sessions, self._now_ms)[channel]


def definitions_of(node: NodePorts) -> ChannelDefinitions:
    """The definitions of channels, at most two seconds old."""
    known = node.tables.known_definitions(node.now_ms())
    if known is not None:
        return known
    return node.tables.definitions(() if node.net is None else node.net.channel_statuses())


def _in_time(activity: ChannelActivity) -> float | None:
    return in_time_share(
        received=activity.delivered_hz,
        late=activity.late_hz,
        missed=activity.expired_hz + activity.shed_hz + activity.refused_hz,
    )


# Clients.


def client_window(node: NodePorts, wanted: TableWindow) -> Window[ClientTableRow]:
    """Sessions of clients that are connected or offline."""
    sort = wanted.sort or "client"
    _check_column(sort, CLIENT_COLUMNS)
    broker = need(node.broker, "sessions")
    broker.cut_throughs.flush()
    sampler = _ledger(node).client_sampler()
    found = select_window(
        list(broker.sessions.values()),
        text=_client_text,
        key=_client_key(sort, sampler, node.now_ms()),
        search=wanted.search,
        is_descending=wanted.is_descending,
        limit=wanted.limit,
        offset=wanted.offset,
    )
    shown = _within(found.rows, lambda session: session.name)
    return Window(total=found.total, matching=found.matching, rows=client_rows(node, shown))


def client_rows(node: NodePorts, sessions: list[MqttSession]) -> list[ClientTableRow]:
    from accord.core.broker.connection import client_reading, client_status  # noqa: PLC0415

    sampler = _ledger(node).client_sampler()
    now_ms = node.now_ms()
    readings = [client_reading(each, now_ms) for each in sessions]
    sampler.measure(readings, now_ms=now_ms)
    rows = []
    for session, reading in zip(sessions, readings, strict=True):
        status = client_status(session)
        sent_hz, sent_kbps, shed_hz, replaced_hz = sampler.rates(session.name)
        rows.append(
            ClientTableRow(
                client=session.name,
                user=session.owner,
                is_connected=status.is_connected,
                shed=status.shed,
                replaced=status.replaced,
                queued_messages=status.queued_messages,
                queued_bytes=status.queued_bytes,
                waiting_ms=reading.waiting_ms,
                link_kbps=reading.link_kbps,
                limit_kbps=reading.limit_kbps,
                rtt_ms=reading.rtt_ms,
                sent_hz=sent_hz,
                sent_kbps=sent_kbps,
                shed_hz=shed_hz,
                replaced_hz=replaced_hz,
                address=status.address,
                protocol=status.protocol,
                connected_ms=status.connected_ms,
                subscriptions=status.subscriptions,
                received=status.received,
                sent=status.sent,
            )
        )
    return rows


def _client_text(session: MqttSession) -> str:
    address: str = getattr(session.connection, "address", "")
    return f"{session.name}\n{session.owner}\n{address}"


def _client_key(sort: str, sampler: ClientSampler, now_ms: int) -> Callable[[Any], Cell]:
    from accord.core.broker.delivery_accounting import waiting_ms  # noqa: PLC0415

    if sort == "waiting_ms":
        return lambda session: waiting_ms(session.outbox, now_ms)
    if sort in _CLIENT_KEYS:
        return _CLIENT_KEYS[sort]
    values = sampler.values(sort)
    return lambda session: values.get(session.name, 0)


def _link(name: str, factor: int = 1) -> Callable[[Any], Cell]:
    def read(session: MqttSession) -> Cell:
        connection = session.connection
        value = None if connection is None else getattr(connection.link, name)
        return value / factor if value else None

    return read


def _connection(name: str, otherwise: Cell) -> Callable[[Any], Cell]:
    return lambda session: getattr(session.connection, name, otherwise)


_CLIENT_KEYS: Final[Mapping[str, Callable[[Any], Cell]]] = {
    "client": lambda session: session.name,
    "user": lambda session: session.owner,
    "is_connected": lambda session: session.connection is not None,
    "shed": lambda session: session.shed,
    "replaced": lambda session: session.replaced,
    "queued_messages": lambda session: sum(session.outbox.depth()),
    "queued_bytes": lambda session: session.outbox.bytes + session.outbox.tracked_bytes,
    "link_kbps": _link("rate_bps", 1_000),
    "limit_kbps": _link("limit_bps", 1_000),
    "rtt_ms": _link("rtt_ms"),
    "address": _connection("address", ""),
    "protocol": lambda session: session.version,
    "connected_ms": _connection("connected_ms", None),
    "subscriptions": lambda session: len(session.subscriptions),
    "received": lambda session: session.published,
    "sent": lambda session: session.sent,
}
assert {*_CLIENT_KEYS, *CLIENT_RATES, "waiting_ms"} == {*CLIENT_COLUMNS}


def _within(rows: list[Any], name: Callable[[Any], str]) -> list[Any]:
    """The first rows, as far as their names are not too long together."""
    room = MAX_NAMES_BYTES
    for place, row in enumerate(rows):
        room -= len(json.encode(name(row)))
        if room < 0 and place:
            return rows[:place]
    return rows


def _ledger(node: NodePorts) -> LedgerPort:
    return need(node.ledger, "ledger")
