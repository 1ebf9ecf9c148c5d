"""Runs uvicorn in the node's own event loop, without disturbing what else runs there.

uvicorn's server is meant to own its process: here it gets no signals, listens where the node
chooses, and is started and stopped like every other component. Connections are limited in number,
and one that sends no request, or does not read the response, is closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from accord.runtime.addresses import SocketAddress, bound_address, listen_on

MAX_CONNECTIONS: Final = 200
IDLE_TIMEOUT_S: Final = 10.0
_GRACE_S: Final = 3


class HttpServer:
    """A running server; `address` is where it listens, also if the system chose the port."""

    def __init__(self, server: _Server, address: SocketAddress, task: asyncio.Task[None]) -> None:
        self.address = address
        self._server = server
        self._task = task

    async def stop(self) -> None:
        """Accept nothing new, give responses under way a moment, and stop."""
        self._server.stop()
        await self._task


async def serve(
    app: ASGIApp, address: SocketAddress, *, tls: ssl.SSLContext | None = None
) -> HttpServer:
    """Start to serve `app`. Raises `ListenError` if it cannot listen."""
    listener = listen_on(address)
    try:
        server = _Server(_configure(app, tls))
        task = asyncio.create_task(server.serve(sockets=[listener]), name="accord-http")
        started = asyncio.create_task(server.has_started.wait())
        await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            started.cancel()
            task.result()
    except BaseException:
        listener.close()
        raise
    return HttpServer(server, bound_address(listener), task)


def _configure(app: ASGIApp, tls: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=_BoundedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=_GRACE_S,
    )
    config.load()
    config.ssl = tls
    return config


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = asyncio.Event()
        self._should_stop = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._should_stop.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the node."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.has_started.set()

    async def main_loop(self) -> None:
        """Wait for the stop, instead of polling ten times a second as uvicorn does."""
        await self.on_tick(0)
        await self._should_stop.wait()


class _BoundedProtocol(H11Protocol):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seen: tuple[object, bool] | None = None
        self._check_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._check_timer = self.loop.call_later(IDLE_TIMEOUT_S, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
        super().connection_lost(exc)

    def _check(self) -> None:
        """Close the connection if it made no progress since the last check.

        Progress is a new request, or response data that the client read.
        """
        is_idle = bool(getattr(self.cycle, "response_complete", True))  # there may be no cycle yet
        seen = (self.cycle, is_idle)
        if (is_idle or self.flow.write_paused) and self._is_as_seen(seen):
            self.transport.abort()
            return
        self._seen = seen
        self._check_timer = self.loop.call_later(IDLE_TIMEOUT_S, self._check)

    def _is_as_seen(self, seen: tuple[object, bool]) -> bool:
        if self._seen is None:
            return seen[0] is None
        return self._seen[0] is seen[0] and self._seen[1] == seen[1]
