"""Builds `NetStatus`: a snapshot of the overlay as one node knows it.

The node's own state is current; that of others is what they published last. Flows and arrivals of
unreachable nodes are omitted, as their state is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from accord.core.model.errors import decode_or_none
from accord.core.overlay import route_manager
from accord.core.overlay.arrival_counts import ArrivalRecord
from accord.core.overlay.channel_directory import ChannelDefinition, ChannelDirectory
from accord.core.overlay.overlay import INTEREST, Overlay
from accord.core.overlay.status import (
    DRAINING,
    IN_USE,
    SETTING_UP,
    ArrivalStatus,
    ChannelStatus,
    FlowStatus,
    LinkStatus,
    NetStatus,
    NodeStatus,
    RouteStatus,
    TimelinessStatus,
    TransitCounts,
    shortfall,
)
from accord.core.overlay.status_publisher import ARRIVED, FLOW, FlowRecord

_STATES: Final = {
    route_manager.SETTING_UP: SETTING_UP,
    route_manager.ESTABLISHED: IN_USE,
    route_manager.DRAINING: DRAINING,
}

_flow: Final = msgspec.msgpack.Decoder(FlowRecord)
_arrived: Final = msgspec.msgpack.Decoder(ArrivalRecord)


def net_status(overlay: Overlay) -> NetStatus:
    flows = tuple(_flows(overlay))
    arrivals = tuple(_arrivals(overlay))
    return NetStatus(
        node=overlay.name,
        nodes=tuple(_nodes(overlay)),
        links=tuple(_links(overlay)),
        channels=tuple(_channels(overlay.directory, flows, arrivals)),
        flows=flows,
        arrivals=arrivals,
        carried=_transit_counts(overlay),
        in_time=tuple(
            TimelinessStatus(channel=name, delivered=tally.delivered, late=tally.late)
            for name, tally in overlay.status_publisher.arrivals.by_definition.items()
        ),
        transports=overlay.outboxes.transport_selector.status(),
        interests_aggregated=overlay.interests.count_aggregated(),
        problem=overlay.store.problem,
    )


def channel_statuses(overlay: Overlay) -> list[ChannelStatus]:
    """Status of all defined channels, sorted by name."""
    return list(_channels(overlay.directory, _flows(overlay), _arrivals(overlay)))


def _nodes(overlay: Overlay) -> Iterator[NodeStatus]:
    reachable = overlay.map.distances(overlay.name).costs
    for name in sorted({*overlay.map.nodes(), *overlay.store.origins()}):
        yield NodeStatus(
            name=name,
            is_reachable=name == overlay.name or name in reachable,
            interests=len(overlay.store.of(name, INTEREST)),
            processing_us=overlay.map.processing_us(name),
            started_ms=overlay.store.version_of(name)[0],
            location=overlay.locations.get(name),
        )


def _links(overlay: Overlay) -> Iterator[LinkStatus]:
    for source, target, link in overlay.map.links():
        yield LinkStatus(
            source=source,
            target=target,
            is_up=link.is_up,
            is_used=link.is_usable,
            latency_us=link.latency_us,
            loss=link.loss,
            failure=link.failure,
        )


def _flows(overlay: Overlay) -> Iterator[FlowStatus]:
    """Flows of all nodes, this one first."""
    for value in overlay.status_publisher.flows():
        yield flow_status(overlay.name, value)
    for origin, encoded in _remote_records(overlay, FLOW):
        found = decode_or_none(_flow, encoded)
        if found is not None:  # a newer node may use another format
            yield flow_status(origin, found)


def flow_status(source: str, value: FlowRecord) -> FlowStatus:
    """A flow as its source published it."""
    return FlowStatus(
        source=source,
        destination=value.destination,
        max_delay_us=value.max_delay_us,
        paths=value.paths,
        resiliency=value.resiliency,
        reached=value.reached,
        is_met=value.is_met,
        changes=value.changes,
        routes=tuple(
            RouteStatus(
                path=each.path, delay_us=each.delay_us, state=_STATES.get(each.state, SETTING_UP)
            )
            for each in value.routes
        ),
        channels=value.channels,
        has_more=value.has_more,
    )


def _arrivals(overlay: Overlay) -> Iterator[ArrivalStatus]:
    """Arrivals at all nodes, this one first."""
    for (source, channel), tally in overlay.status_publisher.arrivals.by_channel.items():
        yield ArrivalStatus(
            node=overlay.name,
            source=source,
            channel=channel,
            delivered=tally.delivered,
            late=tally.late,
        )
    for origin, encoded in _remote_records(overlay, ARRIVED):
        value = decode_or_none(_arrived, encoded)
        if value is None:
            continue
        yield ArrivalStatus(
            node=origin,
            source=value.source,
            channel=value.channel,
            delivered=value.delivered,
            late=value.late,
        )


def _channels(
    registry: ChannelDirectory, flows: Iterable[FlowStatus], arrivals: Iterable[ArrivalStatus]
) -> Iterator[ChannelStatus]:
    """Each definition with the flows and arrivals of the channels it applies to."""
    carrying: dict[str, list[FlowStatus]] = {}
    for flow in flows:
        for name in dict.fromkeys(_definition_name(registry, each) for each in flow.channels):
            carrying.setdefault(name, []).append(flow)
    came: dict[str, list[ArrivalStatus]] = {}
    for arrival in arrivals:
        came.setdefault(_definition_name(registry, arrival.channel), []).append(arrival)
    for definition in registry.all():
        name = definition.name
        used = [flow for flow in carrying.get(name, []) if _is_for(flow, definition)]
        counts = came.get(name, [])
        yield ChannelStatus(
            name=name,
            template=definition.template,
            max_delay_us=definition.max_delay_us,
            paths=definition.paths,
            resiliency=definition.resiliency,
            node=registry.origin_of(name),
            options=definition.options,
            flows=len(used),
            flows_met=sum(not shortfall(flow) for flow in used),
            delivered=sum(each.delivered for each in counts),
            late=sum(each.late for each in counts),
        )


def _definition_name(registry: ChannelDirectory, channel: str) -> str:
    found = registry.look_up(channel)
    return "" if found is None else found.name


def _is_for(flow: FlowStatus, definition: ChannelDefinition) -> bool:
    """False for a flow left over from before the definition changed."""
    required = (definition.max_delay_us, definition.paths, definition.resiliency)
    return (flow.max_delay_us, flow.paths, flow.resiliency) == required


def _transit_counts(overlay: Overlay) -> TransitCounts:
    return TransitCounts(
        published=overlay.sender.published,
        retransmitted=sum(each.retransmitted for each in overlay.sender.buffers.values()),
        delivered=overlay.status_publisher.delivered,
        late=overlay.status_publisher.late,
        lost=dict(overlay.dropped),
    )


def _remote_records(overlay: Overlay, kind: str) -> Iterator[tuple[str, bytes]]:
    """Records of reachable other nodes, in a stable order."""
    reachable = overlay.map.distances(overlay.name).costs
    records = [each for each in overlay.store.all(kind) if each[0] in reachable]
    for origin, _, encoded in sorted(records, key=lambda each: (each[0], _number(each[1]))):
        if origin != overlay.name:
            yield origin, encoded


def _number(key: str) -> int:
    return int(key) if key.isascii() and key.isdigit() and len(key) < 10 else 0
