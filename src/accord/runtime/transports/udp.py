"""Datagrams of a node's links: unicast and IPv4 multicast, each over one socket.

A datagram is assigned to a link by its first bytes, not by its source address: an address proves
nothing and may change. Datagrams of no link are counted and dropped.

Several nodes on one machine may join the same multicast group: each gets its own copy of every
datagram, including its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

from accord.core.links.handshake import ID_BYTES

# Maximum waiting for the kernel; rarely reached.
_WAITING_BYTES: Final = 256 << 10


class DatagramEndpoint(asyncio.DatagramProtocol):
    """One datagram socket, and how much waits to be sent by it."""

    def __init__(self) -> None:
        self._transport: Any = None  # a DatagramTransport, whose type lacks its write buffer

    @property
    def is_full(self) -> bool:
        """Whether another datagram would only wait here."""
        if self._transport is None:
            return True
        waiting: int = self._transport.get_write_buffer_size()
        return waiting >= _WAITING_BYTES

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None


class UdpEndpoint(DatagramEndpoint):
    """Created by `open_datagrams`."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown = 0  # datagrams of no link
        self.unreachable = 0  # datagrams refused by the network
        self._links: dict[bytes, Callable[[bytes], None]] = {}

    @property
    def port(self) -> int:
        port: int = self._transport.get_extra_info("sockname")[1]
        return port

    def add(self, id_: bytes, receive: Callable[[bytes], None]) -> None:
        """Pass datagrams that start with `id_` to `receive`."""
        self._links[id_] = receive

    def remove(self, id_: bytes) -> None:
        self._links.pop(id_, None)

    def send(self, datagram: bytes, host: str, port: int) -> None:
        if self.is_full:
            return  # lost, as datagrams may be
        try:
            self._transport.sendto(datagram, (host, port))
        except (OSError, ValueError):
            self.unreachable += 1

    def datagram_received(self, data: bytes, _: Any) -> None:
        receive = self._links.get(data[:ID_BYTES])
        if receive is None:
            self.unknown += 1
        else:
            receive(data)

    def error_received(self, _: Exception) -> None:
        self.unreachable += 1


async def open_datagrams(host: str, port: int = 0) -> UdpEndpoint:
    """Raises OSError on failure."""
    _, endpoint = await asyncio.get_running_loop().create_datagram_endpoint(
        UdpEndpoint, local_addr=(host, port)
    )
    return endpoint


_RECEIVE_BYTES: Final = 1 << 20


class MulticastEndpoint(DatagramEndpoint):
    """Created by `open_multicast`; `receive` gets each datagram with the host it came from."""

    def __init__(self, group: str, port: int) -> None:
        super().__init__()
        self.sent = 0
        self.failed = 0  # datagrams refused by the network or a full buffer
        self.receive: Callable[[bytes, str], None] | None = None
        self._destination = (group, port)

    def send(self, datagram: bytes) -> None:
        if self.is_full:
            self.failed += 1  # lost, as datagrams may be
            return
        try:
            self._transport.sendto(datagram, self._destination)
            self.sent += 1
        except (OSError, ValueError):
            self.failed += 1

    def datagram_received(self, data: bytes, address: Any) -> None:
        if self.receive is not None:
            self.receive(data, str(address[0]))

    def error_received(self, _: Exception) -> None:
        self.failed += 1


def is_group(host: str) -> bool:
    """Whether `host` is an IPv4 multicast address."""
    try:
        return ipaddress.IPv4Address(host).is_multicast
    except ValueError:
        return False


async def open_multicast(
    group: str, port: int, *, interface: str = "", hops: int = 1
) -> MulticastEndpoint:
    """`interface` is the address of a local interface; empty: the system chooses.

    Raises OSError on failure.
    """
    _, endpoint = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: MulticastEndpoint(group, port), sock=_socket(group, port, interface, hops)
    )
    return endpoint


def _socket(group: str, port: int, interface: str, hops: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "darwin":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        # Binding to the group excludes other datagrams to this port.
        made.bind((group if sys.platform != "win32" else "", port))
        by = socket.inet_aton(interface or "0.0.0.0")  # noqa: S104 - any
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + by)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, by)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
    except OSError:
        made.close()
        raise
    return made
