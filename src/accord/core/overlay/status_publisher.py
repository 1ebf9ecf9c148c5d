"""Publishes a node's flows and arrival counts as state records, for operators.

These records serve monitoring only and must not crowd out the others. So their number and size are
bounded, they are published rarely, the less often the more bytes there are, and only after a
visible change. Replaced routes are published soon; changes that only a scan of all flows can find,
such as a slightly longer delay, can wait.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.overlay.anti_entropy import earlier
from accord.core.overlay.arrival_counts import MAX_NAME_LENGTH, ArrivalCounts, KeyPool
from accord.core.overlay.channel_directory import ChannelDirectory
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.route_manager import SETTING_UP, Flow, RouteManager
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.source_sender import CHANNELS, SourceSender
from accord.core.overlay.state_store import StateStore

FLOW: Final = "flow"
ARRIVED: Final = "arrived"
MAX_FLOWS: Final = 256
MAX_BYTES: Final = 128 << 10  # of all published flows
_FLOW_BYTES_PER_S: Final = 16_000
_ARRIVAL_BYTES_PER_S: Final = 2_000
_ALL_US: Final = 2_000_000  # between two full scans while no change is indicated
_MIN_US: Final = 500  # smaller differences of a delay are ignored

_encode: Final = msgspec.msgpack.Encoder().encode


class RouteRecord(msgspec.Struct, frozen=True, array_like=True):
    path: tuple[str, ...]
    delay_us: int
    state: int


class FlowRecord(msgspec.Struct, frozen=True, array_like=True):
    """State record of a flow; see `FlowStatus` for the fields."""

    destination: str
    max_delay_us: int
    paths: int
    resiliency: float
    reached: float
    is_met: bool
    changes: int
    routes: tuple[RouteRecord, ...]
    channels: tuple[str, ...]
    has_more: bool


class PublishedFlow:
    """A flow as it was last published."""

    __slots__ = ("bytes", "key", "value")

    def __init__(self, key: str, value: FlowRecord, size: int) -> None:
        self.key = key
        self.value = value
        self.bytes = size


class StatusPublisher:
    """Publisher of one node;

    `arrivals` counts received events, `unpublished` flows without room.
    """

    def __init__(
        self,
        store: StateStore,
        directory: ChannelDirectory,
        routes: RouteManager,
        sender: SourceSender,
        options: OverlayOptions,
    ) -> None:
        self.arrivals = ArrivalCounts()
        self.delivered = 0
        self.late = 0
        self.unpublished = 0
        self._store = store
        self._directory = directory
        self._routes = routes
        self._sender = sender
        self._publishes_flows = options.publish_flows_us > 0
        self._publishes_arrivals = options.publish_arrivals_us > 0
        self._options = options
        self._published: dict[Flow, PublishedFlow] = {}
        self._bytes = 0
        self._keys = KeyPool(MAX_FLOWS)
        self._seen = (0, 0)
        self._is_setting_up = False
        self._flows_us = 0  # earliest next publication of flows
        self._all_us = 0  # next full scan
        self._arrivals_us = 0

    def count_delivery(self, event: TransitEvent, now_us: int) -> None:
        """Count an event from another node for local clients."""
        found = self._directory.look_up(event.channel)
        is_late = found is not None and 0 < found.max_delay_us < event.age_us
        self.delivered += 1
        self.late += is_late
        self.arrivals.count(
            event.source,
            event.channel,
            "" if found is None else found.name,
            is_late=is_late,
            now_us=now_us,
        )

    def advance(self, now_us: int) -> None:
        if self._publishes_flows and now_us >= (
            self._flows_us if self._is_changed() else self._all_us
        ):
            self._publish_flows(now_us)
        if self._publishes_arrivals and now_us >= self._arrivals_us:
            self._publish_arrivals(now_us)

    def next_due_us(self) -> int | None:
        """Considers known changes only: full scans run when something else is due."""
        due_us = self._flows_us if self._publishes_flows and self._is_changed() else None
        if self._publishes_arrivals and self.arrivals.has_changes:
            return earlier(due_us, self._arrivals_us)
        return due_us

    def flows(self) -> list[FlowRecord]:
        """Current records of all flows."""
        return [self._record(flow) for flow in self._routes.flows.values()]

    def check_invariants(self) -> None:
        self.arrivals.check_invariants()
        self._keys.check_invariants([published.key for published in self._published.values()])
        assert (
            self._bytes
            == sum(published.bytes for published in self._published.values())
            <= MAX_BYTES
        )

    def _is_changed(self) -> bool:
        return self._is_setting_up or self._seen != self._state()

    def _state(self) -> tuple[int, int]:
        """Changes whenever a flow starts, ends or gets other routes."""
        return self._routes.computed, len(self._routes.flows)

    def _publish_flows(self, now_us: int) -> None:
        self._seen = self._state()
        flows = self._routes.flows.values()
        current = dict.fromkeys(flows, True)
        for flow in list(self._published):
            if flow not in current:
                self._drop(flow)
        self.unpublished = 0
        self._is_setting_up = False
        count = 0
        for flow in flows:
            self._is_setting_up |= any(route.state == SETTING_UP for route in flow.routes)
            count += self._publish_flow(flow)
        pause_us = count * 1_000_000 // _FLOW_BYTES_PER_S
        self._flows_us = now_us + max(self._options.publish_flows_us, pause_us)
        self._all_us = max(self._flows_us, now_us + _ALL_US)

    def _publish_flow(self, flow: Flow) -> int:
        """Publish a flow if it changed; returns the bytes written."""
        value = self._record(flow)
        published = self._published.get(flow)
        if published is not None and not _differ(published.value, value):
            return 0
        encoded = _encode(value)
        size = len(encoded)
        if published is None and not self._keys.has_room:
            self.unpublished += 1
            return 0
        if self._bytes + size - (0 if published is None else published.bytes) > MAX_BYTES:
            self.unpublished += 1
            if published is not None:  # no record is better than an outdated one
                self._drop(flow)
            return 0
        key = self._keys.take() if published is None else published.key
        self._bytes += size - (0 if published is None else published.bytes)
        self._published[flow] = PublishedFlow(key, value, size)
        if not self._store.put(FLOW, key, encoded):
            self.unpublished += 1
            self._drop(flow)
        return size

    def _drop(self, flow: Flow) -> None:
        published = self._published.pop(flow)
        self._bytes -= published.bytes
        self._keys.free(published.key)
        self._store.drop(FLOW, published.key)

    def _record(self, flow: Flow) -> FlowRecord:
        required = flow.requirement
        channels = self._sender.channels.get(flow, {})
        return FlowRecord(
            flow.destination,
            required.max_delay_us,
            required.paths,
            required.resiliency,
            flow.resiliency,
            flow.is_met,
            flow.changes,
            tuple(RouteRecord(each.path, each.delay_us, each.state) for each in flow.routes),
            tuple(each for each in channels if len(each) <= MAX_NAME_LENGTH),
            len(channels) >= CHANNELS,
        )

    def _publish_arrivals(self, now_us: int) -> None:
        count = 0
        for key, value in self.arrivals.changed_records(now_us):
            if value is None:
                self._store.drop(ARRIVED, key)
            else:
                encoded = _encode(value)
                count += len(encoded)
                self._store.put(ARRIVED, key, encoded)
        pause_us = count * 1_000_000 // _ARRIVAL_BYTES_PER_S
        self._arrivals_us = now_us + max(self._options.publish_arrivals_us, pause_us)


def _differ(published: FlowRecord, value: FlowRecord) -> bool:
    """Whether the change is visible to operators."""
    if len(published.routes) != len(value.routes):
        return True
    for before, now in zip(published.routes, value.routes, strict=True):
        if (before.path, before.state) != (now.path, now.state):
            return True
        if abs(now.delay_us - before.delay_us) > max(before.delay_us // 10, _MIN_US):
            return True
    bare = msgspec.structs.replace(value, routes=(), reached=0.0)
    return msgspec.structs.replace(published, routes=(), reached=0.0) != bare
