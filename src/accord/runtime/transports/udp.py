"""Datagrams of all links of a node, over one socket.

A datagram is assigned to a link by its first bytes, not by its source address: an address proves
nothing and may change. Datagrams of no link are counted and dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from accord.core.links.keys import ID_BYTES

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
