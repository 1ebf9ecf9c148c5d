"""Links over WebSocket: the same bytes, in binary messages.

It gets through where only HTTP does: by reverse proxies to a node that listens, by forward proxies
(CONNECT) from one that dials. The other end of a link sees nothing of it: what is written here
comes out there, cut elsewhere.

Who asks for an upgrade is nobody yet. It has a few seconds for that, only so many may try at a
time, and nothing of them reaches the links before. Pages in browsers are sent away, whatever they
come from: they say where they come from, and nodes don't. A proxy on the same machine would make
whoever it lets in look like a node of this machine; so what was forwarded never counts as that.
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
    """One place on a server. TLS where there are contexts; `proxy` is an http:// URL, or None."""

    def __init__(
        self,
        path: str = "/",
        *,
        accepting: ssl.SSLContext | None = None,
        dialing: ssl.SSLContext | None = None,
        proxy: SplitResult | None = None,
    ) -> None:
        self.refused = 0  # requests that were none, or came when too many others did
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
        """OSError also where something answers that is no node."""
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

    # What those who ask for an upgrade tell.

    def came(self, accepting: AcceptedWebSocket) -> bool:
        """Whether another one may try."""
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
