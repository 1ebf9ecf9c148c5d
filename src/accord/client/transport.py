"""Byte streams to a server: TCP, TLS and WebSocket, by the URL's scheme.

`Stream` is all that a session needs; a test may provide its own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from accord.client.address import Address
from accord.client.errors import ConnectionFailedError, wrong_protocol

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

READ_SIZE: Final = 256 * 1024
_MESSAGE_BYTES: Final = 300 << 20  # more than the largest packet
GOODBYE_S: Final = 2.0


class Stream(Protocol):
    """A connection. Opening one that is unavailable, and using a broken one, raise OSError."""

    async def read(self) -> bytes:
        """Read some bytes; none at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write, and return when the peer can take more."""
        ...

    async def close(self) -> None: ...


Transport = Callable[[Address], Awaitable[Stream]]


def transport_with(tls: ssl.SSLContext | None) -> Transport:
    """The transport for the address's scheme; `tls` replaces the system's trust store."""

    async def connect(address: Address) -> Stream:
        context = (tls or ssl.create_default_context()) if address.is_encrypted else None
        if address.scheme in ("ws", "wss"):
            return await _open_websocket(address, context)
        return await _open_tcp(address, context)

    return connect


async def _open_tcp(address: Address, context: ssl.SSLContext | None) -> Stream:
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, limit=READ_SIZE
    )
    return _TcpStream(reader, writer)


class _TcpStream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        return await self._reader.read(READ_SIZE)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        try:
            with suppress(OSError):
                async with asyncio.timeout(GOODBYE_S):
                    await self._writer.wait_closed()
        finally:
            self._writer.transport.abort()


async def _open_websocket(address: Address, context: ssl.SSLContext | None) -> Stream:
    from websockets.asyncio.client import connect  # noqa: PLC0415 - only where it is needed
    from websockets.exceptions import WebSocketException  # noqa: PLC0415
    from websockets.typing import Subprotocol  # noqa: PLC0415

    try:
        connection = await connect(
            address.url,
            subprotocols=[Subprotocol("mqtt")],
            ssl=context,
            compression=None,
            max_size=_MESSAGE_BYTES,
            ping_interval=None,  # MQTT has its own
            close_timeout=GOODBYE_S,
        )
    except WebSocketException as error:
        raise ConnectionFailedError(wrong_protocol(address.url, "WebSocket")) from error
    return _WebSocketStream(connection)


class _WebSocketStream:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def read(self) -> bytes:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        data: str | bytes = b""
        while not data:  # an empty message is not the end of the stream
            try:
                data = await self._connection.recv()
            except ConnectionClosed:
                return b""
        if isinstance(data, str):
            raise ConnectionResetError("expected binary WebSocket messages, got text")
        return data

    async def write(self, data: bytes) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

        try:
            await self._connection.send(data)
        except ConnectionClosed as error:
            raise ConnectionResetError(str(error)) from error

    async def close(self) -> None:
        await self._connection.close()
