"""Links over WebSocket: the same bytes, in binary messages.

This passes where only HTTP does: through reverse proxies to a listening node, and through forward
proxies (CONNECT) from a dialling one. It is transparent to the link: the same byte stream arrives,
possibly split differently.

A client requesting an upgrade is unauthenticated. It has a few seconds, the number of pending
upgrades is bounded, and nothing reaches the links before the upgrade. Web pages are rejected,
whatever their origin: browsers send an Origin header, nodes do not. A proxy on the same machine
would make its clients look local, so a forwarded connection never counts as local.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final
from urllib.parse import SplitResult

from websockets.client import ClientProtocol
from websockets.server import ServerProtocol
from websockets.uri import WebSocketURI

from accord.runtime.transports.interface import Factory, Listener
from accord.runtime.transports.proxy import connect_through
from accord.runtime.transports.websocket_connection import (
    MESSAGE_BYTES,
    SILENT,
    SUBPROTOCOL,
    AcceptedWebSocket,
    DialledWebSocket,
)

_HANDSHAKE_S: Final = 5.0
_BACKLOG: Final = 128
_PENDING: Final = 128


class WebSocketTransport:
    """One path of a server. TLS if there are contexts; `proxy` is an http:// URL, or None."""

    def __init__(
        self,
        path: str = "/",
        *,
        accepting: ssl.SSLContext | None = None,
        dialing: ssl.SSLContext | None = None,
        proxy: SplitResult | None = None,
    ) -> None:
        self.refused = 0  # invalid requests, and those beyond the limit of pending ones
        self._path = path or "/"
        self._accepting = accepting
        self._dialing = dialing
        self._proxy = proxy
        self._pending: dict[AcceptedWebSocket, None] = {}

    async def listen(self, host: str, port: int, factory: Factory) -> Listener:
        server = await asyncio.get_running_loop().create_server(
            lambda: AcceptedWebSocket(self, factory, self._server_side()),
            host,
            port,
            ssl=self._accepting,
            ssl_handshake_timeout=None if self._accepting is None else _HANDSHAKE_S,
            backlog=_BACKLOG,
        )
        return _WebSocketListener(server, self._pending)

    async def dial(self, host: str, port: int, factory: Factory) -> None:
        """Raises OSError on failure, also if the server is no node."""
        uri = WebSocketURI(self._dialing is not None, host, port, self._path, "")
        client = ClientProtocol(
            uri, subprotocols=[SUBPROTOCOL], max_size=MESSAGE_BYTES, logger=SILENT
        )
        dialing = DialledWebSocket(factory, client, is_forwarded=self._proxy is not None)
        try:
            await self._connect(dialing, host, port)
            await dialing.opened
        except BaseException:
            dialing.give_up()
            raise

    # Called by pending upgrades.

    def came(self, accepting: AcceptedWebSocket) -> bool:
        """Register a pending upgrade; False if there are too many."""
        if len(self._pending) >= _PENDING:
            self.refused += 1
            return False
        self._pending[accepting] = None
        return True

    def went(self, accepting: AcceptedWebSocket, *, is_open: bool) -> None:
        self._pending.pop(accepting, None)
        self.refused += not is_open

    async def _connect(self, dialing: DialledWebSocket, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        if self._proxy is None:
            await loop.create_connection(
                lambda: dialing,
                host,
                port,
                ssl=self._dialing,
                ssl_handshake_timeout=None if self._dialing is None else _HANDSHAKE_S,
            )
            return
        raw = await connect_through(self._proxy, host, port)
        try:
            if self._dialing is not None:
                encrypted: Any = await loop.start_tls(
                    raw,
                    raw.get_protocol(),
                    self._dialing,
                    server_hostname=host,
                    ssl_handshake_timeout=_HANDSHAKE_S,
                )
                raw = encrypted
        except BaseException:
            raw.abort()
            raise
        raw.set_protocol(dialing)
        dialing.connection_made(raw)
        raw.resume_reading()

    def _server_side(self) -> ServerProtocol:
        return ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=MESSAGE_BYTES, logger=SILENT)

    @property
    def path(self) -> str:
        return self._path


class _WebSocketListener:
    def __init__(self, server: asyncio.Server, pending: dict[AcceptedWebSocket, None]) -> None:
        self._server = server
        self._pending = pending
        self.host, self.port = server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        self._server.close()
        for each in list(self._pending):
            each.abort()
