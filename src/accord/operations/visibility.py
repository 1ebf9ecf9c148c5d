"""What an asker may see of channels, where an answer concerns several; `Asker.may_see` decides.

Sums over all channels are statistics, which take no more than the right to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from accord.core.monitoring.measurement_registry import MeasuredValue, parts_of
from accord.core.overlay.status import ArrivalStatus, FlowStatus, NetStatus
from accord.core.queries.report import SEVERAL, Report
from accord.operations.operation import Asker, RequestError

if TYPE_CHECKING:
    from accord.core.overlay.net_map import Row

_ALL: Final = "#"
_PLACES: Final = {"predicate": 0, "publisher": -1}
"""Of the channel among the parts of a subject, by kind."""


def check_channel(channel: str, asker: Asker) -> None:
    """Raises RequestError if the asker may not see what concerns these channels."""
    if not asker.may_see(channel):
        who = asker.user or "an anonymous client"
        problem = f"{who} may not subscribe to {channel[:200]!r}"
        raise RequestError(403, problem, "channel")


def check_client(client: str, asker: Asker) -> None:
    """Raises RequestError if the asker may not act for this client."""
    if client != asker.client and not asker.rights.policies:
        raise RequestError(
            403,
            "you may not act for another client",
            "client",
            remedy="it takes the right may.policies",
        )


def check_report(channel: str, asker: Asker) -> None:
    """Sums of the report on some channels would tell about each of them."""
    if channel != _ALL:
        check_channel(channel, asker)


def visible_report(report: Report, asker: Asker) -> Report:
    """The report without channels that the asker may not see, except in sums."""
    if asker.rights.policies:
        return report

    def is_seen(channel: str) -> bool:
        return channel == SEVERAL or asker.may_see(channel)

    return replace(
        report,
        channels=tuple(each for each in report.channels if is_seen(each.name)),
        losses=tuple(each for each in report.losses if is_seen(each.channel)),
        slow=tuple(each for each in report.slow if is_seen(each.channel)),
        predicates=tuple(each for each in report.predicates if is_seen(each.channel)),
        sources=tuple(each for each in report.sources if is_seen(each.channel)),
    )


def visible_values(values: Iterable[MeasuredValue], asker: Asker) -> tuple[MeasuredValue, ...]:
    """Measured values, except of channels that the asker may not see."""
    if asker.rights.policies:
        return tuple(values)
    channels = ((each, _channel_of(each)) for each in values)
    return tuple(each for each, channel in channels if channel is None or asker.may_see(channel))


def _channel_of(value: MeasuredValue) -> str | None:
    """The channel, or the filter, that a value is about; None if about none."""
    if value.kind == "channel":
        return value.subject
    place = _PLACES.get(value.kind)
    if place is None:
        return None
    try:
        return parts_of(value.subject)[place]
    except (msgspec.DecodeError, IndexError):
        return value.subject  # of one part


def visible_flow(flow: FlowStatus, asker: Asker) -> FlowStatus | None:
    """The flow without channels that the asker may not see; None if that leaves none."""
    seen = tuple(each for each in flow.channels if asker.may_see(each))
    if len(seen) == len(flow.channels):
        return flow
    return replace(flow, channels=seen, has_more=True) if seen else None


def visible_row(row: Row, asker: Asker) -> Row | None:
    """A row of the map as the asker may see it; None if that is not allowed."""
    match row:
        case FlowStatus():
            return visible_flow(row, asker)
        case ArrivalStatus():
            return row if _may_see_counts(row.channel, asker) else None
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
        arrivals=tuple(each for each in status.arrivals if _may_see_counts(each.channel, asker)),
        in_time=tuple(each for each in status.in_time if _may_see_counts(each.channel, asker)),
        transports=tuple(
            each for each in status.transports if all(map(asker.may_see, each.channels))
        ),
    )


def _may_see_counts(channel: str, asker: Asker) -> bool:
    """Counts of what has no name of its own are for all."""
    return not channel or asker.may_see(channel)
