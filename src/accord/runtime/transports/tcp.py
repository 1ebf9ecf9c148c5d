"""Links over TCP, with TLS if there are contexts."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from accord.runtime.transports.interface import Factory, Listener

_HANDSHAKE_S: Final = 5.0
_BACKLOG: Final = 128


class TcpTransport:
    """`accepting` is the TLS context for accepted connections, `dialing` for dialled ones."""

    def __init__(
        self, *, accepting: ssl.SSLContext | None = None, dialing: ssl.SSLContext | None = None
    ) -> None:
        self._accepting = accepting
        self._dialing = dialing

    async def listen(self, host: str, port: int, factory: Factory) -> Listener:
        server = await asyncio.get_running_loop().create_server(
            factory,
            host,
            port,
            ssl=self._accepting,
            ssl_handshake_timeout=_timeout(self._accepting),
            backlog=_BACKLOG,
        )
        return _TcpListener(server)

    async def dial(self, host: str, port: int, factory: Factory) -> None:
        await asyncio.get_running_loop().create_connection(
            factory,
            host,
            port,
            ssl=self._dialing,
            ssl_handshake_timeout=_timeout(self._dialing),
        )


class _TcpListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.host, self.port = server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        self._server.close()


def _timeout(context: ssl.SSLContext | None) -> float | None:
    return None if context is None else _HANDSHAKE_S
