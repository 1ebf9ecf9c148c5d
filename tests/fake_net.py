"""A node among others, for tests of the API and of commands."""

from __future__ import annotations

from msgspec.structs import replace

from accord.core.channels.channels import SHIPPED
from accord.core.channels.template import problem_with_options
from accord.core.overlay.channel_directory import ChannelDefinition, ChannelDirectory
from accord.core.overlay.net_history import NetHistory
from accord.core.overlay.net_map import NetMap
from accord.core.overlay.state_store import StateStore
from accord.core.overlay.status import (
    IN_USE,
    ArrivalStatus,
    ChannelStatus,
    FlowStatus,
    LinkStatus,
    MissingLinkStatus,
    NetStatus,
    NodeStatus,
    RouteStatus,
    TimelinessStatus,
    TransitCounts,
)


def link(source: str, target: str, latency_us: int, *, is_up: bool = True) -> LinkStatus:
    return LinkStatus(
        source=source, target=target, is_up=is_up, is_used=is_up, latency_us=latency_us
    )


def route(*path: str, delay_us: int, state: str = IN_USE) -> RouteStatus:
    return RouteStatus(path=path, delay_us=delay_us, state=state)


def flow(
    source: str,
    destination: str,
    *routes: RouteStatus,
    max_delay_us: int = 200_000,
    channels: tuple[str, ...] = ("uav/imagery",),
) -> FlowStatus:
    return FlowStatus(
        source=source,
        destination=destination,
        max_delay_us=max_delay_us,
        paths=2,
        resiliency=0.0,
        reached=0.9996,
        is_met=True,
        changes=3,
        routes=routes,
        channels=channels,
    )


def five_cities() -> NetStatus:
    """As seattle sees it; washington's link to denver is down."""
    links = [
        *(link("seattle", "denver", 30_000), link("denver", "seattle", 31_000)),
        *(link("seattle", "losangeles", 40_000), link("losangeles", "seattle", 40_000)),
        *(link("denver", "washington", 0, is_up=False), link("washington", "denver", 45_000)),
        *(link("losangeles", "washington", 60_000), link("washington", "losangeles", 60_000)),
        *(link("denver", "orlando", 50_000), link("orlando", "denver", 50_000)),
    ]
    return NetStatus(
        node="seattle",
        nodes=(
            NodeStatus(name="denver", is_reachable=True, processing_us=120),
            NodeStatus(name="losangeles", is_reachable=True),
            NodeStatus(name="orlando", is_reachable=True, interests=1),
            NodeStatus(name="seattle", is_reachable=True),
            NodeStatus(name="tampa", is_reachable=False),
            NodeStatus(name="washington", is_reachable=True, interests=2),
        ),
        links=tuple(
            replace(each, is_used=False)
            if "washington" in (each.source, each.target) and "denver" in (each.source, each.target)
            else each
            for each in links
        ),
        channels=(),
        flows=(
            flow(
                "seattle",
                "washington",
                route("seattle", "losangeles", "washington", delay_us=100_000),
            ),
            flow("seattle", "orlando", route("seattle", "denver", "orlando", delay_us=80_000)),
        ),
        arrivals=(
            ArrivalStatus(
                node="washington", source="seattle", channel="uav/imagery", delivered=1_000, late=4
            ),
            ArrivalStatus(node="orlando", source="seattle", channel="chat", delivered=7, late=0),
        ),
        carried=TransitCounts(
            published=1_007,
            retransmitted=3,
            delivered=12,
            late=2,
            sent=2_000,
            sent_bytes=200_000,
            received=50,
            received_bytes=5_000,
            lost={"no route": 2, "deadline passed": 1},
        ),
        in_time=(TimelinessStatus(channel="uav/#", delivered=12, late=2),),
        links_down=(
            MissingLinkStatus(
                address="10.0.0.9:7400",
                node="",
                problem="connection refused",
                remedy="see whether a node listens there",
            ),
        ),
    )


class FakeNet:
    """With a real registry; what it shows of channels is what `status` says of flows."""

    templates = ["local", "routed"]  # noqa: RUF012
    net_map: NetMap | None = None
    net_history: NetHistory | None = None

    def __init__(self, status: NetStatus | None = None) -> None:
        self.configured: tuple[str, ...] = ()
        self.missing_at: tuple[str, ...] = ()
        self.known = five_cities() if status is None else status
        self.registry = ChannelDirectory(StateStore(self.known.node, 1_000))

    def status(self) -> NetStatus:
        return replace(self.known, channels=tuple(self.channel_statuses()))

    def channel_statuses(self) -> list[ChannelStatus]:
        return [self._status(each) for each in self.registry.all()]

    def is_configured(self, name: str) -> bool:
        return name in self.configured

    def problem_with_options(self, definition: ChannelDefinition) -> tuple[str, str] | None:
        return problem_with_options(definition.options, SHIPPED[definition.template].options)

    def problem_with_defining(self) -> str:
        return ""

    def create_channel(self, definition: ChannelDefinition, *, replace: bool) -> str | None:
        return self.registry.create(definition, replace=replace)

    def delete_channel(self, name: str) -> str | None:
        return self.registry.delete(name)

    def _status(self, definition: ChannelDefinition) -> ChannelStatus:
        is_used = definition.name == "uav/#"
        return ChannelStatus(
            name=definition.name,
            template=definition.template,
            max_delay_us=definition.max_delay_us,
            paths=definition.paths,
            resiliency=definition.resiliency,
            node=self.registry.origin_of(definition.name),
            options=definition.options,
            flows=2 * is_used,
            flows_met=1 * is_used,
            delivered=1_000 * is_used,
            late=4 * is_used,
            missing_at=self.missing_at,
        )
