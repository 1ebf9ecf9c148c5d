"""A node's multicast group: beacons, events sent to several neighbours at once, and reception."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from accord.core.links.codec import LinkCodec
from accord.core.links.handshake import LocalIdentity
from accord.core.links.multicast_group import GroupDatagram, MulticastGroup
from accord.core.links.options import FrameCounts, LinkOptions, MulticastPort
from accord.runtime.addresses import ListenError, SocketAddress
from accord.runtime.neighbour_link import NeighbourLink
from accord.runtime.transports.udp import MulticastEndpoint, open_multicast

_PIECE_BYTES: Final = 64 << 10


class MulticastOptions(Struct, frozen=True, kw_only=True):
    """A group, and the address of the interface that reaches it; empty: any interface."""

    group: SocketAddress
    interface: str = ""
    hops: int = 1


class MulticastStatus(Struct, frozen=True, kw_only=True):
    """`reached` are the neighbours that confirm receiving this node's datagrams."""

    reached: tuple[str, ...]
    sent: FrameCounts
    received: FrameCounts
    refused: int
    repeated: int
    strangers: int


class MulticastLinks:
    """Driven by the link manager: `flush` is called once per turn, before links are flushed."""

    def __init__(
        self,
        port: MulticastPort,
        group: MulticastGroup,
        endpoint: MulticastEndpoint,
        *,
        beacon_us: int,
    ) -> None:
        self.group = group
        self.due_us = 0
        self.strangers = 0  # datagrams of nodes that are not linked, or not through this group
        self.repeated = 0
        # Addresses announced in beacons; and the callback for received beacons, with their host.
        self.addresses: Callable[[], tuple[str, ...]] = _none
        self.on_beacon: Callable[[str, tuple[str, ...], str], None] | None = None
        self.port = port
        self._endpoint = endpoint
        self._beacon_us = beacon_us
        self._reached: list[str] = []
        self._links: Mapping[str, NeighbourLink] = {}
        self._own = ""
        self._receive: Callable[[str, GroupDatagram], None] | None = None

    def start(
        self,
        own: str,
        links: Mapping[str, NeighbourLink],
        receive: Callable[[str, GroupDatagram], None],
    ) -> None:
        """`links` are those of the node `own`; `receive` is called with their datagrams."""
        self._own = own
        self._links = links
        self._receive = receive
        self.port.set_group_reach([], self.group.message_bytes)
        self._endpoint.receive = self._on_datagram

    def stop(self) -> None:
        self._endpoint.receive = None
        self._endpoint.close()

    def flush(self, now_us: int) -> None:
        self._set_reached([] if self._endpoint.is_full else self._receivers(now_us))
        if now_us >= self.due_us:
            self.due_us = now_us + self._beacon_us
            self._endpoint.send(self.group.beacon(self.addresses()))
        while messages := self.port.take_multicast(_PIECE_BYTES):
            for datagram in self.group.pack(messages):
                self._endpoint.send(datagram)
            if self._endpoint.is_full:
                self._set_reached([])  # the rest is sent over the links

    def status(self) -> MulticastStatus:
        return MulticastStatus(
            reached=tuple(self._reached),
            sent=self.group.sent,
            received=self.group.received,
            refused=self.group.refused,
            repeated=self.repeated,
            strangers=self.strangers,
        )

    def _receivers(self, now_us: int) -> list[str]:
        found = []
        for node, link in self._links.items():
            end = None if link.session is None else link.session.group_peer
            if end is not None and end.is_open(now_us):
                found.append(node)
        return found

    def _set_reached(self, neighbours: list[str]) -> None:
        if neighbours != self._reached:
            self._reached = neighbours
            self.port.set_group_reach(neighbours, self.group.message_bytes)

    def _on_datagram(self, data: bytes, host: str) -> None:
        datagram = self.group.open(data)
        if datagram is None or datagram.header.sender == self._own:
            return
        head = datagram.header
        if head.addresses and self.on_beacon is not None:
            self.on_beacon(head.sender, head.addresses, host)
        link = self._links.get(head.sender)
        session = None if link is None else link.session
        if (
            session is None
            or session.group_peer is None
            or session.neighbour is None
            or session.neighbour.incarnation != head.incarnation
        ):
            self.strangers += 1
        elif not session.group_peer.admit(datagram.number):
            self.repeated += 1
        elif self._receive is not None:
            self._receive(head.sender, datagram)


def _none() -> tuple[str, ...]:
    return ()


async def open_group(
    port: MulticastPort, codec: LinkCodec, local: LocalIdentity, options: MulticastOptions
) -> MulticastLinks:
    """Raises ListenError if this machine can't join the group."""
    address, links = options.group, LinkOptions()
    try:
        endpoint = await open_multicast(
            address.host, address.port, interface=options.interface, hops=options.hops
        )
    except OSError as error:
        raise ListenError(address, (error.strerror or str(error)).lower()) from None
    group = MulticastGroup(
        local.key.group_key(str(address)),
        codec,
        node=local.node,
        incarnation=local.incarnation,
        datagram_bytes=links.datagram_bytes,
    )
    return MulticastLinks(port, group, endpoint, beacon_us=links.report_us)
