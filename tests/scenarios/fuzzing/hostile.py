"""Sends streams over many connections at once, and sees that none of them gets stuck."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, cast

from tests.brokers import HOST
from tests.scenarios.fuzzing.streams import CLOSE, HALF_CLOSE, RESET, Stream

STUCK_S: Final = 25.0  # longer than any time the node gives a connection
_DEAF_S: Final = 0.05  # before one that does not read learns that it was closed
_RST: Final = struct.pack("ii", 1, 0)
_SOURCES: Final = 200  # addresses to connect from: one has too few ports


class Hostile(asyncio.Protocol):
    """One connection; `closed` is done when the node closed it."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, _: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


async def send(stream: Stream, port: int, number: int) -> str | None:
    """Do what `stream` says; tells what is wrong where the node does not end it."""
    loop = asyncio.get_running_loop()
    raw = socket.socket()
    raw.setblocking(False)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    raw.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    if not stream.is_reading:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    raw.bind((f"127.0.1.{number % _SOURCES + 1}", 0))
    try:
        await loop.sock_connect(raw, (HOST, port))
    except OSError as error:
        raw.close()
        return f"can't connect: {error}"
    _, protocol = await loop.create_connection(Hostile, sock=raw)
    transport = protocol.transport
    assert transport is not None
    if not stream.is_reading:
        transport.pause_reading()
    for piece in stream.pieces:
        if transport.is_closing():
            break
        transport.write(piece)
        if stream.pauses:
            await asyncio.sleep(0)
    try:
        return await _end(stream, protocol, transport, raw)
    finally:
        transport.abort()


async def _end(
    stream: Stream, protocol: Hostile, transport: asyncio.Transport, raw: socket.socket
) -> str | None:
    if stream.ending in (CLOSE, RESET):
        await asyncio.sleep(0.001)
        if stream.ending == RESET and not transport.is_closing():
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        transport.close() if stream.ending == CLOSE else transport.abort()
        return None
    if stream.ending == HALF_CLOSE and not transport.is_closing():
        transport.write_eof()
    if not stream.is_reading:
        await asyncio.sleep(_DEAF_S)
        transport.resume_reading()
    try:
        await asyncio.wait_for(asyncio.shield(protocol.closed), STUCK_S)
    except TimeoutError:
        return f"stuck: the node did not close it within {STUCK_S:.0f} s after {stream.ending}"
    return None
