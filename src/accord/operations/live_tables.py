"""The live sets of all channels and of all clients: windows of large tables."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from accord.operations.live_set import Watch, live_set, sampled
from accord.operations.operation import Asker
from accord.operations.pages import Descending, Offset, Search
from accord.operations.ports import NodePorts
from accord.operations.tables import (
    ChannelTableRow,
    ClientTableRow,
    TableWindow,
    channel_window,
    client_window,
)

Rows = Annotated[int, Meta(ge=1, le=500, description="How many at most.")]
Sort = Annotated[str, Meta(max_length=100, description="A field of the rows.")]


class WatchTable(Watch, frozen=True, kw_only=True):
    limit: Rows = 100
    offset: Offset = 0
    search: Search = ""
    sort: Sort = ""
    descending: Descending = False

    @property
    def window(self) -> TableWindow:
        return TableWindow(
            search=self.search,
            sort=self.sort,
            is_descending=self.descending,
            limit=self.limit,
            offset=self.offset,
        )


class WatchChannels(WatchTable, frozen=True, kw_only=True, tag="channels"):
    pass


class WatchClients(WatchTable, frozen=True, kw_only=True, tag="clients"):
    pass


class ChannelsState(Struct, frozen=True, kw_only=True):
    """`total` channels that the asker may see, `matching` of those, some in `order`."""

    total: int
    matching: int
    order: tuple[str, ...]
    rows: dict[str, ChannelTableRow]


class ClientsState(Struct, frozen=True, kw_only=True):
    """`total` sessions of clients, `matching` of those, some in `order`."""

    total: int
    matching: int
    order: tuple[str, ...]
    rows: dict[str, ClientTableRow]


@live_set(changes_with=sampled)
def channels(node: NodePorts, ask: WatchChannels, asker: Asker) -> ChannelsState:
    """Channels, active and idle: rates, latencies, definitions, publishers and subscribers."""
    found = channel_window(node, ask.window, asker)
    return ChannelsState(
        total=found.total,
        matching=found.matching,
        order=tuple(each.channel for each in found.rows),
        rows={each.channel: each for each in found.rows},
    )


@live_set(changes_with=sampled)
def clients(node: NodePorts, ask: WatchClients, _asker: Asker) -> ClientsState:
    """Sessions of clients, connected and offline: what they were sent, what waits, their links."""
    found = client_window(node, ask.window)
    return ClientsState(
        total=found.total,
        matching=found.matching,
        order=tuple(each.client for each in found.rows),
        rows={each.client: each for each in found.rows},
    )
