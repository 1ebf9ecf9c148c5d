"""A node among others: the overlay, driven by its links and by the clients of this node."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from accord.core.channels.channels import SHIPPED, Channels
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Message, Overlay
from accord.core.overlay.registry import ChannelDefinition
from accord.core.overlay.signals import Carried
from accord.core.overlay.status import ChannelStatus, NetStatus, UnlinkedStatus
from accord.core.overlay.watching import channel_statuses, net_status
from accord.edges.link.codec import LinkCodec
from accord.edges.link.handshake import Local
from accord.edges.link.keys import SharedKey
from accord.edges.mqtt.abroad import Abroad
from accord.edges.mqtt.broker import Broker
from accord.live.addresses import Address
from accord.live.clock import Clock
from accord.live.link_status import LinkStatus
from accord.live.logs import get_log
from accord.live.neighbour_tls import link_contexts
from accord.live.neighbours import Neighbours
from accord.live.sending import clock_us
from accord.live.server import Server
from accord.live.templates import installed_templates
from accord.live.tls import TlsFiles
from accord.transports.tcp import TcpTransport
from accord.transports.udp import open_datagrams

log = get_log(__name__)

CHANNELS: Final = "channels.json"


class NetOptions(Struct, frozen=True, kw_only=True):
    """`neighbours` are dialled, `key` is what all nodes share, `channels` are defined at once."""

    listen: tuple[Address, ...] = ()
    neighbours: tuple[Address, ...] = ()
    key: bytes = b""
    tls: TlsFiles | None = None
    overlay: OverlayOptions = OverlayOptions()
    channels: tuple[ChannelDefinition, ...] = ()


class Net:
    """What the links see of the overlay; what comes for local clients goes to the broker."""

    def __init__(  # noqa: PLR0913 - once per node
        self,
        options: NetOptions,
        broker: Broker,
        server: Server,
        clock: Clock,
        *,
        node: str,
        folder: Path | None,
    ) -> None:
        self.options = options
        self.addresses: list[Address] = []
        self.abroad = Abroad(broker, clock_us)
        incarnation = clock.now_ms()
        self.overlay = Overlay(node, incarnation, options.overlay, random.random, self.abroad.need)
        self.channels = Channels(self.overlay, {**installed_templates(), **SHIPPED})
        self.after: list[Callable[[], None]] = []  # called when something may have come or be due
        self._broker = broker
        self._server = server
        self._clock = clock
        self._file = None if folder is None else folder / CHANNELS
        self._neighbours: Neighbours | None = None
        self._local = Local(node=node, incarnation=incarnation, key=SharedKey(options.key))
        self._codec = LinkCodec(Message)
        self._encode = msgspec.msgpack.Encoder().encode

    async def start(self, stack: AsyncExitStack) -> None:
        """Join the others; `stack` leaves them again."""
        accepting, dialing = (None, None)
        if self.options.tls is not None:
            accepting, dialing = link_contexts(self.options.tls)
        transport = TcpTransport(accepting=accepting, dialing=dialing)
        endpoint = None
        if self.options.listen:
            endpoint = await open_datagrams(self.options.listen[0].host)
            stack.callback(endpoint.close)
        self._neighbours = Neighbours(self, self._local, self._codec, transport, endpoint=endpoint)
        stack.push_async_callback(self._neighbours.close)
        for address in self.options.listen:
            self.addresses.append(await self._neighbours.listen(address))
        for definition in (*self.options.channels, *self._read_channels()):
            if problem := self.overlay.registry.create(definition, replace=True):
                log.warning("a channel can't be defined", channel=definition.name, problem=problem)
        self._broker.abroad = self.abroad
        self.abroad.join(self.channels)
        for address in self.options.neighbours:
            self._neighbours.dial(address)
        self._neighbours.due()

    def turn(self) -> None:
        """See whether there is something for the links."""
        if self._neighbours is not None and self.overlay.has_work():
            self._neighbours.due()

    # ------------------------------------------------------------------------- as the links see it

    @property
    def sends(self) -> list[tuple[str, Any]]:
        return list(self.overlay.sends)

    @sends.setter
    def sends(self, sends: list[tuple[str, Any]]) -> None:
        self.overlay.sends[:] = sends

    def link_up(self, neighbour: str, now_us: int) -> None:
        self.overlay.link_up(neighbour, now_us)

    def link_down(self, neighbour: str, now_us: int) -> None:
        self.overlay.link_down(neighbour, now_us)

    def receive(self, neighbour: str, message: Any, now_us: int) -> None:
        self.overlay.receive(neighbour, message, now_us)
        if self.overlay.deliveries:
            self._hand_over()
        for each in self.after:
            each()

    def advance(self, now_us: int) -> None:
        self.channels.advance(now_us)
        for event, cause in self.overlay.losses:
            self.abroad.lost(event, cause)
        self.overlay.losses.clear()
        if self.overlay.deliveries:  # of templates that let events wait
            self._hand_over()
        for each in self.after:
            each()

    def next_due_us(self) -> int:
        return self.channels.next_due_us()

    def take(self, neighbour: str, bytes_wanted: int) -> list[bytes]:
        self.overlay.ready.clear()  # all links are asked
        taken = self.overlay.take(neighbour, bytes_wanted, clock_us())
        return self._encoded(neighbour, taken)

    def take_datagrams(self, neighbour: str, bytes_wanted: int, message_bytes: int) -> list[bytes]:
        taken = self.overlay.take_loose(neighbour, bytes_wanted, message_bytes, clock_us())
        return self._encoded(neighbour, taken)

    def _encoded(self, neighbour: str, events: list[Carried]) -> list[bytes]:
        if events:
            self._broker.hub.now_ms = self._clock.now_ms()
            for event in events:
                self.abroad.sent(neighbour, event)
        return [self._encode(each) for each in events]

    def _hand_over(self) -> None:
        self._broker.hub.now_ms = self._clock.now_ms()
        for event in self.overlay.deliveries:
            began_us = clock_us()
            self.abroad.arrived(event)
            self.overlay.processed(clock_us() - began_us)
        self.overlay.deliveries.clear()
        self._server.due()

    # ----------------------------------------------------------------------------- for who looks

    def status(self) -> NetStatus:
        """The whole, as this node knows it, and what is wrong with its own links."""
        known = net_status(self.overlay)
        if self._neighbours is None:
            return known
        links = self._neighbours.status()
        sent, received = links.traffic.sent, links.traffic.received
        carried = msgspec.structs.replace(
            known.carried,
            sent=sent.data.messages + sent.datagrams.messages,
            sent_bytes=sent.data.bytes + sent.datagrams.bytes,
            received=received.data.messages + received.datagrams.messages,
            received_bytes=received.data.bytes + received.datagrams.bytes,
        )
        unlinked = tuple(
            UnlinkedStatus(
                address=each.address, node=each.node, problem=each.problem, remedy=each.remedy
            )
            for each in links.dials
            if each.problem
        )
        return msgspec.structs.replace(known, carried=carried, unlinked=unlinked)

    def links(self) -> tuple[LinkStatus, ...]:
        """What each link of this node has carried."""
        return () if self._neighbours is None else self._neighbours.status().links

    def channel_statuses(self) -> list[ChannelStatus]:
        """All channels that are defined, by name."""
        return channel_statuses(self.overlay)

    @property
    def templates(self) -> list[str]:
        """Those that channels can be bound to at this node."""
        return list(self.channels.templates)

    # ------------------------------------------------------------------------------------ channels

    def create_channel(self, definition: ChannelDefinition, *, replace: bool) -> str | None:
        """Define a channel for all nodes; gives why not, or None."""
        created_us = self._clock.now_ms() * 1_000
        made = msgspec.structs.replace(definition, created_us=created_us)
        problem = self.overlay.registry.create(made, replace=replace)
        if problem is None:
            self._write_channels()
            self.turn()
        return problem

    def delete_channel(self, name: str) -> str | None:
        problem = self.overlay.registry.delete(name)
        if problem is None:
            self._write_channels()
            self.turn()
        return problem

    def _read_channels(self) -> list[ChannelDefinition]:
        """What was defined here at run time; a damaged file is told and left alone."""
        if self._file is None or not self._file.exists():
            return []
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[ChannelDefinition])
        except (OSError, msgspec.DecodeError) as error:
            log.warning("can't read the channels", file=str(self._file), problem=str(error))
            return []

    def _write_channels(self) -> None:
        if self._file is None:
            return
        own = [
            each
            for each in self.overlay.registry.all()
            if self.overlay.registry.origin_of(each.name) == self.overlay.name
        ]
        unfinished = self._file.with_suffix(".tmp")
        try:
            unfinished.write_bytes(msgspec.json.encode(own))
            unfinished.replace(self._file)
        except OSError as error:
            log.warning("can't write the channels", file=str(self._file), problem=str(error))
