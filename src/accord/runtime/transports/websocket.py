"""Links over WebSocket: the same bytes, in binary messages, behind asyncio's transports.

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
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import SplitResult

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import CONNECTING, OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from accord.runtime.transports.interface import IS_FORWARDED, Factory, Listener
from accord.runtime.transports.proxy import connect_through

if TYPE_CHECKING:
    from websockets.client import ClientProtocol
    from websockets.datastructures import Headers
    from websockets.server import ServerProtocol


SUBPROTOCOL: Final = Subprotocol("accord-link")
MESSAGE_BYTES: Final = 1 << 20
SILENT: Final = logging.getLogger("accord.websockets")
SILENT.setLevel(logging.CRITICAL)
_WRITTEN_BYTES: Final = 256 << 10  # per message
_UPGRADE_S: Final = 5.0
_CLOSE_S: Final = 2.0
# Bound on pongs to a peer that pings and does not read; links bound their own output.
_UNREAD_BYTES: Final = 16 << 20
_REGULAR: Final = (1000, 1001, 1005)
# Headers that proxies add, and nodes do not send.
_FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


class UpgradeLimiter(Protocol):
    """Counts and bounds pending upgrades."""

    @property
    def path(self) -> str: ...

    def begin_upgrade(self, accepting: AcceptedWebSocket) -> bool: ...
    def end_upgrade(self, accepting: AcceptedWebSocket, *, is_open: bool) -> None: ...


class WebSocketAdapter(asyncio.Transport):
    """The transport that a link sees: sends bytes in binary messages."""

    def __init__(
        self, owner: WebSocketConnection, raw: asyncio.Transport, *, is_forwarded: bool
    ) -> None:
        super().__init__({IS_FORWARDED: is_forwarded})
        self._owner = owner
        self._raw = raw

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == IS_FORWARDED:
            return super().get_extra_info(name)
        return self._raw.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        self._owner.write(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send a close frame; the other side's reply closes the connection."""
        self._owner.send_close()

    def close(self) -> None:
        self._owner.send_close()
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)


class WebSocketConnection(asyncio.Protocol):
    """Common base of both sides. `inner` is the link's protocol, once the connection is open."""

    def __init__(self, factory: Factory, socket: ServerProtocol | ClientProtocol) -> None:
        self.inner: asyncio.Protocol | None = None
        self._factory = factory
        self._socket = socket
        self._raw: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._socket.receive_data(data)
        for event in self._socket.events_received():
            if not isinstance(event, Frame):
                self._on_handshake(event)
            elif event.opcode in (Opcode.BINARY, Opcode.CONT):
                if self.inner is not None and event.data:
                    self.inner.data_received(bytes(event.data))
            elif event.opcode is Opcode.TEXT:
                self._socket.fail(1003, "links send binary messages")
                break
            elif event.opcode is Opcode.CLOSE and self.inner is not None:
                self.inner.eof_received()
        self._send()
        if self._raw is not None and self._raw.get_write_buffer_size() > _UNREAD_BYTES:
            self.abort()

    def eof_received(self) -> bool:
        self._socket.receive_eof()
        self._send()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._raw = None
        self._set_timer(0.0)
        if self.inner is not None:
            self.inner.connection_lost(error or self._failure())

    def pause_writing(self) -> None:
        if self.inner is not None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self.inner is not None:
            self.inner.resume_writing()

    def write(self, data: Any) -> None:
        view = memoryview(data)
        for at in range(0, len(view), _WRITTEN_BYTES):
            if self._socket.state is OPEN:
                self._socket.send_binary(view[at : at + _WRITTEN_BYTES])
        self._send()

    def send_close(self) -> None:
        if self._socket.state is OPEN:
            self._socket.send_close(1000)
            self._send()

    def abort(self) -> None:
        if self._raw is not None:
            self._raw.abort()

    def _on_handshake(self, event: Any) -> None:
        """Handle the other side's part of the upgrade."""
        raise NotImplementedError

    def _open(self, *, is_forwarded: bool) -> None:
        assert self._raw is not None
        self._set_timer(0.0)
        self.inner = self._factory()
        self.inner.connection_made(WebSocketAdapter(self, self._raw, is_forwarded=is_forwarded))

    def _send(self) -> None:
        raw = self._raw
        if raw is None or raw.is_closing():
            return
        for data in self._socket.data_to_send():
            if data:
                raw.write(data)
            else:
                raw.close()
        if self._socket.state is not CONNECTING and self._socket.close_expected():
            self._set_timer(_CLOSE_S)

    def _set_timer(self, wait_s: float) -> None:
        """Abort the connection after `wait_s`; 0 cancels."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_s:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.abort)

    def _failure(self) -> Exception | None:
        """The error of an irregular close, by either side."""
        close = self._socket.close_sent or self._socket.close_rcvd
        if close is None or close.code in _REGULAR:
            return None
        return ConnectionAbortedError(f"WebSocket {close}")


class AcceptedWebSocket(WebSocketConnection):
    """An accepted connection, from its upgrade request on."""

    def __init__(self, upgrades: UpgradeLimiter, factory: Factory, socket: ServerProtocol) -> None:
        super().__init__(factory, socket)
        self._upgrades = upgrades
        self._server_side = socket
        self._is_pending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._is_pending = self._upgrades.begin_upgrade(self)
        if self._is_pending:
            self._set_timer(_UPGRADE_S)
        else:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._end_pending(is_open=False)

    def _on_handshake(self, event: Any) -> None:
        socket = self._server_side
        if not isinstance(event, Request) or socket.eof_sent:
            return  # input after the request was already a reason to refuse it
        if event.path != self._upgrades.path:
            response = socket.reject(404, "no links here\n")
        elif event.headers.get_all("Origin"):
            response = socket.reject(403, "pages may not connect here\n")
        else:
            response = socket.accept(event)
        is_open = response.status_code == 101
        socket.send_response(response)
        self._send()
        if is_open and self._raw is not None and not self._raw.is_closing():
            self._end_pending(is_open=True)
            self._open(is_forwarded=_is_forwarded(event.headers))

    def _end_pending(self, *, is_open: bool) -> None:
        if self._is_pending:
            self._is_pending = False
            self._upgrades.end_upgrade(self, is_open=is_open)


class DialledWebSocket(WebSocketConnection):
    """A dialled connection; `opened` is set when it is open, or to the failure."""

    def __init__(self, factory: Factory, socket: ClientProtocol, *, is_forwarded: bool) -> None:
        super().__init__(factory, socket)
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._client_side = socket
        self._is_forwarded = is_forwarded

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._client_side.send_request(self._client_side.connect())
        self._send()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._client_side.handshake_exc is not None:
            self._fail(str(self._client_side.handshake_exc))

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._fail("the connection was closed during the upgrade")

    def abandon(self) -> None:
        self.opened.cancel()
        self.abort()

    def _on_handshake(self, event: Any) -> None:
        socket = self._client_side
        if socket.handshake_exc is not None:
            status = getattr(event, "status_code", 0)
            self._fail(f"no links of a node there (HTTP {status})")
        elif socket.subprotocol != SUBPROTOCOL:
            socket.fail(1002, "expected the links of a node")
            self._fail("no links of a node there")
        elif not self.opened.done():
            self._open(is_forwarded=self._is_forwarded)
            self.opened.set_result(None)

    def _fail(self, problem: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(problem))


def _is_forwarded(headers: Headers) -> bool:
    return any(headers.get_all(name) for name in _FORWARDED)


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
            dialing.abandon()
            raise

    # Called by pending upgrades.

    def begin_upgrade(self, accepting: AcceptedWebSocket) -> bool:
        """Register a pending upgrade; False if there are too many."""
        if len(self._pending) >= _PENDING:
            self.refused += 1
            return False
        self._pending[accepting] = None
        return True

    def end_upgrade(self, accepting: AcceptedWebSocket, *, is_open: bool) -> None:
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
