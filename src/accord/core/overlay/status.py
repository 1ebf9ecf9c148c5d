"""Status of the overlay as one node knows it, its parents and children included, for operators."""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.model.locations import Location


class ChildStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A secondary node, as its parent sees it; `lost` counts events it did not get, by cause."""

    name: str
    is_linked: bool
    is_active: bool
    interests: int = 0
    waiting: int = 0  # events for it
    waiting_bytes: int = 0
    unsettled: int = 0  # its events that are not confirmed yet
    lost: dict[str, int] = {}
    problem: str = ""  # with its name


class ParentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A parent, as its child sees it; `lost` counts events it could not hold for the child."""

    name: str
    is_linked: bool
    is_active: bool
    is_standby: bool
    latency_us: int = 0
    waiting: int = 0  # events it holds for this node
    lost: int = 0


class TierStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A secondary node: its parents in order of preference, and its events queued for them."""

    parents: tuple[ParentStatus, ...]
    configured: int = 0  # number of configured parents
    switches: int = 0  # of the active parent
    waiting: int = 0  # events of its clients that are not confirmed yet
    waiting_bytes: int = 0
    delivered: int = 0
    again: int = 0  # duplicates that were dropped
    lost: dict[str, int] = {}  # events of its clients, by cause


SETTING_UP: Final = "setting up"  # not established yet
IN_USE: Final = "in use"
DRAINING: Final = "draining"  # in use until its replacements are established


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node; `started_ms` is by its own clock, 0 if it has published nothing."""

    name: str
    is_reachable: bool
    interests: int = 0
    processing_us: int = 0
    started_ms: int = 0
    location: Location | None = None


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a link, as measured by its source node.

    It is used if both ends report it up; `failure` is the probability that it is down.
    """

    source: str
    target: str
    is_up: bool
    is_used: bool
    latency_us: int
    loss: float = 0.0
    failure: float = 0.0


class RouteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One path; `delay_us` is the delay that its source expects."""

    path: tuple[str, ...]
    delay_us: int
    state: str


class FlowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All routes from one node to another with one requirement, and some of their channels.

    Required are a delay of at most `max_delay_us` (0: any), up to `paths` paths, and that one of
    them is up with probability `resiliency`; `reached` is the actual probability.
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
    has_more: bool = False  # there are more channels than these


class ArrivalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Events that arrived at a node on one channel from one source; empty names: the rest."""

    node: str
    source: str
    channel: str
    delivered: int
    late: int


class ChannelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Definition, made at `node`, of a channel or of a filter's channels, with its traffic."""

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
    """Event counts of the reporting node since it started; `lost` counts copies, by cause.

    `sent` and `received` count events on its links, including those forwarded for others.
    """

    published: int = 0
    retransmitted: int = 0
    delivered: int = 0
    late: int = 0
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    lost: dict[str, int] = {}


class TransportStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Transport rule of the reporting node, and how many copies of events used it.

    There is one copy per next hop. `kept` are those sent over TCP instead, as they must not be
    lost.
    """

    channels: tuple[str, ...]
    transport: str
    copies: int = 0
    kept: int = 0


class TimelinessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Events that arrived at the reporting node, by channel definition; empty: without one."""

    channel: str
    delivered: int
    late: int


class MissingLinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A configured or chosen neighbour without a link, and the reason."""

    address: str
    node: str
    problem: str
    remedy: str = ""


class RefusedLinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node whose link the reporting node refused, and the reason."""

    node: str
    address: str
    problem: str
    remedy: str = ""
    attempts: int = 1
    since_s: int = 0  # seconds ago


class NetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, links, channels and routes, as `node` knows them; `problem` is for operators."""

    node: str
    nodes: tuple[NodeStatus, ...]
    links: tuple[LinkStatus, ...]
    channels: tuple[ChannelStatus, ...]
    flows: tuple[FlowStatus, ...]
    arrivals: tuple[ArrivalStatus, ...]
    carried: TransitCounts
    in_time: tuple[TimelinessStatus, ...] = ()
    links_down: tuple[MissingLinkStatus, ...] = ()
    refused: tuple[RefusedLinkStatus, ...] = ()  # recent ones
    transports: tuple[TransportStatus, ...] = ()
    children: tuple[ChildStatus, ...] = ()  # secondary nodes whose parent it is
    tier: TierStatus | None = None  # if it is a secondary node itself
    interests_aggregated: int = (
        0  # filters of its clients that are announced as part of an aggregate
    )
    problem: str = ""


def shortfall(flow: FlowStatus) -> str:
    """The requirement that is not met, in words; empty if all are met."""
    current = [route for route in flow.routes if route.state == IN_USE]
    if not current:
        return "no route" if not flow.routes else "no route yet"
    slowest_us = max(route.delay_us for route in current)
    if 0 < flow.max_delay_us < slowest_us:
        return "too slow"
    if flow.resiliency:
        return "too likely to fail" if flow.reached < flow.resiliency else ""
    return f"{len(current)} of {flow.paths} paths" if len(current) < flow.paths else ""
