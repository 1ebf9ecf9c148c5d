"""A secondary node: links to its parents, without an overlay of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

import msgspec

from accord.core.broker.broker import Broker
from accord.core.broker.parent_bridge import ParentBridge
from accord.core.links.codec import LinkCodec
from accord.core.links.handshake import LocalIdentity, SharedKey
from accord.core.links.messages import SECONDARY
from accord.core.monitoring.verdict import NetFaults
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.status import ChannelStatus, MissingLinkStatus, NetStatus, TransitCounts
from accord.core.overlay.tier_links import TierLinks
from accord.core.tiers.child import Child
from accord.core.tiers.messages import TierOptions
from accord.runtime.addresses import SocketAddress
from accord.runtime.child_links import LinkConnectionStatus, LinkMessage
from accord.runtime.connection_writer import clock_us
from accord.runtime.dialler import LinkTransports
from accord.runtime.fault_isolation import FaultIsolation
from accord.runtime.link_manager import LinkManager
from accord.runtime.logs import get_log
from accord.runtime.overlay_service import NetOptions
from accord.runtime.process import Clock
from accord.runtime.server import Server

log = get_log(__name__)

_LEAVE_S: Final = 2.0
_PULSES: Final = 10  # unanswered heartbeats after which a parent has failed

_encode: Final = msgspec.msgpack.Encoder().encode


class TierService(Protocol):
    """A service that exchanges messages with the parents by itself."""

    def advance(self, now_us: int) -> None: ...

    def next_due_us(self) -> int | None: ...


class SecondaryService:
    """The node as the links see it; deliveries for local clients go to the broker."""

    def __init__(  # noqa: PLR0913 - once per node
        self,
        options: NetOptions,
        broker: Broker,
        server: Server,
        clock: Clock,
        *,
        node: str,
        incarnation: int,
    ) -> None:
        self.incarnation = incarnation
        self.addresses: list[SocketAddress] = []  # always empty: no node dials it
        self.after: list[Callable[[], None]] = []  # called when messages may have arrived or be due
        self._options = options
        dead_us = 3 * options.overlay.ping_us
        tiers = TierOptions(pulse_us=dead_us // _PULSES, dead_us=dead_us)
        self.child = Child(node, incarnation, tiers)
        self._bridge = ParentBridge(broker, clock_us, self.child)
        self.tiers: TierLinks = self.child.tiers
        self.services: list[TierService] = []
        self.net_map = None  # only nodes of the backbone know the network
        self.net_history = None
        self._broker = broker
        self._server = server
        self._clock = clock
        self._isolation = FaultIsolation(log)
        self._neighbours: LinkManager | None = None
        self._local = LocalIdentity(
            node=node,
            incarnation=incarnation,
            key=SharedKey(options.key),
            features={SECONDARY: 1},
        )

    async def start(self, stack: AsyncExitStack) -> None:
        """Link with the parents; `stack` ends the links."""
        transports = LinkTransports(self._options.transports)
        codec = LinkCodec(LinkMessage)
        self._neighbours = LinkManager(
            self, self._local, codec, transports.of, on_link=self._on_link
        )
        stack.push_async_callback(self._neighbours.close)
        stack.push_async_callback(self._leave)
        self._broker.bridge = self._bridge
        self._bridge.start()
        for address in self._options.neighbours:
            self._neighbours.dial(address)
        self._neighbours.due()

    def turn(self) -> None:
        """Schedule the links if there is something to send."""
        child = self.child
        if child.deliveries:
            self._run_after()
        due_us = self.next_due_us()
        has_work = child.sends or child.ready or (due_us is not None and due_us <= clock_us())
        if self._neighbours is not None and has_work:
            self._neighbours.due()

    # -------------------------------------------------------------------------- called by the links

    @property
    def sends(self) -> list[tuple[str, Any]]:
        return list(self.child.sends)

    @sends.setter
    def sends(self, sends: list[tuple[str, Any]]) -> None:
        self.child.sends[:] = sends

    def link_up(self, neighbour: str, now_us: int) -> None:
        assert self._neighbours is not None
        address = self._neighbours.dialled_at(neighbour)
        order = self._options.neighbours
        rank = order.index(address) if address in order else len(order)
        self.child.link_up(neighbour, rank, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.child.link_down(neighbour, now_us)

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self.child.receive(neighbour, message, now_us)
        self._run_after()

    def advance(self, now_us: int) -> None:
        self.child.advance(now_us)
        for service in self.services:
            service.advance(now_us)
        self._run_after()

    def next_due_us(self) -> int | None:
        dues = [self.child.next_due_us(), *(each.next_due_us() for each in self.services)]
        return min((due_us for due_us in dues if due_us is not None), default=None)

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        self.child.ready.clear()  # all links are polled anyway
        taken = self.child.take(neighbour, bytes_wanted, clock_us())
        if taken:
            self._broker.context.now_ms = self._clock.now_ms()
            for up in taken:
                self._bridge.on_sent(neighbour, up.event)
        return [_encode(each) for each in taken]

    def take_datagrams(self, neighbour: str, bytes_wanted: int, message_bytes: int) -> list[bytes]:  # noqa: ARG002
        return []

    def _run_after(self) -> None:
        child, bridge = self.child, self._bridge
        if child.deliveries or child.drops:
            self._broker.context.now_ms = self._clock.now_ms()
            losses = list(child.drops)
            child.drops.clear()
            counters = self._broker.context.counters
            self._isolation.deliver(child.deliveries, bridge.on_event, counters)
            for event, cause in losses:
                bridge.on_dropped(event, cause)
            self._server.due()
        if bridge.paused:
            bridge.resume_publishers()
            self._server.due()
        for each in self.after:
            self._isolation.run("parent link: follow-up failed", each)

    async def _leave(self) -> None:
        """Wait, with a timeout, until the active parent has all waiting events, then leave."""
        assert self._neighbours is not None
        child = self.child
        until_us = clock_us() + round(_LEAVE_S * 1e6)
        while child.selector.active and child.status().waiting and clock_us() < until_us:
            await asyncio.sleep(0.01)
        child.leave()
        self._neighbours.due()
        await asyncio.sleep(0.01)

    # --------------------------------------------------------------------------------------- status

    def status(self) -> NetStatus:
        """The parents, and problems of the links to them."""
        assert self._neighbours is not None
        links = self._neighbours.status()
        sent, received = links.traffic.sent.data, links.traffic.received.data
        tier = self.child.status()
        return NetStatus(
            node=self.child.name,
            nodes=(),
            links=(),
            channels=tuple(self.channel_statuses()),
            flows=(),
            arrivals=(),
            carried=TransitCounts(
                delivered=tier.delivered,
                sent=sent.messages,
                sent_bytes=sent.bytes,
                received=received.messages,
                received_bytes=received.bytes,
                lost=tier.lost,
            ),
            links_down=tuple(
                MissingLinkStatus(
                    address=each.address, node=each.node, problem=each.problem, remedy=each.remedy
                )
                for each in links.dials
                if each.problem
            ),
            tier=msgspec.structs.replace(tier, configured=len(self._options.neighbours)),
            interests_aggregated=self.child.interests_aggregated(),
        )

    def net_faults(self) -> NetFaults:
        """Parents without a link, and why."""
        links_down = [] if self._neighbours is None else self._neighbours.links_down()
        return NetFaults(links_down=links_down)

    def _on_link(self, node: str, is_up: bool) -> None:
        self._broker.context.changes.link_changed(node, is_up=is_up, now_ms=self._clock.now_ms())

    def links(self) -> tuple[LinkConnectionStatus, ...]:
        """Status and traffic of each link of this node."""
        return () if self._neighbours is None else self._neighbours.status().links

    def channel_statuses(self) -> list[ChannelStatus]:
        """Defined channels, as reported by the parent."""
        return [
            ChannelStatus(
                name=name,
                template=each.template,
                max_delay_us=each.max_delay_us,
                paths=each.paths,
                resiliency=each.resiliency,
                node=node,
                options=each.options,
            )
            for name, (each, node) in sorted(self.child.channel_cache.definitions.items())
        ]

    @property
    def templates(self) -> list[str]:
        return sorted(self.child.channel_cache.templates)

    def is_configured(self, name: str) -> bool:  # noqa: ARG002
        return False

    def problem_with_defining(self) -> str:
        """Why channels can't be defined here."""
        parents = ", ".join(each.name for each in self.child.status().parents) or "none yet"
        return (
            f"{self.child.name} is a secondary node: define channels at a backbone node "
            f"(its parents: {parents})"
        )

    def problem_with_options(self, definition: ChannelDefinition) -> tuple[str, str] | None:  # noqa: ARG002
        return None  # nothing is defined here

    def create_channel(self, definition: ChannelDefinition, *, replace: bool) -> str | None:  # noqa: ARG002
        return self.problem_with_defining()

    def delete_channel(self, name: str) -> str | None:  # noqa: ARG002
        return self.problem_with_defining()
