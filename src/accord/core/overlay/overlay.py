"""One node's part in the overlay: composes liveness, state store, routes and forwarding.

The driver reports links and received messages, calls `advance` as time passes, sends `sends`
(control) at once, pulls events with `take` as links allow, and delivers `deliveries` to local
clients. Interests of other nodes are reported through `on_need`, so that the local router finds
the nodes that want an event.

A link is used from its first pong until three pings are missed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from accord.core.model.errors import decode_or_none
from accord.core.overlay.budgets import Budgets
from accord.core.overlay.channel_directory import ChannelDirectory
from accord.core.overlay.duplicate_filter import Duplicates
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
    share_of,
)
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.retransmission import ReceiveWindow
from accord.core.overlay.route_manager import Flow, Requirement, RouteManager
from accord.core.overlay.signalling import (
    Acknowledge,
    Carried,
    DeliverySequence,
    Establish,
    Established,
    NotEstablished,
    TearDown,
    TemplateMessage,
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
from accord.core.overlay.validation import DAMAGED, problem_with_event, problem_with_need
from accord.core.predicates.predicate import Predicate

Control = (
    Ping | Pong | StateDelta | StateDigest | VersionVector | DeltaRequest
    | Establish | Established | NotEstablished | TearDown | Acknowledge | TemplateMessage
)  # fmt: skip
Message = Control | Carried


LINK: Final = "link"
NODE: Final = "node"
NEED: Final = "need"
_LINKS_BYTES: Final = 64 << 10  # reserved in the state store for link-state records
_NODE_BYTES: Final = 1 << 10
UNKNOWN_ROUTE: Final = "the way is not known"
_PROCESSING_SHARE: Final = 1 / 64
_PROCESSING_US: Final = 1_000  # smaller changes are not announced
_PROCESSING_TOLD_US: Final = 2_000_000  # minimum interval between announcements
_LITTLE: Final = 0.1
_MUCH: Final = 0.3
_NEWS: Final = 8  # burst of announcements of one link before they are rate-limited
_LOSSES: Final = 2_048  # recorded until drained: a stream's whole window may be among them
_SOURCES: Final = 10_000  # receive windows kept at a time


class NodeValue(msgspec.Struct, frozen=True, array_like=True):
    """State record of a node: the time it takes to hand an event to its clients."""

    processing_us: int


class LinkValue(msgspec.Struct, frozen=True, array_like=True):
    """Link-state record of a link to a neighbour; the latency includes queueing for the link."""

    is_up: bool
    latency_us: int
    deviation_us: int = 0
    loss: float = 0.0
    failure: float = 0.0


_node: Final = msgspec.msgpack.Decoder(NodeValue)
_link: Final = msgspec.msgpack.Decoder(LinkValue)
_need: Final = msgspec.msgpack.Decoder(Interest)


class NeighbourState:
    """A node that is, or was, connected by a transport."""

    def __init__(self, pulse: NeighbourLiveness) -> None:
        self.pulse = pulse
        self.is_connected = False
        self.is_used = False
        self.told: LinkValue | None = None
        self.told_us = 0
        self.news_us = 0  # rate limiter: each announcement moves it on by `advertise_slowly_us`
        self.looked_us = 0  # when the link was last examined for changes to announce


class Overlay:
    """State machine of one node in the overlay; performs no I/O."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        options: OverlayOptions,
        random: Callable[[], float],
        on_need: Callable[[str, str, Interest | None], None],
    ) -> None:
        self.name = name
        self.options = options
        self.store = StateStore(name, incarnation, random=random)
        self.store.reserve(NEED, BUDGET)
        self.store.reserve(LINK, _LINKS_BYTES)
        self.store.reserve(NODE, _NODE_BYTES)
        self.registry = ChannelDirectory(self.store)
        self.map = LinkStateMap()
        self.budgets = Budgets()
        self.switching = ForwardingTable(
            name, self.budgets, patience_us=options.refresh_us * 7 // 2
        )
        self.transits = NeighbourOutboxes(name, self.budgets, bytes_limit=options.transit_bytes)
        self.routes = RouteManager(
            name,
            incarnation,
            self.map,
            self.budgets,
            refresh_us=options.refresh_us,
            idle_us=options.idle_us,
            on_ready=self._flow_ready,
            on_end=self._flow_ended,
        )
        self.sending = SourceSender(name, incarnation, options, self.routes, self.transits)
        self.telling = StatusPublisher(
            self.store, self.registry, self.routes, self.sending, options
        )
        self.neighbours: dict[str, NeighbourState] = {}
        self.deliveries: list[Carried] = []
        self.lost: dict[str, int] = {}  # copies of events, by cause
        self.losses: list[tuple[Carried, str, int]] = []  # since last drained, for the ledger
        self.on_said: Callable[[str, TemplateMessage, int], None] | None = (
            None  # receives template messages
        )
        self.on_carried: Callable[[str, Carried, int], None] | None = None  # events of templates
        # (channel, queued events, queued bytes, now): whether the channel has room for more.
        self.on_takes: Callable[[str, int, int, int], bool] | None = None
        self.needs = InterestTable()
        self.processing_us = 0.0  # smoothed
        self._told_processing_us = 0.0
        self._told_processing_at_us = 0
        self._pulse_options = LivenessOptions(ping_us=options.ping_us)
        self._hello = HelloScheduler(
            ping_us=options.ping_us,
            misses=self._pulse_options.misses,
            give_up_us=options.give_up_us,
            bytes_per_s=options.hello_bytes_per_s,
        )
        self._sent_before: dict[str, int] = {}  # events, by neighbour, at the last plan of pings
        self._random = random
        self._on_need = on_need
        self._duplicates = Duplicates()
        self._incoming: dict[tuple[str, int], ReceiveWindow] = {}
        self._heard_by: dict[tuple[str, int], int] = {}  # route of the latest event, for acks
        self._sends: list[tuple[str, Control]] = []
        self._waiting_bytes = 0  # in `deliveries`
        self._shared: MulticastOutbox | None = None  # only if there is a multicast group
        self.now_us = 0
        self._is_map_new = False
        self._pulses_due_us = -1  # earliest deadline of all neighbours; below 0: to be computed
        self._absent: dict[str, int] = {}
        self._sweep_us = 0
        parts = (self.store, self.routes, self.switching, self.sending, self.telling, self.needs)
        timed = (*parts, self._hello) if options.hello_bytes_per_s else parts
        self._next_dues_us = [each.next_due_us for each in timed]
        self.store.watch(LINK, self._link_told)
        self.store.watch(NODE, self._node_told)
        self.store.watch(NEED, self._need_told)

    # ---------------------------------------------------------------------- called by the driver

    def link_up(self, neighbour: str, now_us: int) -> None:
        """A transport to `neighbour` is connected."""
        self.now_us = now_us
        known = self.neighbours.get(neighbour)
        if known is None:
            pulse = NeighbourLiveness(neighbour, self._pulse_options, self._random, now_us)
            known = self.neighbours[neighbour] = NeighbourState(pulse)
        elif known.is_connected:
            self.link_down(neighbour, now_us)
        known.is_connected = True
        self.transits.open(neighbour)
        known.pulse.link_up(now_us)
        self._pulses_due_us = -1
        self.store.link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.now_us = now_us
        known = self.neighbours.get(neighbour)
        if known is None or not known.is_connected:
            return
        known.is_connected = False
        known.pulse.link_down(now_us)
        self._look_at(neighbour, known)
        self._count_dropped(self.transits.close(neighbour))
        self.store.link_down(neighbour)

    def receive(self, neighbour: str, message: Message, now_us: int) -> None:
        """Handle a message from `neighbour`."""
        self.now_us = now_us
        known = self.neighbours.get(neighbour)
        if known is None or not known.is_connected:
            return
        known.pulse.heard(now_us)
        match message:
            case Carried():
                self._carry(neighbour, known, message)
            case Ping():
                self._sends.append((neighbour, pong_for(message)))
            case Pong():
                known.pulse.receive(message, now_us)
                self._look_at(neighbour, known)
            case TemplateMessage():
                if self.on_said is not None:
                    self.on_said(neighbour, message, now_us)
            case StateDelta() | StateDigest() | VersionVector() | DeltaRequest():
                self.store.receive(neighbour, message, now_us)
            case _:
                self._signal(neighbour, message)

    def advance(self, now_us: int) -> None:
        """Perform all work that is due."""
        self.now_us = now_us
        if self._hello.is_due(now_us):
            self._pace()
        self._pulse(now_us)
        self._tell_needs()
        self.store.advance(now_us)
        if self._is_map_new:
            self._is_map_new = False
            self.routes.map_changed(now_us)
        self.routes.advance(now_us)
        self.switching.advance(now_us)
        self.sending.advance(now_us)
        self._acknowledge(now_us)
        for transit in self.transits.all.values():
            if transit.dropped:
                self._count_dropped(transit.dropped)
        if self._shared is not None:
            self._count_dropped(self._shared.dropped)
        for event, _, cause in self.sending.lost:
            self.lose(event, cause)
        self.sending.lost.clear()
        self.telling.advance(now_us)
        if now_us >= self._sweep_us:
            self._sweep()

    def next_due_us(self) -> int:
        """Latest time at which to call `advance` next."""
        if self._is_map_new or self.needs.has_changed():
            return self.now_us
        if self._pulses_due_us < 0:
            self._pulses_due_us = self._next_pulse_us()
        due_us = self._pulses_due_us if self._pulses_due_us < self._sweep_us else self._sweep_us
        for part_next_due_us in self._next_dues_us:
            part_us = part_next_due_us()
            if part_us is not None and part_us < due_us:
                due_us = part_us
        for incoming in self._incoming.values():
            if 0 < incoming.tell_us < due_us:
                due_us = incoming.tell_us
        return due_us

    def _pulse(self, now_us: int) -> None:
        advertise_us = self.options.advertise_us
        for neighbour, known in self.neighbours.items():
            pulse = known.pulse
            pulse.advance(now_us)
            if pulse.sends:
                self._sends += [(neighbour, ping) for ping in pulse.sends]
                pulse.sends.clear()
            if pulse.is_up != known.is_used or now_us - known.looked_us >= advertise_us:
                self._look_at(neighbour, known)
        self._pulses_due_us = self._next_pulse_us()

    def _tell_needs(self) -> None:
        # Withdrawals first: they may free the room that new interests need. All leave together.
        changes = self.needs.changes(self.now_us)
        if not changes:
            return
        for key, need in changes:
            if need is None:
                self.store.drop(NEED, key)
        for key, need in changes:
            if need is not None:
                is_said = self.store.put(NEED, key, msgspec.msgpack.encode(need))
                assert is_said  # the store reserves room for interests

    def _next_pulse_us(self) -> int:
        due_us: int | None = None
        for known in self.neighbours.values():
            pulse_us = known.pulse.next_due_us()
            if pulse_us is not None and (due_us is None or pulse_us < due_us):
                due_us = pulse_us
        return self._sweep_us if due_us is None else due_us

    def take_loose(
        self, neighbour: str, bytes_wanted: int, message_bytes: int, now_us: int
    ) -> list[Carried]:
        """Events for `neighbour` that may be lost and are no larger than `message_bytes`."""
        transit = self.transits.all.get(neighbour)
        return [] if transit is None else transit.take_loose(bytes_wanted, message_bytes, now_us)

    @property
    def sends(self) -> list[tuple[str, Control]]:
        """Control messages to send at once, before any events; the caller drains the list."""
        sends = self._sends
        if self.store.sends:
            sends += self.store.sends
            self.store.sends.clear()
        if self.switching.sends:
            sends += self.switching.sends
            self.switching.sends.clear()
        if self.routes.sends:
            sends += self.routes.sends
            self.routes.sends.clear()
        return sends

    def reach_group(self, neighbours: list[str], message_bytes: int) -> None:
        """Set the neighbours that receive the multicast group, and the largest datagram."""
        if self._shared is None:
            self._shared = MulticastOutbox(self.options.transit_bytes)
            self.transits.put_shared = self._shared.put
        self._shared.reach(neighbours, message_bytes)

    def take_shared(self, bytes_wanted: int, now_us: int) -> list[MulticastEvent]:
        """Events to send to the group next; call before `take_loose` and `take`."""
        shared = self._shared
        return [] if shared is None else shared.take(bytes_wanted, now_us, self._give_one)

    def receive_shared(self, neighbour: str, shared: MulticastEvent, now_us: int) -> None:
        """Handle an event that `neighbour` sent to the multicast group."""
        event = share_of(shared, self.name)
        if event is not None:
            self.receive(neighbour, event, now_us)

    def _give_one(self, neighbour: str, event: Carried, due_us: int, arrived_us: int) -> None:
        transit = self.transits.all.get(neighbour)
        if transit is None:
            self.lose(event, LINK_DOWN)
        else:
            transit.put(event, due_us, arrived_us, is_loose=True)

    def has_work(self) -> bool:
        """Whether there is work that should not wait for `next_due_us`."""
        return bool(self.transits.ready or self.sends or self.needs.has_changed())

    @property
    def ready(self) -> list[str]:
        """Neighbours whose outbox became non-empty since the list was last cleared."""
        return self.transits.ready

    def take(self, neighbour: str, bytes_wanted: int, now_us: int) -> list[Carried]:
        """Events to send to `neighbour` next."""
        transit = self.transits.all.get(neighbour)
        return [] if transit is None else transit.take(bytes_wanted, now_us)

    def check_invariants(self) -> None:
        self.switching.check_invariants()
        self.routes.check_invariants()
        self.sending.check_invariants()
        self.telling.check_invariants()
        self.needs.check_invariants()
        self.store.check_invariants()
        self.registry.check_invariants()
        for incoming in self._incoming.values():
            incoming.check_invariants()
        for transit in self.transits.all.values():
            transit.check_invariants()
        self.budgets.check_invariants()
        self.transits.carriage.check_invariants()
        if self._shared is not None:
            self._shared.check_invariants()
        for neighbour, known in self.neighbours.items():
            known.pulse.check_invariants()
            assert known.is_connected == (neighbour in self.transits.all)
            assert known.is_used == known.pulse.is_up

    # ------------------------------------------------------------------------ called by the node

    def need(self, pattern: str, condition: PredicateText, predicate: Predicate | None) -> None:
        """A local client subscribed."""
        self.needs.add(pattern, condition, predicate)

    def unneed(self, pattern: str, condition: PredicateText) -> None:
        self.needs.remove(pattern, condition)

    def publish(self, event: Carried, destinations: list[str], requirement: Requirement) -> None:
        """Send an event of a local client over routes to the interested nodes."""
        self.sending.publish(event, destinations, requirement, self.now_us)

    def say(self, neighbour: str, said: TemplateMessage) -> None:
        """Send a template message to a connected neighbour."""
        if neighbour in self.transits.all:
            self._sends.append((neighbour, said))

    def pass_on(self, neighbour: str, event: Carried) -> None:
        """Send an event one hop, as its template decided."""
        self.transits.pass_on(event, {neighbour: []}, self.now_us)

    def is_waiting(self, neighbour: str, passed: Passed) -> bool:
        """Whether an event that was passed on is still queued for the link."""
        transit = self.transits.all.get(neighbour)
        return transit is not None and transit.is_waiting(passed)

    def used_neighbours(self) -> list[str]:
        return [name for name, known in self.neighbours.items() if known.is_used]

    def deliver(self, event: Carried) -> None:
        """Queue an event for local clients."""
        if not self.deliveries:
            self._waiting_bytes = 0
        self._waiting_bytes += len(event.payload) + len(event.block)
        self.deliveries.append(event)
        self.telling.came(event, self.now_us)

    def takes(self, channel: str) -> bool:
        """Whether this node accepts more events of a channel that must not lose any."""
        if self.on_takes is None:
            return True
        waiting = len(self.deliveries)
        waiting_bytes = self._waiting_bytes if waiting else 0
        return self.on_takes(channel, waiting, waiting_bytes, self.now_us)

    def processed(self, took_us: int) -> None:
        """Record the time it took to hand an event to local clients."""
        self.processing_us += (took_us - self.processing_us) * _PROCESSING_SHARE
        is_news = abs(self.processing_us - self._told_processing_us) > _PROCESSING_US
        if is_news and self.now_us - self._told_processing_at_us >= _PROCESSING_TOLD_US:
            self._told_processing_us = self.processing_us
            self._told_processing_at_us = self.now_us
            value = NodeValue(int(self.processing_us))
            self.store.put(NODE, "", msgspec.msgpack.encode(value))

    def lose(self, event: Carried, cause: str, count: int = 1) -> None:
        """Count `count` copies of an event that end here, with their cause."""
        self.lost[cause] = self.lost.get(cause, 0) + count
        if len(self.losses) < _LOSSES:
            self.losses.append((event, cause, count))

    # ------------------------------------------------------------------------------------- events

    def _carry(self, neighbour: str, known: NeighbourState, event: Carried) -> None:
        """Forward an event, and deliver it if this node is one of its destinations."""
        if problem_with_event(event) is not None:
            self.lost[DAMAGED] = self.lost.get(DAMAGED, 0) + 1
            return
        event = msgspec.structs.replace(event, age_us=event.age_us + known.pulse.latency_us)
        if 0 < event.deadline_us <= event.age_us:
            self.lose(event, EXPIRED)
            return
        if event.template:
            if self.on_carried is not None:
                self.on_carried(neighbour, event, self.now_us)
            return
        by_link: dict[str, list[int]] = {}
        is_here = 0
        for route in event.routes:
            passage = self.switching.passage(
                neighbour, event.source, route, is_early=event.is_early
            )
            if passage is None:
                if not event.is_early:  # an early event may overtake its route's set-up
                    self.switching.lost(neighbour, event.source, route)
                self.lose(event, UNKNOWN_ROUTE)
            elif not passage.after:
                is_here = route
            else:
                by_link.setdefault(passage.after, []).append(route)
        if by_link:
            self.transits.pass_on(event, by_link, self.now_us)
        if is_here and self._is_new(event, is_here):
            self.deliver(event)

    def _is_new(self, event: Carried, route: int) -> bool:
        """Whether this is the first copy of the event; schedules the ack if it wants one."""
        receipt = _receipt(event, self.name)
        if receipt is None:
            return self._duplicates.is_new(event.source, event.incarnation, event.number)
        key = (event.source, event.incarnation)
        incoming = self._incoming.get(key)
        if incoming is None:
            while len(self._incoming) >= _SOURCES:
                oldest = next(iter(self._incoming))
                del self._incoming[oldest]
                del self._heard_by[oldest]
            incoming = self._incoming[key] = ReceiveWindow()
        self._heard_by[key] = route
        if not incoming.tell_us:
            incoming.tell_us = self.now_us + self.options.acknowledge_us
        return incoming.is_new(receipt)

    def _acknowledge(self, now_us: int) -> None:
        for (source, incarnation), incoming in self._incoming.items():
            if 0 < incoming.tell_us <= now_us:
                incoming.tell_us = 0
                route = self._heard_by[source, incarnation]
                passage = self.switching.passages.get((source, route))
                if passage is not None:
                    signal = Acknowledge(
                        source, route, self.name, incarnation, incoming.through, incoming.bits()
                    )
                    self._sends.append((passage.before, signal))

    def _signal(self, neighbour: str, signal: Control) -> None:
        is_ours = getattr(signal, "source", "") == self.name
        match signal:
            case Establish():
                self.switching.establish(neighbour, signal, self.now_us)
            case Established() if is_ours:
                self.routes.established(neighbour, signal, self.now_us)
            case Established():
                self.switching.established(neighbour, signal)
            case NotEstablished() if is_ours:
                self.routes.not_established(neighbour, signal, self.now_us)
            case NotEstablished():
                self.switching.not_established(neighbour, signal)
            case TearDown():
                self.switching.tear_down(neighbour, signal)
            case Acknowledge() if is_ours:
                self.sending.acknowledge(signal, self.now_us)
            case Acknowledge():
                self.switching.acknowledge(neighbour, signal)

    def _flow_ready(self, flow: Flow) -> None:
        self.sending.flow_ready(flow, self.now_us)

    def _flow_ended(self, flow: Flow) -> None:
        self.sending.flow_ended(flow)

    def _count_dropped(self, dropped: list[tuple[Carried, str]]) -> None:
        for event, cause in dropped:
            self.lose(event, cause)
        dropped.clear()

    # -------------------------------------------------------------------------------------- links

    def _look_at(self, neighbour: str, known: NeighbourState) -> None:
        """Start or stop using a link according to its liveness, and announce its state."""
        pulse = known.pulse
        known.looked_us = self.now_us
        self._pulses_due_us = -1
        has_changed = pulse.is_up != known.is_used
        if has_changed and pulse.is_up:
            self.transits.all[neighbour].forget_waits()
        if has_changed or self.now_us - known.told_us >= self.options.advertise_us:
            self._tell_link(neighbour, known)  # first: routes are computed from link state
        if has_changed:
            known.is_used = pulse.is_up
            if pulse.is_up:
                self.switching.link_up(neighbour)
            else:
                self.switching.link_down(neighbour)
                self.routes.link_down(neighbour, self.now_us)

    def _pace(self) -> None:
        """Set the ping rate of each neighbour within the byte allowance."""
        latencies_us = {
            name: known.pulse.latency_us
            for name, known in self.neighbours.items()
            if known.is_connected
        }
        planned = self._hello.plan(latencies_us, self._critical(), self.now_us)
        for name, interval_us in planned.items():
            self.neighbours[name].pulse.pace(interval_us)
        self._pulses_due_us = -1

    def _critical(self) -> dict[str, None]:
        """Neighbours that routes in use pass, or that were sent events since the last plan."""
        found: dict[str, None] = {}
        for flow in self.routes.flows.values():
            found.update(dict.fromkeys(route.path[1] for route in flow.in_use()))
        for passage in self.switching.passages.values():
            found[passage.before] = found[passage.after] = None
        sent = {name: transit.sent for name, transit in self.transits.all.items()}
        for name, count in sent.items():
            if count > self._sent_before.get(name, 0):
                found[name] = None
        self._sent_before = sent
        return found

    def _tell_link(self, neighbour: str, known: NeighbourState) -> None:
        """Announce the link's state to all nodes if it changed enough."""
        pulse, told, now_us = known.pulse, known.told, self.now_us
        if told is None and not pulse.is_up:
            return  # never announced, so there is nothing to withdraw
        slowly_us = self.options.advertise_slowly_us
        is_same = told is not None and told.is_up == pulse.is_up
        if is_same and (not pulse.is_up or known.news_us > now_us + _NEWS * slowly_us):
            return  # rate limit: an announcement reaches every node
        absence = 1 - pulse.availability.share(now_us)
        transit = self.transits.all.get(neighbour)
        latency_us = pulse.latency_us + (0 if transit is None else transit.usual_us(now_us))
        # Small changes are announced rarely.
        part = _MUCH if now_us - known.told_us < slowly_us else _LITTLE
        if told is None or not is_same or _differ(told, latency_us, pulse.loss, absence, part):
            # Rounded: otherwise the order in which links came up decides between equal paths.
            failure = round(absence, 3)
            value = LinkValue(pulse.is_up, latency_us, pulse.deviation_us, pulse.loss, failure)
            known.told, known.told_us = value, now_us
            known.news_us = max(known.news_us, now_us) + slowly_us
            self.store.put(LINK, neighbour, msgspec.msgpack.encode(value))

    def _link_told(self, origin: str, neighbour: str, value: bytes | None) -> None:
        found = None if value is None else decode_or_none(_link, value)
        self._is_map_new = True
        if found is not None:
            if found.is_up and neighbour != self.name:
                self.store.recall(neighbour)  # reachable again, in case its records expired
            with suppress(ValueError):  # an invalid record counts as none
                self.map.set_link(
                    origin, neighbour, found.latency_us, found.loss, found.is_up, found.failure
                )
                return
        self.map.drop_link(origin, neighbour)

    def _node_told(self, origin: str, _key: str, value: bytes | None) -> None:
        found = None if value is None else decode_or_none(_node, value)
        self._is_map_new = True
        with suppress(ValueError):
            self.map.set_node(origin, {"": 0 if found is None else found.processing_us}, 0.0)

    def _need_told(self, origin: str, key: str, value: bytes | None) -> None:
        if origin != self.name:
            need = None if value is None else decode_or_none(_need, value)
            is_bad = need is not None and problem_with_need(need) is not None
            self._on_need(origin, key, None if is_bad else need)

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
                self.store.forget(origin)


def _receipt(event: Carried, name: str) -> DeliverySequence | None:
    return next((each for each in event.receipts if each.destination == name), None)


def _differ(told: LinkValue, latency_us: int, loss: float, absence: float, part: float) -> bool:
    """Whether the link changed by `part`, relative to 5 ms at least for the latency."""
    if abs(latency_us - told.latency_us) > max(told.latency_us, 5_000) * part:
        return True
    if abs(loss - told.loss) > part:
        return True
    # Rounding is slow and seldom decides.
    is_near = abs(absence - told.failure) > part - 0.001
    return is_near and abs(round(absence, 3) - told.failure) > part
