"""Runs uvicorn in the node's own event loop, without disturbing what else runs there.

uvicorn's server is meant to own its process: here it gets no signals, listens where the node
chooses, and is started and stopped like every other component. Connections are limited in number,
and one that sends no request, or does not read the response, is closed. So is a WebSocket whose
client does not read for a while: it holds little until then, because writing waits for the client.

A WebSocket at `/mqtt` carries MQTT: its connection is handed over to the node's MQTT server, which
takes it through the handshake and counts and limits it among its own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.protocol import State

from accord.operations.operation import PROBLEM, Problem
from accord.runtime.addresses import SocketAddress, bound_address, listen_on

if TYPE_CHECKING:
    import h11
    from uvicorn._types import ASGISendEvent

MAX_CONNECTIONS: Final = 400
IDLE_TIMEOUT_S: Final = 10.0
MQTT_PATH: Final = "/mqtt"
READ_TIMEOUT_S: Final = 30.0
MAX_MESSAGE_BYTES: Final = 65_536
# Of a WebSocket, in the process and in the kernel: a client that stops to read is noticed early.
_WRITE_BUFFER_BYTES: Final = 65_536
_MAX_UNREAD_BYTES: Final = 786_432  # a state, what may be buffered before it, and some pongs
_MAX_QUEUED: Final = 256  # messages of one read
_MAX_FRAGMENTS: Final = 256
_PING_S: Final = 20.0
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
    app: ASGIApp,
    address: SocketAddress,
    *,
    tls: ssl.SSLContext | None = None,
    mqtt: Callable[[], asyncio.Protocol] | None = None,
) -> HttpServer:
    """Start to serve `app`, and connections at `/mqtt` by the protocols that `mqtt` makes.

    Raises `ListenError` if it cannot listen.
    """
    listener = listen_on(address)
    try:
        server = _Server(_configure(app, tls, mqtt))
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


class _Config(uvicorn.Config):
    mqtt: Callable[[], asyncio.Protocol] | None = None


def _configure(
    app: ASGIApp, tls: ssl.SSLContext | None, mqtt: Callable[[], asyncio.Protocol] | None
) -> uvicorn.Config:
    config = _Config(
        app,
        http=_BoundedProtocol,
        ws=_BoundedWebSocket,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=_PING_S,
        ws_ping_timeout=_PING_S,
        ws_per_message_deflate=False,  # costs more than loopback and local networks save
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
    config.mqtt = mqtt
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
        self._stop_checks()
        super().connection_lost(exc)

    def _should_upgrade_to_ws(self) -> bool:
        is_get = self.scope["method"] == "GET"  # others would never be answered
        return is_get and (self._is_mqtt() or super()._should_upgrade_to_ws())

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if self._is_mqtt():
            self._hand_over(event)
        else:
            self._stop_checks()  # the connection has another protocol now
            super().handle_websocket_upgrade(event)

    def _is_mqtt(self) -> bool:
        is_there = self.scope["path"] == MQTT_PATH and self.scope["method"] == "GET"
        return is_there and self._make_mqtt() is not None

    def _make_mqtt(self) -> Callable[[], asyncio.Protocol] | None:
        return getattr(self.config, "mqtt", None)

    def _hand_over(self, event: h11.Request) -> None:
        """Let MQTT have the connection, from this request on."""
        make = self._make_mqtt()
        assert make is not None
        self.connections.discard(self)
        self._unset_keepalive_if_required()
        self._stop_checks()
        self.flow.resume_reading()
        request = b"%b %b HTTP/%b\r\n" % (event.method, event.target, event.http_version)
        headers = b"".join(b"%b: %b\r\n" % header for header in event.headers)
        later, _ = self.conn.trailing_data  # what came with the request
        protocol = make()
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        if not self.transport.is_closing():
            protocol.data_received(request + headers + b"\r\n" + later)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or too long a line, as every other problem."""
        body = msgspec.json.encode(Problem(status=400, title="Bad Request", detail=msg))
        head = (
            "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n"
            f"Content-Type: {PROBLEM}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _stop_checks(self) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()

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


class _BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that is closed if its client neither reads nor replies to pings.

    So is one that sends more than is taken: requests, fragments of one, pings.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        link = transport.get_extra_info("socket")
        if link is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WRITE_BUFFER_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_read_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_read_timer()
        super().resume_writing()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < _MAX_FRAGMENTS:
            super().handle_cont(event)
        else:
            self.transport.abort()

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self.transport.abort()

    def send_receive_event_to_app(self) -> None:
        if self.queue.qsize() < _MAX_QUEUED:
            super().send_receive_event_to_app()
        else:
            self.transport.abort()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # by a refusal, which is no error of the application

    def shutdown(self) -> None:
        if self.handshake_complete and self.conn.state is not State.OPEN:
            self.transport.close()  # the client closes it already: there is nothing left to say
        else:
            super().shutdown()

    def keepalive_timeout(self) -> None:
        """Closing would wait for the client to read."""
        super().keepalive_timeout()
        self.transport.abort()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
