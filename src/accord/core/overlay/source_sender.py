"""Sends local events into routes: queues them while there is no route, retransmits until acked.

Events with QoS 0 wait for a flow's first route and are then sent once. Others are held in a
retransmission buffer per destination until acknowledged. Copies for several destinations, or for
several routes to one, that share the first link are sent over it as one copy.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from accord.core.overlay.anti_entropy import earlier
from accord.core.overlay.neighbour_outbox import EXPIRED, NeighbourOutboxes
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.retransmission import (
    NO_ROOM,
    NOT_ACKNOWLEDGED,
    RetransmissionBuffer,
    UnackedEvent,
)
from accord.core.overlay.route_manager import Flow, Requirement, RouteManager
from accord.core.overlay.signalling import Acknowledge, DeliverySequence, TransitEvent

NO_ROUTE: Final = "no route"
_OVERHEAD: Final = 200  # bytes of an event besides payload and block
CHANNELS: Final = 8  # of a flow that are published in its status


class RouteWaitQueue:
    """Events that wait for a flow's first route."""

    def __init__(self) -> None:
        self.events: deque[tuple[TransitEvent, int]] = deque()  # with their arrival times
        self.bytes = 0


class PendingDelivery:
    """An unacknowledged event with the route requirement it was published with."""

    __slots__ = ("event", "published_us", "requirement")

    def __init__(self, event: UnackedEvent, requirement: Requirement, published_us: int) -> None:
        self.event = event
        self.requirement = requirement
        self.published_us = published_us


class SourceSender:
    """Sender of one node's events; `dropped` lists abandoned ones with destination and cause."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        options: OverlayOptions,
        routes: RouteManager,
        outboxes: NeighbourOutboxes,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.options = options
        self.routes = routes
        self.outboxes = outboxes
        self.buffers: dict[str, RetransmissionBuffer] = {}
        self.channels: dict[Flow, dict[str, bool]] = {}
        self.dropped: list[tuple[TransitEvent, str, str]] = []
        self.published = 0
        self._waiting: dict[Flow, RouteWaitQueue] = {}
        self._pending: dict[
            tuple[str, int], PendingDelivery
        ] = {}  # by destination and sequence number there

    def publish(
        self, event: TransitEvent, destinations: list[str], requirement: Requirement, now_us: int
    ) -> None:
        """Send `event` to those nodes; its source, sequence numbers and routes are set here."""
        self.published += 1
        event = msgspec.structs.replace(
            event, source=self.name, incarnation=self.incarnation, number=self.published
        )
        if event.qos:
            for destination in destinations:
                self._buffer_event(event, destination, requirement, now_us)
            return
        flows = [self._flow(each, requirement, event.channel, now_us) for each in destinations]
        for flow in flows:
            if not flow.in_use():
                self._queue(flow, event, now_us)
        self._send(event, flows, now_us)

    def on_flow_ready(self, flow: Flow, now_us: int) -> None:
        """A route was established: send the events that waited for one."""
        held = self._waiting.pop(flow, None)
        if held is not None:
            for event, came_us in held.events:
                aged = msgspec.structs.replace(event, age_us=event.age_us + now_us - came_us)
                self._send(aged, [flow], now_us)
        outgoing = self.buffers.get(flow.destination)
        if outgoing is not None:
            outgoing.shorten_timeouts(now_us)
            self._send_due(flow.destination, outgoing, now_us)  # before anything newer

    def on_acknowledge(self, signal: Acknowledge, now_us: int) -> None:
        outgoing = self.buffers.get(signal.destination)
        if outgoing is None or signal.incarnation != self.incarnation:
            return
        for number in outgoing.acknowledge(signal, now_us):
            del self._pending[signal.destination, number]
        self._release(signal.destination, outgoing, now_us)

    def unacknowledged(self, channel: str) -> dict[int, list[str]]:
        """Events of a channel, by their `event`, with the destinations that have not acked."""
        found: dict[int, list[str]] = {}
        for (destination, _), promise in self._pending.items():
            carried = promise.event.carried
            if carried.channel == channel:
                found.setdefault(carried.event, []).append(destination)
        return found

    def advance(self, now_us: int) -> None:
        if not (self.buffers or self._waiting):
            return
        for destination, outgoing in list(self.buffers.items()):
            self._send_due(destination, outgoing, now_us)
        for flow, held in list(self._waiting.items()):
            while held.events and held.events[0][1] + self.options.delivery_timeout_us <= now_us:
                self._drop_waiting(flow, held, NO_ROUTE)
            if not held.events:
                del self._waiting[flow]

    def next_due_us(self) -> int | None:
        due_us: int | None = None
        for outgoing in self.buffers.values():
            due_us = earlier(due_us, outgoing.next_due_us())
        for held in self._waiting.values():
            if held.events:
                due_us = earlier(due_us, held.events[0][1] + self.options.delivery_timeout_us)
        return due_us

    def check_invariants(self) -> None:
        for outgoing in self.buffers.values():
            outgoing.check_invariants()
        promised = [
            (destination, number)
            for destination, outgoing in self.buffers.items()
            for number in outgoing.unacked
        ]
        assert sorted(promised) == sorted(self._pending)
        for held in self._waiting.values():
            assert held.bytes == sum(_size(event) for event, _ in held.events)
            assert held.bytes <= self.options.held_bytes

    def _buffer_event(
        self, event: TransitEvent, destination: str, requirement: Requirement, now_us: int
    ) -> None:
        outgoing = self.buffers.get(destination)
        if outgoing is None:
            limit = self.options.unacknowledged_bytes
            outgoing = self.buffers[destination] = RetransmissionBuffer(
                destination, bytes_limit=limit
            )
        given_up_us = now_us + self.options.delivery_timeout_us
        kept = UnackedEvent(event, given_up_us)
        if not outgoing.has_room(kept.size):
            self.dropped.append((event, destination, NO_ROOM))
            return
        number = outgoing.add(kept)
        self._pending[destination, number] = PendingDelivery(kept, requirement, now_us)
        self._release(destination, outgoing, now_us)

    def _send_due(self, destination: str, outgoing: RetransmissionBuffer, now_us: int) -> None:
        for number, event in outgoing.due(now_us):
            self._transmit(destination, outgoing, number, event, now_us)
        self._release(destination, outgoing, now_us)

    def _release(self, destination: str, outgoing: RetransmissionBuffer, now_us: int) -> None:
        for number, event in outgoing.release():
            self._transmit(destination, outgoing, number, event, now_us)

    def _transmit(
        self,
        destination: str,
        outgoing: RetransmissionBuffer,
        number: int,
        event: UnackedEvent,
        now_us: int,
    ) -> None:
        promise = self._pending[destination, number]
        carried = event.carried
        age_us = carried.age_us + now_us - promise.published_us
        is_expired = 0 < carried.deadline_us <= age_us
        if is_expired or event.expires_us <= now_us:
            cause = EXPIRED if is_expired else NOT_ACKNOWLEDGED
            self.dropped.append((carried, destination, cause))
            outgoing.abandon(number)
            del self._pending[destination, number]
            return
        outgoing.retransmitted += event.tries > 0
        flow = self._flow(destination, promise.requirement, carried.channel, now_us)
        if not flow.routes:
            outgoing.postpone(event, now_us)
            return
        outgoing.on_sent(event, now_us)
        receipts = (DeliverySequence(destination, number, outgoing.window_base),)
        copy = msgspec.structs.replace(carried, age_us=age_us, sequences=receipts)
        self._send(copy, [flow], now_us)

    def _flow(self, destination: str, requirement: Requirement, channel: str, now_us: int) -> Flow:
        flow = self.routes.flow(destination, requirement, now_us)
        channels = self.channels.setdefault(flow, {})
        if len(channels) < CHANNELS:
            channels[channel] = True
        return flow

    def _send(self, event: TransitEvent, flows: list[Flow], now_us: int) -> None:
        """Queue one copy per link that a route in use starts with.

        A flow without one sends an early copy along the routes being set up: it arrives sooner if
        the set-up succeeds.
        """
        by_link: dict[str, list[int]] = {}
        early: dict[str, list[int]] = {}
        for flow in flows:
            routes = flow.in_use()
            links = by_link if routes else early
            for route in routes or flow.routes:
                links.setdefault(route.path[1], []).append(route.number)
        self.outboxes.forward(event, by_link, now_us)
        if early:
            event = msgspec.structs.replace(event, follows_setup=True)
            self.outboxes.forward(event, early, now_us)

    def _queue(self, flow: Flow, event: TransitEvent, now_us: int) -> None:
        held = self._waiting.setdefault(flow, RouteWaitQueue())
        held.events.append((event, now_us))
        held.bytes += _size(event)
        while held.bytes > self.options.held_bytes:
            self._drop_waiting(flow, held, NO_ROUTE)

    def _drop_waiting(self, flow: Flow, held: RouteWaitQueue, cause: str) -> None:
        event, _ = held.events.popleft()
        held.bytes -= _size(event)
        self.dropped.append((event, flow.destination, cause))

    def on_flow_ended(self, flow: Flow) -> None:
        self.channels.pop(flow, None)
        held = self._waiting.pop(flow, None)
        while held is not None and held.events:
            self._drop_waiting(flow, held, NO_ROUTE)


def _size(event: TransitEvent) -> int:
    return len(event.payload) + len(event.block) + _OVERHEAD
