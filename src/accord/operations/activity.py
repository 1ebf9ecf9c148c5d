"""Activity of all channels, searched and sorted; `top` has the busiest."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from accord.core.monitoring.top import ChannelActivity
from accord.operations.operation import Asker, Request, Right, operation
from accord.operations.pages import Descending, Offset, Rows, Search, select
from accord.operations.ports import NodePorts, need

ChannelField = Literal[
    "channel", "published_hz", "published_kbps", "delivered_hz", "delivered_kbps", "late_hz",
    "shaped_hz", "replaced_hz", "expired_hz", "shed_hz", "refused_hz", "latency_ms",
    "latency_p95_ms", "published", "delivered", "dropped",
]  # fmt: skip


class ChannelActivityPage(Struct, frozen=True, kw_only=True):
    """A page of channels: `total` counts all that the asker may see, `matching` those found."""

    total: int
    matching: int
    offset: int
    channels: tuple[ChannelActivity, ...]


class ListChannelActivity(Request[ChannelActivityPage], frozen=True, kw_only=True, tag="activity"):
    limit: Rows = 100
    offset: Offset = 0
    search: Search = ""
    sort: Annotated[ChannelField, Meta(description="A field of the answer.")] = "channel"
    descending: Descending = False


@operation("channels", "GET /activity/channels", Right.STATISTICS)
async def list_channel_activity(
    node: NodePorts, ask: ListChannelActivity, asker: Asker
) -> ChannelActivityPage:
    """Activity of the channels that had events since the start of the node, also of idle ones.

    Rates are measured of the busiest 200.
    """
    ledger = need(node.ledger, "ledger")
    found = await select(
        (each for each in ledger.channels() if asker.may_see(each.channel)),
        text=lambda each: each.channel,
        search=ask.search,
        key=lambda each: getattr(each, ask.sort),
        descending=ask.descending,
        offset=ask.offset,
        limit=ask.limit,
    )
    return ChannelActivityPage(
        total=found.total,
        matching=found.matching,
        offset=ask.offset,
        channels=tuple(found.rows),
    )
