"""The live sets of one channel, of one client, and of the newest outcomes.

They follow the ledger: a table is seeded from what memory holds when somebody begins to watch it,
gets each new batch, and is dropped when nobody watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from accord.core.model.channels import problem_with_channel, problem_with_filter
from accord.core.monitoring.ledger import outcome_name
from accord.core.monitoring.outcomes import DeliveryOutcome, outcome_of
from accord.core.monitoring.statistics import ClientStatus
from accord.core.overlay.channel_directory import Channel, channel_of
from accord.journal.ledger_records import entry_of
from accord.operations.deliveries import (
    ChannelPublisher,
    ChannelSubscriber,
    ClientChannel,
    channel_publishers,
    channel_subscribers,
    client_channels,
)
from accord.operations.live_set import Watch, live_set
from accord.operations.operation import Asker, RequestError
from accord.operations.ports import LedgerPort, NodePorts, need
from accord.operations.tables import (
    ChannelTableRow,
    ChannelTableView,
    ClientTableRow,
    client_rows,
    definitions_of,
)

if TYPE_CHECKING:
    from accord.core.monitoring.delivery_lines import Point

Name = Annotated[str, Meta(min_length=1, max_length=65_535)]


class WatchChannel(Watch, frozen=True, kw_only=True, tag="channel"):
    channel: Annotated[Name, Meta(description="A channel, not a filter.")]


class WatchClient(Watch, frozen=True, kw_only=True, tag="client"):
    client: Name


class WatchOutcomes(Watch, frozen=True, kw_only=True, tag="outcomes"):
    channel: Annotated[str, Meta(max_length=65_535, description="A filter of channels.")] = "#"
    client: Annotated[Name | None, Meta(description="Publisher or destination.")] = None
    limit: Annotated[int, Meta(ge=1, le=500, description="How many at most.")] = 200


class ChannelViewState(Struct, frozen=True, kw_only=True):
    """One channel: `publishers` and `subscribers` are some of all, the busiest and the worst.

    `activity` and `definition` are left out where there is none. Subscribers count events since
    `since_ms`.
    """

    activity: ChannelTableRow | None
    definition: Channel | None
    since_ms: int
    publishers: dict[str, ChannelPublisher]
    publishers_total: int
    subscribers: dict[str, ChannelSubscriber]
    subscribers_total: int


class ClientViewState(Struct, frozen=True, kw_only=True):
    """One client: a line per channel, counted since `since_ms`, and how late events were.

    A latency is the time of an outcome, the channel, the latency in ms and the outcome.
    """

    status: ClientStatus | None
    activity: ClientTableRow | None
    since_ms: int
    channels: dict[str, ClientChannel]
    channels_total: int
    latencies: tuple[tuple[int, str, int, str], ...]


class OutcomesState(Struct, frozen=True, kw_only=True):
    """Outcomes by event and destination; those before `since_ms` were not looked at."""

    since_ms: int
    rows: dict[str, DeliveryOutcome]


def _followed(node: NodePorts) -> object:
    """Version of these sets: the node's last sample, and which tables are complete."""
    return None if node.ledger is None else (node.ledger.sampled_ms, node.ledger.seeded)


def _ledger(node: NodePorts) -> LedgerPort:
    return need(node.ledger, "ledger")


@live_set(changes_with=_followed)
def channel(node: NodePorts, ask: WatchChannel, asker: Asker) -> ChannelViewState:
    """One channel: its activity and definition, who publishes, and how subscribers are served."""
    name = ask.channel
    if problem := problem_with_channel(name):
        raise RequestError(400, problem, "channel")
    if not asker.may_see(name):
        raise RequestError(404, f"you may not see {name[:200]!r}", "channel")
    now_ms = node.now_ms()
    deliveries = _ledger(node).follow_channel(name, now_ms=now_ms)
    subscribers, subscribers_total = channel_subscribers(node, name, deliveries, now_ms=now_ms)
    publishers, publishers_total = channel_publishers(node, name, deliveries, now_ms=now_ms)
    definition = definitions_of(node).look_up(name)
    return ChannelViewState(
        activity=ChannelTableView(node).row(name),
        definition=None if definition is None else channel_of(definition),
        since_ms=deliveries.since_ms(now_ms),
        publishers=publishers,
        publishers_total=publishers_total,
        subscribers=subscribers,
        subscribers_total=subscribers_total,
    )


@live_set(changes_with=_followed)
def client(node: NodePorts, ask: WatchClient, asker: Asker) -> ClientViewState:
    """One client: its session, what it gets on each channel, and the latencies of events."""
    from accord.core.broker.connection import client_status  # noqa: PLC0415

    now_ms = node.now_ms()
    deliveries = _ledger(node).follow_client(ask.client, now_ms=now_ms)
    session = None if node.broker is None else node.broker.sessions.get(ask.client)
    channels = client_channels(node, ask.client, deliveries, asker, now_ms=now_ms)
    return ClientViewState(
        status=None if session is None else client_status(session),
        activity=None if session is None else client_rows(node, [session])[0],
        since_ms=deliveries.since_ms(now_ms),
        channels=channels,
        channels_total=max(len(channels), sum(map(asker.may_see, deliveries.lines))),
        latencies=tuple(_latency(each) for each in deliveries.points() if asker.may_see(each[1])),
    )


def _latency(point: Point) -> tuple[int, str, int, str]:
    at_ms, name, latency_ms, outcome = point
    return at_ms, name, latency_ms, outcome_name(outcome)


@live_set(changes_with=_followed)
def outcomes(node: NodePorts, ask: WatchOutcomes, asker: Asker) -> OutcomesState:
    """The newest outcomes of a filter of channels, to or from a client."""
    if problem := problem_with_filter(ask.channel):
        raise RequestError(400, problem, "channel")
    now_ms = node.now_ms()
    newest = _ledger(node).follow_newest(ask.channel, ask.client, now_ms=now_ms)
    rows: dict[str, DeliveryOutcome] = {}
    for first_number, first_ms, row in newest.newest():
        if len(rows) >= ask.limit:
            break
        if asker.may_see(row[3]):
            found = outcome_of(entry_of(row, first_number, first_ms))
            event = found.event or f"at-{found.done_ms}"  # what is not about an event has none
            rows.setdefault(f"{event} {found.destination}", found)
    return OutcomesState(since_ms=newest.since_ms(now_ms), rows=rows)
