"""One node's part in the overlay: composes liveness, state store, routes and forwarding.

The driver reports links and received messages, calls `advance` as time passes, sends `sends`
(control) at once, pulls events with `take` as links allow, and delivers `deliveries` to local
clients. Interests of other nodes are reported through `on_interest`, so that the local router finds
the nodes that want an event.

A link is used from its first pong until three pings are missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from accord.core.model.errors import decode_or_none
from accord.core.model.locations import Location, is_location
from accord.core.overlay.budgets import Budgets
from accord.core.overlay.channel_directory import ChannelDirectory
from accord.core.overlay.duplicate_filter import DuplicateFilter
from accord.core.overlay.forwarding_table import ForwardingTable
from accord.core.overlay.interests import BUDGET, Interest, InterestTable, PredicateText
from accord.core.overlay.link_state import LinkStateMap
from accord.core.overlay.liveness import (
    HelloScheduler,
    LivenessOptions,
    NeighbourLiveness,
    Ping,
    Pong,
    pong_for,
)
from accord.core.overlay.neighbour_outbox import (
    EXPIRED,
    LINK_DOWN,
    MulticastEvent,
    MulticastOutbox,
    NeighbourOutboxes,
    Passed,
    copy_for,
)
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.retransmission import ReceiveWindow
from accord.core.overlay.route_manager import Flow, Requirement, RouteManager
from accord.core.overlay.signalling import (
    Acknowledge,
    DeliverySequence,
    Establish,
    Established,
    NotEstablished,
    TearDown,
    TemplateMessage,
    TransitEvent,
)
from accord.core.overlay.source_sender import SourceSender
from accord.core.overlay.state_store import (
    DeltaRequest,
    StateDelta,
    StateDigest,
    StateStore,
    VersionVector,
)
from accord.core.overlay.status_publisher import StatusPublisher
from accord.core.overlay.validation import DAMAGED, problem_with_event, problem_with_interest
from accord.core.predicates.predicate import Predicate

Control = (
    Ping | Pong | StateDelta | StateDigest | VersionVector | DeltaRequest
    | Establish | Established | NotEstablished | TearDown | Acknowledge | TemplateMessage
)  # fmt: skip
Message = Control | TransitEvent


LINK: Final = "link"
NODE: Final = "node"
INTEREST: Final = "need"
_LINKS_BYTES: Final = 64 << 10  # reserved in the state store for link-state records
_NODE_BYTES: Final = 1 << 10
UNKNOWN_ROUTE: Final = "unknown route"
_PROCESSING_SHARE: Final = 1 / 64
_PROCESSING_US: Final = 1_000  # smaller changes are not announced
_PROCESSING_INTERVAL_US: Final = 2_000_000  # minimum interval between announcements
_SMALL_CHANGE: Final = 0.1
_LARGE_CHANGE: Final = 0.3
_MIN_FAILURE: Final = 0.01  # smaller changes of a probability of failure are not announced
_MUCH: Final = 2
_ANNOUNCE_BURST: Final = 8  # burst of announcements of one link before they are rate-limited
_MAX_DROPS: Final = 2_048  # recorded until drained: a stream's whole window may be among them
_SOURCES: Final = 10_000  # receive windows kept at a time


class NodeValue(msgspec.Struct, frozen=True, array_like=True):
    """State record of a node: the time it takes to hand an event to its clients; where it is."""

    processing_us: int
    location: Location | None = None


class LinkValue(msgspec.Struct, frozen=True, array_like=True):
    """Link-state record of a link to a neighbour; the latency includes queueing for the link."""

    is_up: bool
    latency_us: int
    deviation_us: int = 0
    loss: float = 0.0
    failure: float = 0.0


_node: Final = msgspec.msgpack.Decoder(NodeValue)
_link: Final = msgspec.msgpack.Decoder(LinkValue)
_interest: Final = msgspec.msgpack.Decoder(Interest)


class NeighbourState:
    """A node that is, or was, connected by a transport."""

    def __init__(self, liveness: NeighbourLiveness) -> None:
        self.liveness = liveness
        self.is_connected = False
        self.is_used = False
        self.announced: LinkValue | None = None
        self.announced_us = 0
        self.rate_limit_us = (
            0  # rate limiter: each announcement moves it on by `advertise_slowly_us`
        )
        self.sampled_us = 0  # when the link was last examined for changes to announce


class Overlay:
    """State machine of one node in the overlay; performs no I/O."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        options: OverlayOptions,
        random: Callable[[], float],
        on_interest: Callable[[str, str, Interest | None], None],
    ) -> None:
        self.name = name
        self.options = options
        self.store = StateStore(name, incarnation, random=random)
        for kind, size in ((INTEREST, BUDGET), (LINK, _LINKS_BYTES), (NODE, _NODE_BYTES)):
            self.store.reserve(kind, size)
        self.directory = ChannelDirectory(self.store)
        self.map = LinkStateMap(options.node_failures)
        self.budgets = Budgets()
        self.forwarding = ForwardingTable(
            name, self.budgets, refresh_timeout_us=options.refresh_us * 7 // 2
        )
        self.outboxes = NeighbourOutboxes(name, self.budgets, bytes_limit=options.transit_bytes)
        self.routes = RouteManager(
            name,
            incarnation,
            self.map,
            self.budgets,
            refresh_us=options.refresh_us,
            idle_us=options.idle_us,
            on_ready=self._on_flow_ready,
            on_end=self._on_flow_ended,
        )
        self.sender = SourceSender(name, incarnation, options, self.routes, self.outboxes)
        self.status_publisher = StatusPublisher(
            self.store, self.directory, self.routes, self.sender, options
        )
        self.neighbours: dict[str, NeighbourState] = {}
        self.deliveries: list[TransitEvent] = []
        self.dropped: dict[str, int] = {}  # copies of events, by cause
        self.drops: list[tuple[TransitEvent, str, int]] = []  # since last drained, for the ledger
        self.on_template_message: Callable[[str, TemplateMessage, int], None] | None = (
            None  # receives template messages
        )
        self.on_template_event: Callable[[str, TransitEvent, int], None] | None = (
            None  # events of templates
        )
        # (channel, queued events, queued bytes, now): whether the channel has room for more.
        self.on_can_accept: Callable[[str, int, int, int], bool] | None = None
        self.interests = InterestTable()
        self.processing_us = 0.0  # smoothed
        self._announced_processing_us = 0.0
        self._processing_announced_us = 0
        self._liveness_options = LivenessOptions(ping_us=options.ping_us)
        self._hello = HelloScheduler(
            ping_us=options.ping_us,
            misses=self._liveness_options.misses,
            delivery_timeout_us=options.delivery_timeout_us,
            bytes_per_s=options.ping_bytes_per_s,
        )
        self._sent_before: dict[str, int] = {}  # events, by neighbour, at the last plan of pings
        self._random = random
        self.locations: dict[str, Location] = {}  # by node
        self._measured_links: Mapping[str, float] = {}  # probability of failure, by neighbour
        self._on_interest = on_interest
        self._duplicates = DuplicateFilter()
        self._receive_windows: dict[tuple[str, int], ReceiveWindow] = {}
        self._ack_routes: dict[tuple[str, int], int] = {}  # route of the latest event, for acks
        self._sends: list[tuple[str, Control]] = []
        self._waiting_bytes = 0  # in `deliveries`
        self._multicast: MulticastOutbox | None = None  # only if there is a multicast group
        self.now_us = 0
        self._is_map_changed = False
        self._pings_due_us = -1  # earliest deadline of all neighbours; below 0: to be computed
        self._absent: dict[str, int] = {}
        self._sweep_us = 0
        parts = (
            self.store,
            self.routes,
            self.forwarding,
            self.sender,
            self.status_publisher,
            self.interests,
        )
        timed = (*parts, self._hello) if options.ping_bytes_per_s else parts
        self._next_dues_us = [each.next_due_us for each in timed]
        self.store.watch(LINK, self._on_link_record)
        self.store.watch(NODE, self._on_node_record)
        self.store.watch(INTEREST, self._on_interest_record)
        if options.location is not None:
            self._announce_node()

    # ---------------------------------------------------------------------- called by the driver

    def link_up(self, neighbour: str, now_us: int) -> None:
        """A transport to `neighbour` is connected."""
        self.now_us = now_us
        known = self.neighbours.get(neighbour)
        if known is None:
            pulse = NeighbourLiveness(neighbour, self._liveness_options, self._random, now_us)
            known = self.neighbours[neighbour] = NeighbourState(pulse)
        elif known.is_connected:
            self.link_down(neighbour, now_us)
        known.is_connected = True
        self.outboxes.open(neighbour)
        known.liveness.link_up(now_us)
        self._pings_due_us = -1
        self.store.link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.now_us = now_us
        known = self.neighbours.get(neighbour)
        if known is None or not known.is_connected:
            return
        known.is_connected = False
        known.liveness.link_down(now_us)
        self._refresh_link(neighbour, known)
        self._count_dropped(self.outboxes.close(neighbour))
        self.store.link_down(neighbour)

    def receive(self, neighbour: str, message: Message, now_us: int) -> None:
        """Handle a message from `neighbour`."""
        self.now_us = now_us
        known = self.neighbours.get(neighbour)
        if known is None or not known.is_connected:
            return
        known.liveness.on_message(now_us)
        match message:
            case TransitEvent():
                self._on_event(neighbour, known, message)
            case Ping():
                self._sends.append((neighbour, pong_for(message)))
            case Pong():
                known.liveness.on_pong(message, now_us)
                self._refresh_link(neighbour, known)
            case TemplateMessage():
                if self.on_template_message is not None:
                    self.on_template_message(neighbour, message, now_us)
            case StateDelta() | StateDigest() | VersionVector() | DeltaRequest():
                self.store.receive(neighbour, message, now_us)
            case _:
                self._on_signal(neighbour, message)

    def advance(self, now_us: int) -> None:
        """Perform all work that is due."""
        self.now_us = now_us
        if self._hello.is_due(now_us):
            self._pace_pings()
        self._run_liveness(now_us)
        self._announce_interests()
        self.store.advance(now_us)
        if self._is_map_changed:
            self._is_map_changed = False
            self.routes.on_map_changed(now_us)
        self.routes.advance(now_us)
        self.forwarding.advance(now_us)
        self.sender.advance(now_us)
        self._acknowledge(now_us)
        for transit in self.outboxes.all.values():
            if transit.dropped:
                self._count_dropped(transit.dropped)
        if self._multicast is not None:
            self._count_dropped(self._multicast.dropped)
        for event, _, cause in self.sender.dropped:
            self.drop(event, cause)
        self.sender.dropped.clear()
        self.status_publisher.advance(now_us)
        if now_us >= self._sweep_us:
            self._sweep()

    def next_due_us(self) -> int:
        """Latest time at which to call `advance` next."""
        if self._is_map_changed or self.interests.has_changed():
            return self.now_us
        if self._pings_due_us < 0:
            self._pings_due_us = self._next_ping_us()
        due_us = self._pings_due_us if self._pings_due_us < self._sweep_us else self._sweep_us
        for part_next_due_us in self._next_dues_us:
            part_us = part_next_due_us()
            if part_us is not None and part_us < due_us:
                due_us = part_us
        for incoming in self._receive_windows.values():
            if 0 < incoming.ack_due_us < due_us:
                due_us = incoming.ack_due_us
        return due_us

    def _run_liveness(self, now_us: int) -> None:
        advertise_us = self.options.advertise_us
        for neighbour, known in self.neighbours.items():
            pulse = known.liveness
            pulse.advance(now_us)
            if pulse.sends:
                self._sends += [(neighbour, ping) for ping in pulse.sends]
                pulse.sends.clear()
            if pulse.is_up != known.is_used or now_us - known.sampled_us >= advertise_us:
                self._refresh_link(neighbour, known)
        self._pings_due_us = self._next_ping_us()

    def _announce_interests(self) -> None:
        # Withdrawals first: they may free the room that new interests need. All leave together.
        changes = self.interests.changes(self.now_us)
        if not changes:
            return
        for key, need in changes:
            if need is None:
                self.store.drop(INTEREST, key)
        for key, need in changes:
            if need is not None:
                is_stored = self.store.put(INTEREST, key, msgspec.msgpack.encode(need))
                assert is_stored  # the store reserves room for interests

    def _next_ping_us(self) -> int:
        due_us: int | None = None
        for known in self.neighbours.values():
            pulse_us = known.liveness.next_due_us()
            if pulse_us is not None and (due_us is None or pulse_us < due_us):
                due_us = pulse_us
        return self._sweep_us if due_us is None else due_us

    def take_droppable(
        self, neighbour: str, bytes_wanted: int, message_bytes: int, now_us: int
    ) -> list[TransitEvent]:
        """Events for `neighbour` that may be lost and are no larger than `message_bytes`."""
        transit = self.outboxes.all.get(neighbour)
        return (
            [] if transit is None else transit.take_droppable(bytes_wanted, message_bytes, now_us)
        )

    @property
    def sends(self) -> list[tuple[str, Control]]:
        """Control messages to send at once, before any events; the caller drains the list."""
        sends = self._sends
        if self.store.sends:
            sends += self.store.sends
            self.store.sends.clear()
        if self.forwarding.sends:
            sends += self.forwarding.sends
            self.forwarding.sends.clear()
        if self.routes.sends:
            sends += self.routes.sends
            self.routes.sends.clear()
        return sends

    def set_measured_failures(self, links: Mapping[str, float], nodes: Mapping[str, float]) -> None:
        """Set all measured probabilities of failure: of links by neighbour, and of other nodes.

        Configured ones take precedence. Those of links are announced; those of nodes only serve to
        choose routes from here, as a node can't tell how often it is down.
        """
        self._measured_links = dict(links)
        version = self.map.version
        self.map.set_node_failures({**nodes, **self.options.node_failures})
        self._is_map_changed = self._is_map_changed or self.map.version != version

    def set_group_reach(self, neighbours: list[str], message_bytes: int) -> None:
        """Set the neighbours that receive the multicast group, and the largest datagram."""
        if self._multicast is None:
            self._multicast = MulticastOutbox(self.options.transit_bytes)
            self.outboxes.put_multicast = self._multicast.put
        self._multicast.set_reached(neighbours, message_bytes)

    def take_multicast(self, bytes_wanted: int, now_us: int) -> list[MulticastEvent]:
        """Events to send to the group next; call before `take_droppable` and `take`."""
        shared = self._multicast
        return [] if shared is None else shared.take(bytes_wanted, now_us, self._queue_single)

    def receive_multicast(self, neighbour: str, shared: MulticastEvent, now_us: int) -> None:
        """Handle an event that `neighbour` sent to the multicast group."""
        event = copy_for(shared, self.name)
        if event is not None:
            self.receive(neighbour, event, now_us)

    def _queue_single(
        self, neighbour: str, event: TransitEvent, due_us: int, arrived_us: int
    ) -> None:
        transit = self.outboxes.all.get(neighbour)
        if transit is None:
            self.drop(event, LINK_DOWN)
        else:
            transit.put(event, due_us, arrived_us, is_droppable=True)

    def has_work(self) -> bool:
        """Whether there is work that should not wait for `next_due_us`."""
        return bool(self.outboxes.ready or self.sends or self.interests.has_changed())

    @property
    def ready(self) -> list[str]:
        """Neighbours whose outbox became non-empty since the list was last cleared."""
        return self.outboxes.ready

    def take(self, neighbour: str, bytes_wanted: int, now_us: int) -> list[TransitEvent]:
        """Events to send to `neighbour` next."""
        transit = self.outboxes.all.get(neighbour)
        return [] if transit is None else transit.take(bytes_wanted, now_us)

    def check_invariants(self) -> None:
        self.forwarding.check_invariants()
        self.routes.check_invariants()
        self.sender.check_invariants()
        self.status_publisher.check_invariants()
        self.interests.check_invariants()
        self.store.check_invariants()
        self.directory.check_invariants()
        for incoming in self._receive_windows.values():
            incoming.check_invariants()
        for transit in self.outboxes.all.values():
            transit.check_invariants()
        self.budgets.check_invariants()
        self.outboxes.transport_selector.check_invariants()
        if self._multicast is not None:
            self._multicast.check_invariants()
        for neighbour, known in self.neighbours.items():
            known.liveness.check_invariants()
            assert known.is_connected == (neighbour in self.outboxes.all)
            assert known.is_used == known.liveness.is_up

    # ------------------------------------------------------------------------ called by the node

    def add_interest(
        self, pattern: str, condition: PredicateText, predicate: Predicate | None
    ) -> None:
        """A local client subscribed."""
        self.interests.add(pattern, condition, predicate)

    def remove_interest(self, pattern: str, condition: PredicateText) -> None:
        self.interests.remove(pattern, condition)

    def publish(
        self, event: TransitEvent, destinations: list[str], requirement: Requirement
    ) -> None:
        """Send an event of a local client over routes to the interested nodes."""
        self.sender.publish(event, destinations, requirement, self.now_us)

    def send_message(self, neighbour: str, message: TemplateMessage) -> None:
        """Send a template message to a connected neighbour."""
        if neighbour in self.outboxes.all:
            self._sends.append((neighbour, message))

    def forward(self, neighbour: str, event: TransitEvent) -> None:
        """Send an event one hop, as its template decided."""
        self.outboxes.forward(event, {neighbour: []}, self.now_us)

    def is_waiting(self, neighbour: str, passed: Passed) -> bool:
        """Whether an event that was passed on is still queued for the link."""
        transit = self.outboxes.all.get(neighbour)
        return transit is not None and transit.is_waiting(passed)

    def used_neighbours(self) -> list[str]:
        return [name for name, known in self.neighbours.items() if known.is_used]

    def deliver(self, event: TransitEvent) -> None:
        """Queue an event for local clients."""
        if not self.deliveries:
            self._waiting_bytes = 0
        self._waiting_bytes += len(event.payload) + len(event.block)
        self.deliveries.append(event)
        self.status_publisher.count_delivery(event, self.now_us)

    def can_accept(self, channel: str) -> bool:
        """Whether this node accepts more events of a channel that must not lose any."""
        if self.on_can_accept is None:
            return True
        waiting = len(self.deliveries)
        waiting_bytes = self._waiting_bytes if waiting else 0
        return self.on_can_accept(channel, waiting, waiting_bytes, self.now_us)

    def record_processing(self, took_us: int) -> None:
        """Record the time it took to hand an event to local clients."""
        self.processing_us += (took_us - self.processing_us) * _PROCESSING_SHARE
        has_changed = abs(self.processing_us - self._announced_processing_us) > _PROCESSING_US
        if has_changed and self.now_us - self._processing_announced_us >= _PROCESSING_INTERVAL_US:
            self._announced_processing_us = self.processing_us
            self._processing_announced_us = self.now_us
            self._announce_node()

    def _announce_node(self) -> None:
        value = NodeValue(int(self.processing_us), self.options.location)
        self.store.put(NODE, "", msgspec.msgpack.encode(value))

    def drop(self, event: TransitEvent, cause: str, count: int = 1) -> None:
        """Count `count` copies of an event that end here, with their cause."""
        self.dropped[cause] = self.dropped.get(cause, 0) + count
        if len(self.drops) < _MAX_DROPS:
            self.drops.append((event, cause, count))

    # ------------------------------------------------------------------------------------- events

    def _on_event(self, neighbour: str, known: NeighbourState, event: TransitEvent) -> None:
        """Forward an event, and deliver it if this node is one of its destinations."""
        if problem_with_event(event) is not None:
            self.dropped[DAMAGED] = self.dropped.get(DAMAGED, 0) + 1
            return
        event = msgspec.structs.replace(event, age_us=event.age_us + known.liveness.latency_us)
        if 0 < event.deadline_us <= event.age_us:
            self.drop(event, EXPIRED)
            return
        if event.template:
            if self.on_template_event is not None:
                self.on_template_event(neighbour, event, self.now_us)
            return
        by_link: dict[str, list[int]] = {}
        is_here = 0
        for route in event.routes:
            passage = self.forwarding.find_entry(
                neighbour, event.source, route, is_early=event.follows_setup
            )
            if passage is None:
                if not event.follows_setup:  # an early event may overtake its route's set-up
                    self.forwarding.report_unknown_route(neighbour, event.source, route)
                self.drop(event, UNKNOWN_ROUTE)
            elif not passage.next_hop:
                is_here = route
            else:
                by_link.setdefault(passage.next_hop, []).append(route)
        if by_link:
            self.outboxes.forward(event, by_link, self.now_us)
        if is_here and self._is_new(event, is_here):
            self.deliver(event)

    def _is_new(self, event: TransitEvent, route: int) -> bool:
        """Whether this is the first copy of the event; schedules the ack if it wants one."""
        receipt = _sequence_for(event, self.name)
        if receipt is None:
            return self._duplicates.is_new(event.source, event.incarnation, event.number)
        key = (event.source, event.incarnation)
        incoming = self._receive_windows.get(key)
        if incoming is None:
            while len(self._receive_windows) >= _SOURCES:
                oldest = next(iter(self._receive_windows))
                del self._receive_windows[oldest]
                del self._ack_routes[oldest]
            incoming = self._receive_windows[key] = ReceiveWindow()
        self._ack_routes[key] = route
        if not incoming.ack_due_us:
            incoming.ack_due_us = self.now_us + self.options.acknowledge_us
        return incoming.is_new(receipt)

    def _acknowledge(self, now_us: int) -> None:
        for (source, incarnation), incoming in self._receive_windows.items():
            if 0 < incoming.ack_due_us <= now_us:
                incoming.ack_due_us = 0
                route = self._ack_routes[source, incarnation]
                passage = self.forwarding.entries.get((source, route))
                if passage is not None:
                    signal = Acknowledge(
                        source,
                        route,
                        self.name,
                        incarnation,
                        incoming.received_through,
                        incoming.bits(),
                    )
                    self._sends.append((passage.previous_hop, signal))

    def _on_signal(self, neighbour: str, signal: Control) -> None:
        is_ours = getattr(signal, "source", "") == self.name
        match signal:
            case Establish():
                self.forwarding.on_establish(neighbour, signal, self.now_us)
            case Established() if is_ours:
                self.routes.on_established(neighbour, signal, self.now_us)
            case Established():
                self.forwarding.on_established(neighbour, signal)
            case NotEstablished() if is_ours:
                self.routes.on_not_established(neighbour, signal, self.now_us)
            case NotEstablished():
                self.forwarding.on_not_established(neighbour, signal)
            case TearDown():
                self.forwarding.on_tear_down(neighbour, signal)
            case Acknowledge() if is_ours:
                self.sender.on_acknowledge(signal, self.now_us)
            case Acknowledge():
                self.forwarding.on_acknowledge(neighbour, signal)

    def _on_flow_ready(self, flow: Flow) -> None:
        self.sender.on_flow_ready(flow, self.now_us)

    def _on_flow_ended(self, flow: Flow) -> None:
        self.sender.on_flow_ended(flow)

    def _count_dropped(self, dropped: list[tuple[TransitEvent, str]]) -> None:
        for event, cause in dropped:
            self.drop(event, cause)
        dropped.clear()

    # -------------------------------------------------------------------------------------- links

    def _refresh_link(self, neighbour: str, known: NeighbourState) -> None:
        """Start or stop using a link according to its liveness, and announce its state."""
        pulse = known.liveness
        known.sampled_us = self.now_us
        self._pings_due_us = -1
        has_changed = pulse.is_up != known.is_used
        if has_changed and pulse.is_up:
            self.outboxes.all[neighbour].reset_delay()
        if has_changed or self.now_us - known.announced_us >= self.options.advertise_us:
            self._announce_link(neighbour, known)  # first: routes are computed from link state
        if has_changed:
            known.is_used = pulse.is_up
            self.store.set_adjacent(neighbour, is_adjacent=pulse.is_up)
            if pulse.is_up:
                self.forwarding.link_up(neighbour)
            else:
                self.forwarding.link_down(neighbour)
                self.routes.link_down(neighbour, self.now_us)

    def _pace_pings(self) -> None:
        """Set the ping rate of each neighbour within the byte allowance."""
        latencies_us = {
            name: known.liveness.latency_us
            for name, known in self.neighbours.items()
            if known.is_connected
        }
        planned = self._hello.plan(latencies_us, self._critical(), self.now_us)
        for name, interval_us in planned.items():
            self.neighbours[name].liveness.set_interval(interval_us)
        self._pings_due_us = -1

    def _critical(self) -> dict[str, None]:
        """Neighbours that routes in use pass, or that were sent events since the last plan."""
        found: dict[str, None] = {}
        for flow in self.routes.flows.values():
            found.update(dict.fromkeys(route.path[1] for route in flow.in_use()))
        for passage in self.forwarding.entries.values():
            found[passage.previous_hop] = found[passage.next_hop] = None
        sent = {name: transit.sent for name, transit in self.outboxes.all.items()}
        for name, count in sent.items():
            if count > self._sent_before.get(name, 0):
                found[name] = None
        self._sent_before = sent
        return found

    def _announce_link(self, neighbour: str, known: NeighbourState) -> None:
        """Announce the link's state to all nodes if it changed enough."""
        pulse, announced, now_us = known.liveness, known.announced, self.now_us
        if announced is None and not pulse.is_up:
            return  # never announced, so there is nothing to withdraw
        slowly_us = self.options.advertise_slowly_us
        is_same = announced is not None and announced.is_up == pulse.is_up
        if is_same and (
            not pulse.is_up or known.rate_limit_us > now_us + _ANNOUNCE_BURST * slowly_us
        ):
            return  # rate limit: an announcement reaches every node
        failure = self.options.link_failures.get(neighbour)
        if failure is None:
            failure = pulse.availability.failure(now_us, self._measured_links.get(neighbour))
        transit = self.outboxes.all.get(neighbour)
        latency_us = pulse.latency_us + (
            0 if transit is None else transit.queueing_delay_us(now_us)
        )
        # Small changes are announced rarely.
        part = _LARGE_CHANGE if now_us - known.announced_us < slowly_us else _SMALL_CHANGE
        if (
            announced is None
            or not is_same
            or _differ(announced, latency_us, pulse.loss, failure, part)
        ):
            # Rounded: otherwise the order in which links came up decides between equal paths.
            failure = round(failure, 3)
            value = LinkValue(pulse.is_up, latency_us, pulse.deviation_us, pulse.loss, failure)
            known.announced, known.announced_us = value, now_us
            known.rate_limit_us = max(known.rate_limit_us, now_us) + slowly_us
            self.store.put(LINK, neighbour, msgspec.msgpack.encode(value))

    def _on_link_record(self, origin: str, neighbour: str, value: bytes | None) -> None:
        found = None if value is None else decode_or_none(_link, value)
        self._is_map_changed = True
        if found is not None:
            if found.is_up and neighbour != self.name:
                self.store.recall(neighbour)  # reachable again, in case its records expired
            with suppress(ValueError):  # an invalid record counts as none
                self.map.set_link(
                    origin, neighbour, found.latency_us, found.loss, found.is_up, found.failure
                )
                return
        self.map.drop_link(origin, neighbour)

    def _on_node_record(self, origin: str, _key: str, value: bytes | None) -> None:
        found = None if value is None else decode_or_none(_node, value)
        self._is_map_changed = True
        with suppress(ValueError):
            self.map.set_node(origin, {"": 0 if found is None else found.processing_us}, 0.0)
        location = None if found is None else found.location
        if location is not None and is_location(*location):
            self.locations[origin] = location
        else:
            self.locations.pop(origin, None)

    def _on_interest_record(self, origin: str, key: str, value: bytes | None) -> None:
        if origin != self.name:
            need = None if value is None else decode_or_none(_interest, value)
            is_bad = need is not None and problem_with_interest(need) is not None
            self._on_interest(origin, key, None if is_bad else need)

    def _sweep(self) -> None:
        """Expire the records of nodes that have been unreachable for `absent_us`."""
        self._sweep_us = self.now_us + self.options.absent_us // 10
        reachable = self.map.distances(self.name).costs
        for origin in self.store.origins():
            if origin == self.name or origin in reachable:
                self._absent.pop(origin, None)
            elif self._absent.setdefault(origin, self.now_us) + self.options.absent_us <= (
                self.now_us
            ):
                del self._absent[origin]
                self.store.expire(origin)


def _sequence_for(event: TransitEvent, name: str) -> DeliverySequence | None:
    return next((each for each in event.sequences if each.destination == name), None)


def _differ(
    announced: LinkValue, latency_us: int, loss: float, failure: float, part: float
) -> bool:
    """Whether the link changed by `part`, relative to 5 ms at least for the latency.

    A small probability of failure also changes if it gets much larger or smaller: paths fail that
    much more often.
    """
    if abs(latency_us - announced.latency_us) > max(announced.latency_us, 5_000) * part:
        return True
    if abs(loss - announced.loss) > part:
        return True
    change = abs(failure - announced.failure)
    if change < _MIN_FAILURE:
        return False
    factor = _MUCH * _MUCH if part == _LARGE_CHANGE else _MUCH
    low, high = sorted((failure, announced.failure))
    return change > part or high >= factor * low
