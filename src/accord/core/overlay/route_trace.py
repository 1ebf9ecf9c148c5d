"""The routes of a channel, hop by hop, with each link's latency and the remaining margin.

The margin of a route is what its maximum delay leaves if every hop takes as long as usual. Each hop
may spend an equal share of it, so that it absorbs a short disturbance by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from accord.core.model.channels import filter_selects
from accord.core.overlay.budgets import equal_shares
from accord.core.overlay.channel_directory import ChannelDefinition, specificity
from accord.core.overlay.status import FlowStatus, LinkStatus, NetStatus, RouteStatus, shortfall

LOCAL: Final = "local"
ROUTED: Final = "routed"


class TraceHop(Struct, frozen=True, kw_only=True):
    """From one node to the next; `so_far_us` is the latency from the source up to there.

    `slack_us` is how long an event may queue for the link without being late; None: unlimited.
    """

    source: str
    target: str
    is_up: bool
    latency_us: int
    processing_us: int
    so_far_us: int
    loss: float
    slack_us: int | None


class RouteTrace(Struct, frozen=True, kw_only=True):
    """`delay_us` is the current latency of all its links and nodes, `margin_us` the remainder."""

    state: str
    hops: tuple[TraceHop, ...]
    delay_us: int
    margin_us: int | None


class FlowTrace(Struct, frozen=True, kw_only=True):
    """`is_named`: the channel is one of those that the source announced for this flow."""

    source: str
    destination: str
    max_delay_us: int
    paths: int
    resiliency: float
    reached: float
    lacks: str
    channels: tuple[str, ...]
    is_named: bool
    routes: tuple[RouteTrace, ...]


def traces(status: NetStatus, channel: str) -> list[FlowTrace]:
    """Traces of all flows that carry a channel, or one that a filter selects."""
    if template_of(status, channel) != ROUTED:
        return []
    links = {(link.source, link.target): link for link in status.links}
    processing = {node.name: node.processing_us for node in status.nodes}
    found = []
    for flow, is_named in _carrying(status, channel):
        found.append(
            FlowTrace(
                source=flow.source,
                destination=flow.destination,
                max_delay_us=flow.max_delay_us,
                paths=flow.paths,
                resiliency=flow.resiliency,
                reached=flow.reached,
                lacks=shortfall(flow),
                channels=flow.channels,
                is_named=is_named,
                routes=tuple(
                    _trace(route, flow.max_delay_us, links, processing) for route in flow.routes
                ),
            )
        )
    return found


def template_of(status: NetStatus, channel: str) -> str:
    """Template of the most specific definition that selects the channel."""
    found = [
        ChannelDefinition(each.name, each.template)
        for each in status.channels
        if filter_selects(each.name, channel)
    ]
    return max(found, key=specificity, default=ChannelDefinition("#")).template


def _carrying(status: NetStatus, channel: str) -> Iterator[tuple[FlowStatus, bool]]:
    """Flows that name the channel, and those with partial lists that match its requirements."""
    required = {
        (each.max_delay_us, each.paths, each.resiliency)
        for each in status.channels
        if filter_selects(each.name, channel)
    } or {(0, 1, 0.0)}
    for flow in status.flows:
        if any(filter_selects(channel, each) for each in flow.channels):
            yield flow, True
        elif flow.has_more and (flow.max_delay_us, flow.paths, flow.resiliency) in required:
            yield flow, False


def _trace(
    route: RouteStatus,
    max_delay_us: int,
    links: dict[tuple[str, str], LinkStatus],
    processing: dict[str, int],
) -> RouteTrace:
    steps = list(zip(route.path, route.path[1:], strict=False))
    delays = [
        (links[step].latency_us if step in links else 0, processing.get(step[1], 0))
        for step in steps
    ]
    delay_us = sum(map(sum, delays))
    margin_us = max_delay_us - delay_us if max_delay_us else None
    shares: list[int | None] = [None] * len(steps)
    if margin_us is not None and steps:
        shares = [max(0, share_us) for share_us in equal_shares(margin_us, len(steps))]
    hops = []
    so_far_us = 0
    for step, (latency_us, processing_us), share_us in zip(steps, delays, shares, strict=True):
        so_far_us += latency_us + processing_us
        link = links.get(step)
        hops.append(
            TraceHop(
                source=step[0],
                target=step[1],
                is_up=link is not None and link.is_used,
                latency_us=latency_us,
                processing_us=processing_us,
                so_far_us=so_far_us,
                loss=0.0 if link is None else link.loss,
                slack_us=share_us,
            )
        )
    return RouteTrace(state=route.state, hops=tuple(hops), delay_us=delay_us, margin_us=margin_us)
