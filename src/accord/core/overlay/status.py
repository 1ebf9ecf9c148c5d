"""What a node knows of the whole, for those who look at it."""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.overlay.tier_status import ChildStatus, TierStatus

ASKED: Final = "asked for"  # not established yet
IN_USE: Final = "in use"
LEAVING: Final = "leaving"  # in use until others are ready


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`started_ms` is by its own clock, 0 where it has said nothing of itself."""

    name: str
    is_reachable: bool
    needs: int = 0
    processing_us: int = 0
    started_ms: int = 0


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a link, as the node it begins at measures it.

    It is used where both ends say that it is up; `failure` is how likely it is not.
    """

    source: str
    target: str
    is_up: bool
    is_used: bool
    latency_us: int
    loss: float = 0.0
    failure: float = 0.0


class RouteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One path; `delay_us` is what its source expects of it."""

    path: tuple[str, ...]
    delay_us: int
    state: str


class FlowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All routes from a node to another with one requirement, and some of the channels on them.

    What is required is at most `max_delay_us` (0: any), up to `paths` paths, and that one of them
    is up with the probability `resiliency`; what there is has `reached` that one.
    """

    source: str
    destination: str
    max_delay_us: int
    paths: int
    resiliency: float
    reached: float
    is_met: bool
    changes: int
    routes: tuple[RouteStatus, ...]
    channels: tuple[str, ...]
    has_more: bool = False  # channels than these


class ArrivalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What came to a node on one channel from one other; the rest has no names."""

    node: str
    source: str
    channel: str
    delivered: int
    late: int


class ChannelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is defined for a channel, or all that a filter selects, at `node`; and what it gets."""

    name: str
    template: str
    max_delay_us: int
    paths: int
    resiliency: float
    node: str
    options: dict[str, str] = {}
    flows: int = 0
    flows_met: int = 0
    delivered: int = 0
    late: int = 0
    missing_at: tuple[str, ...] = ()  # nodes where its template is not installed


class TransitCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What the node that is asked has carried since it started; copies of events, where lost.

    `sent` and `received` count what went over its links, also for others.
    """

    published: int = 0
    sent_again: int = 0
    delivered: int = 0
    late: int = 0
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    lost: dict[str, int] = {}


class TransportStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the node that is asked sends channels by, and how many copies of events went so.

    One for each neighbour that an event goes to next. `kept` are those that went by connections
    instead, as they must not be lost.
    """

    channels: tuple[str, ...]
    transport: str
    copies: int = 0
    kept: int = 0


class TimelinessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What came to the node that is asked, by definition of channels; empty: by none."""

    channel: str
    delivered: int
    late: int


class MissingLinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a neighbour should be, and why there is no link with it."""

    address: str
    node: str
    problem: str
    remedy: str = ""


class RefusedLinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants to be linked with the node that is asked, and why it is not."""

    node: str
    address: str
    problem: str
    remedy: str = ""
    attempts: int = 1
    since_s: int = 0  # seconds ago


class NetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes, links, channels and routes, as `node` knows them; `problem` is for people."""

    node: str
    nodes: tuple[NodeStatus, ...]
    links: tuple[LinkStatus, ...]
    channels: tuple[ChannelStatus, ...]
    flows: tuple[FlowStatus, ...]
    arrivals: tuple[ArrivalStatus, ...]
    carried: TransitCounts
    in_time: tuple[TimelinessStatus, ...] = ()
    unlinked: tuple[MissingLinkStatus, ...] = ()
    refused: tuple[RefusedLinkStatus, ...] = ()  # of late
    carry: tuple[TransportStatus, ...] = ()
    children: tuple[ChildStatus, ...] = ()  # secondary nodes whose parent it is
    tier: TierStatus | None = None  # where it is a secondary node itself
    needs_widened: int = 0  # filters of its clients that are told wider, for want of room
    problem: str = ""


def shortfall(flow: FlowStatus) -> str:
    """What lacks of what is required; empty if nothing does."""
    current = [route for route in flow.routes if route.state == IN_USE]
    if not current:
        return "no route" if not flow.routes else "no route yet"
    slowest_us = max(route.delay_us for route in current)
    if 0 < flow.max_delay_us < slowest_us:
        return "too slow"
    if flow.resiliency:
        return "too likely to fail" if flow.reached < flow.resiliency else ""
    return f"{len(current)} of {flow.paths} paths" if len(current) < flow.paths else ""
