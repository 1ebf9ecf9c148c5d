"""Runs the overlay of a node, driven by its links and its local clients.

A standalone node has an overlay too, without links: its channels are defined there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from accord.core.broker.broker import Broker
from accord.core.broker.overlay_bridge import OverlayBridge
from accord.core.channels.channels import SHIPPED, Channels
from accord.core.channels.history.messages import SERVICE as PAST
from accord.core.channels.template import COMPLETE
from accord.core.links.codec import LinkCodec
from accord.core.links.handshake import LinkPeer, LocalIdentity, SharedKey
from accord.core.links.messages import SECONDARY
from accord.core.links.options import FrameCounts
from accord.core.model.former_names import current_options
from accord.core.monitoring.ledger import DELIVERED
from accord.core.monitoring.measurement_registry import FAILURE, MeasuredValue, parts_of
from accord.core.monitoring.verdict import NetFaults
from accord.core.overlay.channel_directory import ChannelDefinition, is_same
from accord.core.overlay.discovery import DiscoveryOptions
from accord.core.overlay.neighbour_outbox import MulticastEvent
from accord.core.overlay.net_history import NetHistory
from accord.core.overlay.net_map import NetMap, states_in
from accord.core.overlay.net_recorder import NET_CHANNEL, NetRecorder
from accord.core.overlay.options import OverlayOptions, TransportRule, TransportSelector
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.status import ChannelStatus, MissingLinkStatus, NetStatus
from accord.core.overlay.status_snapshot import channel_statuses, net_status
from accord.core.overlay.tier_links import TierLinks
from accord.runtime.addresses import SocketAddress
from accord.runtime.child_links import ChildLinks, LinkConnectionStatus, LinkMessage
from accord.runtime.connection_writer import clock_us
from accord.runtime.dialler import LinkTransports, TransportOptions
from accord.runtime.discovery_service import DiscoveryService
from accord.runtime.fault_isolation import FaultIsolation
from accord.runtime.link_manager import LinkManager
from accord.runtime.logs import get_log
from accord.runtime.multicast_links import MulticastOptions, MulticastStatus, open_group
from accord.runtime.process import Clock
from accord.runtime.server import Server
from accord.runtime.templates import installed_templates
from accord.runtime.transports.udp import open_datagrams

log = get_log(__name__)

CHANNELS: Final = "channels.json"
FAILING: Final = ("link", "node")  # kinds of measured values
_MISSES: Final = 3  # missed pings after which a neighbour of that name may be replaced
_SOON_US: Final = 1_000_000
_LONG_US: Final = 60_000_000
_TEXT_AT_ONCE: Final = 8_192  # characters of remote predicates parsed in one go, about 0.1 s
_MAP_US: Final = 50_000  # between two updates of the map
_RECORD_US: Final = 1_000_000  # between two records of changes in the ledger
_MAP_SHARE: Final = 20  # at most one part in so many of the time goes into them
_PAUSES: Final = 4  # pause after parsing, as a multiple of the time it took


class NetOptions(Struct, frozen=True, kw_only=True):
    """`neighbours` are dialled, `key` is shared by all nodes, `channels` are defined at start."""

    listen: tuple[SocketAddress, ...] = ()
    neighbours: tuple[SocketAddress, ...] = ()
    key: bytes = b""
    transports: TransportOptions = TransportOptions()
    overlay: OverlayOptions = OverlayOptions()
    channels: tuple[ChannelDefinition, ...] = ()
    transport_rules: tuple[TransportRule, ...] = ()
    multicast: MulticastOptions | None = None
    discover: DiscoveryOptions | None = None
    announce: tuple[SocketAddress, ...] = ()
    is_secondary: bool = False  # `neighbours` are its parents, best first

    @property
    def is_alone(self) -> bool:
        """Whether no other node can ever link with this one."""
        finds_others = self.discover is not None and self.multicast is not None
        return not (self.listen or self.neighbours or finds_others)


class OverlayService:
    """The overlay as the links see it; deliveries for local clients go to the broker."""

    def __init__(  # noqa: PLR0913 - once per node
        self,
        options: NetOptions,
        broker: Broker,
        server: Server,
        clock: Clock,
        *,
        node: str,
        incarnation: int,
        data: Path | None,
    ) -> None:
        self.options = options
        self.incarnation = incarnation
        self.addresses: list[SocketAddress] = []
        self.bridge = OverlayBridge(broker, clock_us)
        self.bridge.remote_interests.batch_characters = _TEXT_AT_ONCE
        self.overlay = Overlay(
            node, incarnation, options.overlay, random.random, self.bridge.on_interest
        )
        self.channels = Channels(self.overlay, SHIPPED, installed_templates(), isolate_faults=True)
        self.overlay.outboxes.transport_selector = TransportSelector(
            options.transport_rules, self._repairs
        )
        self.net_map = NetMap(self.overlay)
        self.net_history = NetHistory(clock.now_ms())
        self._recorder = NetRecorder(self.net_map.rows)
        self._record_due_us = 0
        self._map_due_us = 0
        self.tiers = TierLinks()  # links to secondary nodes, for services
        self.after: list[Callable[[], None]] = []  # called when messages may have arrived or be due
        self.on_page: Callable[[TransitEvent], None] | None = None  # receives history pages
        self._broker = broker
        self._server = server
        self._clock = clock
        self._isolation = FaultIsolation(log)
        # By name: the widened definition's base, and the definition of exactly that name.
        self._widened: dict[str, tuple[ChannelDefinition, ChannelDefinition | None]] = {}
        self._is_aggregated = False  # whether interests are aggregated, for lack of budget
        self._parse_due_us = 0  # when to parse more remote interests
        self._file = None if data is None else data / CHANNELS
        self._neighbours: LinkManager | None = None
        self._local = LocalIdentity(node=node, incarnation=incarnation, key=SharedKey(options.key))
        self._codec = LinkCodec(LinkMessage)
        self._children: ChildLinks | None = None  # secondary nodes; set by `start`
        self._encode = msgspec.msgpack.Encoder().encode

    async def start(self, stack: AsyncExitStack) -> None:
        """Start links and overlay; `stack` stops them."""
        transports = LinkTransports(self.options.transports)
        endpoint = None
        if self.options.listen:
            endpoint = await open_datagrams(self.options.listen[0].host)
            stack.callback(endpoint.close)
        group = None
        if self.options.multicast is not None:
            codec = LinkCodec(MulticastEvent)
            group = await open_group(self, codec, self._local, self.options.multicast)
        self._neighbours = LinkManager(
            self,
            self._local,
            self._codec,
            transports.of,
            endpoint=endpoint,
            group=group,
            quiet_us=_quiet_us(self.options.overlay),
            objection=self._objection,
            on_link=self._on_link,
        )
        stack.push_async_callback(self._neighbours.close)
        for address in self.options.listen:
            self.addresses.append(await self._neighbours.listen(address))
        for definition in (*self.options.channels, *self._read_channels()):
            if problem := self.overlay.directory.create(definition, replace=True):
                log.warning("channel: not defined", channel=definition.name, problem=problem)
            elif problem := self.channels.problem_with(definition.template):
                log.warning(
                    "channel: not usable for publishing",
                    channel=definition.name,
                    problem=problem,
                    installed=", ".join(self.templates),
                )
        self._broker.bridge = self.bridge
        self.bridge.join(self.channels, is_alone=self.options.is_alone)
        self._children = ChildLinks(self.bridge, self.incarnation, self._set_clock, self.tiers)
        for address in self.options.neighbours:
            self._neighbours.dial(address)
        if self.options.discover is not None:
            discovering = DiscoveryService(
                self.overlay,
                self._neighbours,
                self.options.discover,
                listen=self.addresses,
                announce=self.options.announce,
            )
            discovering.start()
            stack.callback(discovering.stop)
        self._neighbours.due()

    def turn(self) -> None:
        """Schedule the links if there is something to send."""
        self._log_failures()
        if self.overlay.deliveries:  # from a template that orders its own clients' events
            self._deliver_all()
        has_work = self.overlay.has_work() or self.channels.is_touched
        has_work = has_work or (self._children is not None and self._children.has_work())
        self.channels.is_touched = False
        if self._neighbours is not None and has_work:
            self._neighbours.due()

    def set_measured(self, values: Iterable[MeasuredValue]) -> None:
        """Take what is measured of links and nodes, as this node sees them."""
        failures: dict[str, dict[str, float]] = {kind: {} for kind in FAILING}
        for each in values:
            observer, subject = parts_of(each.subject)
            if observer == self.overlay.name and each.name == FAILURE:
                failures[each.kind][subject] = each.value
        self.overlay.set_measured_failures(failures["link"], failures["node"])

    # -------------------------------------------------------------------------- called by the links

    @property
    def sends(self) -> list[tuple[str, Any]]:
        children = [] if self._children is None else self._children.sends
        return [*self.overlay.sends, *children]

    @sends.setter
    def sends(self, sends: list[tuple[str, Any]]) -> None:
        self.overlay.sends[:] = sends
        if self._children is not None:
            self._children.clear_sends()

    def link_up(self, neighbour: str, now_us: int) -> None:
        links = self._neighbours
        if self._children is not None and links is not None and links.is_secondary(neighbour):
            self._children.link_up(neighbour, now_us)
        else:
            self.overlay.link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        if self._children is not None and neighbour in self._children:
            self._children.link_down(neighbour, now_us)
        else:
            self.overlay.link_down(neighbour, now_us)

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        if self._children is not None and neighbour in self._children:
            self._children.receive(neighbour, message, now_us)
        else:
            self.overlay.receive(neighbour, message, now_us)
        self._run_after()

    def advance(self, now_us: int) -> None:
        self._parse_interests(now_us)
        self.channels.advance(now_us)
        if self._children is not None:
            self._children.advance(now_us)
        losses = list(self.overlay.drops)
        self.overlay.drops.clear()
        for loss in losses:
            self.bridge.on_dropped(*loss)
        self._update_map(now_us)
        self._record(now_us)
        if self.overlay.interests.is_aggregated != self._is_aggregated:
            self._is_aggregated = self.overlay.interests.is_aggregated
            log.warning(
                "interests aggregated: announcement budget exceeded"
                if self._is_aggregated
                else "interests: announced individually again",
                interests_aggregated=self.overlay.interests.count_aggregated(),
            )
        self._run_after()

    def next_due_us(self) -> int:
        due_us = self.channels.next_due_us()
        if self.bridge.remote_interests.has_unparsed():
            due_us = min(due_us, self._parse_due_us)
        if self.net_map.is_changed:
            due_us = min(due_us, self._map_due_us)
        due_us = min(due_us, self._record_due_us)
        return due_us if self._children is None else min(due_us, self._children.next_due_us())

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        if self._children is not None and neighbour in self._children:
            return self._children.take(neighbour, bytes_wanted)
        self.overlay.ready.clear()  # all links are polled anyway
        taken = self.overlay.take(neighbour, bytes_wanted, clock_us())
        return self._encoded(neighbour, taken)

    def take_datagrams(self, neighbour: str, bytes_wanted: int, message_bytes: int) -> list[bytes]:
        taken = self.overlay.take_droppable(neighbour, bytes_wanted, message_bytes, clock_us())
        return self._encoded(neighbour, taken)

    def set_group_reach(self, neighbours: list[str], message_bytes: int) -> None:
        self.overlay.set_group_reach(neighbours, message_bytes)

    def take_multicast(self, bytes_wanted: int) -> list[bytes]:
        taken = self.overlay.take_multicast(bytes_wanted, clock_us())
        if taken:
            self._broker.context.now_ms = self._clock.now_ms()
        for each in taken:
            for share in each.parts:
                self.bridge.on_sent(share.neighbour, each.event)
        return [self._encode(each) for each in taken]

    def receive_multicast(self, neighbour: str, message: Any, now_us: int) -> None:
        self.overlay.receive_multicast(neighbour, message, now_us)
        self._run_after()

    def _encoded(self, neighbour: str, events: list[TransitEvent]) -> list[bytes]:
        if events:
            self._broker.context.now_ms = self._clock.now_ms()
            for event in events:
                self.bridge.on_sent(neighbour, event)
        return [self._encode(each) for each in events]

    def _update_map(self, now_us: int) -> None:
        if self.net_map.is_changed and now_us >= self._map_due_us:
            now_ms, changes = self._clock.now_ms(), self.net_map.update()
            self.net_history.add(changes, now_ms=now_ms)
            self._recorder.note(changes, now_ms=now_ms)
            for subject, is_up in states_in(changes, self.overlay.name):
                self._broker.context.sightings.observe(subject, is_up, now_ms=now_ms)
            self._map_due_us = now_us + max(_MAP_US, _MAP_SHARE * (clock_us() - now_us))

    def _record(self, now_us: int) -> None:
        """Have the ledger record what changed, once a second."""
        ledger = self._broker.context.ledger
        if now_us < self._record_due_us:
            return
        self._record_due_us = now_us + _RECORD_US
        if not ledger.is_on:
            return
        now_ms = self._clock.now_ms()
        for since_ms, record in self._recorder.take(now_ms=now_ms):
            ledger.add(
                0,
                1,
                NET_CHANNEL,
                "",
                "",
                DELIVERED,
                since_ms,
                since_ms,
                now_ms,
                0,
                0,
                "",
                record,
                0,
            )

    def _parse_interests(self, now_us: int) -> None:
        """Parse more of the remote interests, with pauses in between."""
        if now_us >= self._parse_due_us:
            self.bridge.remote_interests.parse_next()
            self._parse_due_us = now_us + _PAUSES * (clock_us() - now_us)

    def _repairs(self, template: str) -> bool:
        """Whether a template retransmits events lost on links."""
        found = self.channels.templates.get(template)
        return found is not None and COMPLETE in found.promises

    def _run_after(self) -> None:
        self._log_failures()
        if self.overlay.deliveries:
            self._deliver_all()
        if self.bridge.paused:
            self.bridge.resume_publishers()
            self._server.due()
        for each in self.after:
            self._isolation.run("overlay: follow-up failed", each)

    def _log_failures(self) -> None:
        for template, error in self.channels.failures.take():
            self._isolation.failed("template: failed", error, template=template)

    def _objection(self, neighbour: LinkPeer) -> str:
        """Why a node of that name can't be a neighbour; empty if it can."""
        name = neighbour.node
        if SECONDARY not in neighbour.features:
            is_taken = self._children is not None and self._children.name_conflicts.is_taken(name)
            return f"a secondary node is called {name}, as this one" if is_taken else ""
        if name in self.overlay.map.distances(self.overlay.name).costs:
            return f"a node of the backbone is called {name}, as this secondary one"
        return ""

    def _set_clock(self) -> None:
        self._broker.context.now_ms = self._clock.now_ms()

    def _deliver_all(self) -> None:
        self._set_clock()
        counters = self._broker.context.counters
        self._isolation.deliver(self.overlay.deliveries, self._deliver, counters)
        self._server.due()

    def _deliver(self, event: TransitEvent) -> None:
        if event.channel == PAST:
            if self.on_page is not None:
                self.on_page(event)
            return
        began_us = clock_us()
        self.bridge.on_event(event)
        self.overlay.record_processing(clock_us() - began_us)

    # --------------------------------------------------------------------------------------- status

    def status(self) -> NetStatus:
        """The overlay as this node knows it, and problems of its own links."""
        known = net_status(self.overlay)
        if self._neighbours is None:
            return known
        links = self._neighbours.status()
        sent, received = links.traffic.sent, links.traffic.received
        group_sent = FrameCounts() if links.group is None else links.group.sent
        group_received = FrameCounts() if links.group is None else links.group.received
        carried = msgspec.structs.replace(
            known.carried,
            sent=sent.data.messages + sent.datagrams.messages + group_sent.messages,
            sent_bytes=sent.data.bytes + sent.datagrams.bytes + group_sent.bytes,
            received=(
                received.data.messages + received.datagrams.messages + group_received.messages
            ),
            received_bytes=received.data.bytes + received.datagrams.bytes + group_received.bytes,
        )
        links_down = tuple(
            MissingLinkStatus(
                address=each.address, node=each.node, problem=each.problem, remedy=each.remedy
            )
            for each in links.dials
            if each.problem
        )
        children = () if self._children is None else self._children.status()
        return msgspec.structs.replace(
            known,
            carried=carried,
            links_down=links_down,
            refused=links.refusals,
            children=children,
        )

    def net_faults(self) -> NetFaults:
        """What fails in the network, as far as this node knows; links of its own with the cause."""
        links_down = [] if self._neighbours is None else self._neighbours.links_down()
        own = {frozenset((self.overlay.name, neighbour)) for neighbour, _ in links_down}
        unreachable, failed = self.net_map.faults()
        return NetFaults(
            links_down=links_down,
            unreachable=unreachable,
            failed_links=[ends for ends in failed if frozenset(ends) not in own],
        )

    def _on_link(self, node: str, is_up: bool) -> None:
        self._broker.context.changes.link_changed(node, is_up=is_up, now_ms=self._clock.now_ms())

    def links(self) -> tuple[LinkConnectionStatus, ...]:
        """Status and traffic of each link of this node."""
        return () if self._neighbours is None else self._neighbours.status().links

    def group(self) -> MulticastStatus | None:
        """Status of the multicast group, if the node is in one."""
        return None if self._neighbours is None else self._neighbours.status().group

    def channel_statuses(self) -> list[ChannelStatus]:
        """All defined channels, by name."""
        return [
            msgspec.structs.replace(
                each, missing_at=tuple(self.channels.nodes_without(each.template))
            )
            for each in channel_statuses(self.overlay)
        ]

    @property
    def templates(self) -> list[str]:
        """Templates that channels can be bound to at this node."""
        return self.channels.names()

    # ------------------------------------------------------------------------------------- channels

    def is_configured(self, name: str) -> bool:
        """Whether the channel is in the configuration and so defined again at each start."""
        return any(each.name == name for each in self.options.channels)

    def problem_with_defining(self) -> str:
        return ""

    def problem_with_options(self, definition: ChannelDefinition) -> tuple[str, str] | None:
        return self.channels.problem_with_options(definition)

    def create_channel(self, definition: ChannelDefinition, *, replace: bool) -> str | None:
        """Define a channel for all nodes; returns the problem, or None."""
        if unusable := self.channels.problem_with(definition.template):
            return unusable
        created_us = self._clock.now_ms() * 1_000
        made = msgspec.structs.replace(definition, created_us=created_us)
        problem = self.overlay.directory.create(made, replace=replace)
        if problem is None:
            self._write_channels()
            self.turn()
        return problem

    def widen_channel(self, name: str, more_paths: int) -> str | None:
        """Give a channel `more_paths` temporarily, not persisted; 0 restores the original."""
        registry = self.overlay.directory
        if name in self._widened:
            base, exact = self._widened[name]
        else:
            exact = registry.get(name)
            base = exact or registry.look_up(name) or ChannelDefinition(name=name)
        if more_paths:
            paths = base.paths + more_paths
            made = msgspec.structs.replace(base, name=name, paths=paths)
            problem = registry.create(made, replace=True)
            if problem is None:
                self._widened[name] = base, exact
        else:
            self._widened.pop(name, None)
            problem = (
                registry.delete(name) if exact is None else registry.create(exact, replace=True)
            )
        self.turn()
        return problem

    def delete_channel(self, name: str) -> str | None:
        problem = self.overlay.directory.delete(name)
        if problem is None:
            self._write_channels()
            self.turn()
        return problem

    def _read_channels(self) -> list[ChannelDefinition]:
        """Channels defined here at run time; a damaged file is logged and left alone."""
        if self._file is None or not self._file.exists():
            return []
        try:
            found = msgspec.json.decode(self._file.read_bytes(), type=list[ChannelDefinition])
        except (OSError, msgspec.DecodeError) as error:
            log.warning(
                "channel definitions: not readable", file=str(self._file), problem=str(error)
            )
            return []
        return [
            msgspec.structs.replace(each, options=current_options(each.options)) for each in found
        ]

    def _write_channels(self) -> None:
        """Save channels defined here that are not in the configuration, which may change."""
        if self._file is None:
            return
        registry = self.overlay.directory
        own = []
        for each in registry.all():
            if registry.origin_of(each.name) == self.overlay.name:
                kept = self._widened[each.name][1] if each.name in self._widened else each
                is_configured = kept is None or any(
                    is_same(kept, configured) for configured in self.options.channels
                )
                own += [] if is_configured else [kept]
        unfinished = self._file.with_suffix(".tmp")
        try:
            unfinished.write_bytes(msgspec.json.encode(own))
            unfinished.replace(self._file)
        except OSError as error:
            log.warning(
                "channel definitions: not written", file=str(self._file), problem=str(error)
            )


def _quiet_us(options: OverlayOptions) -> int:
    """How long a live neighbour may be silent; longer if pings are rate-limited."""
    return _LONG_US if options.ping_bytes_per_s else max(_SOON_US, _MISSES * options.ping_us)
