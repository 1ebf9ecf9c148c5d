"""What an asker may see of the network: nodes and links, and the channels that he may see."""

from __future__ import annotations

from msgspec.structs import replace

from accord.core.overlay.net_map import Row
from accord.core.overlay.status import ArrivalStatus, FlowStatus, NetStatus
from accord.operations.operation import Asker


def visible_flow(flow: FlowStatus, asker: Asker) -> FlowStatus | None:
    """The flow without channels that the asker may not see; None if that leaves none."""
    seen = tuple(each for each in flow.channels if asker.may_see(each))
    if len(seen) == len(flow.channels):
        return flow
    return replace(flow, channels=seen, has_more=True) if seen else None


def visible_row(row: Row, asker: Asker) -> Row | None:
    """A row of the map as the asker may see it; None if he may not."""
    match row:
        case FlowStatus():
            return visible_flow(row, asker)
        case ArrivalStatus():
            return row if _may_see(row.channel, asker) else None
        case _:
            return row


def visible_net(status: NetStatus, asker: Asker) -> NetStatus:
    """All of the network but for the channels that the asker may not see."""
    if asker.rights.policies:
        return status
    flows = (visible_flow(each, asker) for each in status.flows)
    return replace(
        status,
        channels=tuple(each for each in status.channels if asker.may_see(each.name)),
        flows=tuple(each for each in flows if each is not None),
        arrivals=tuple(each for each in status.arrivals if _may_see(each.channel, asker)),
        in_time=tuple(each for each in status.in_time if _may_see(each.channel, asker)),
        transports=tuple(
            each for each in status.transports if all(map(asker.may_see, each.channels))
        ),
    )


def _may_see(channel: str, asker: Asker) -> bool:
    """Counts of what has no name of its own are for all."""
    return not channel or asker.may_see(channel)
