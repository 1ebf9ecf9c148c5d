"""MQTT over WebSocket, and the origins of web pages that may use it.

Connections are the same, with their bytes in binary WebSocket messages. The standard lets a message
hold any part of the byte stream, and clients may send theirs so. They receive one packet per
message: some (Paho C 1.3) do not look for a second one.

A page of any site, in a browser on this machine, can open a WebSocket to a loopback address. If
clients need no password, only pages of this machine and of configured sites are accepted.

Browsers send the origin with each cross-site request: scheme, host and port of the page's site, or
`null` (some: `file://`) for a page without one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Final, cast
from urllib.parse import urlsplit

from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from accord.core.mqtt.wire import read_varint
from accord.runtime.addresses import SocketAddress, parse_address
from accord.runtime.server import MqttProtocol, Server

ANY: Final = "*"
_WITHOUT_SITE: Final = ("null", "file://")
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_PORTS: Final = {"http": ":80", "https": ":443"}


def parse_origin(text: str) -> str | None:
    """The origin as browsers write it; None if invalid."""
    if text in (ANY, *_WITHOUT_SITE):
        return text
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        return None
    scheme, host, port = found.groups()
    return f"{scheme}://{host}{'' if port in (None, _PORTS.get(scheme)) else port}"


def is_named(origin: str, origins: tuple[str, ...]) -> bool:
    return ANY in origins or origin.lower() in origins


def is_of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        return False
    return host is not None and SocketAddress(host, 0).is_loopback


def is_same_origin(origin: str, host: str) -> bool:
    """Whether a page of `origin` was served at the `Host` that a request names."""
    return bool(host) and origin.partition("://")[2].lower() == host.lower()


def is_local_host(host: str) -> bool:
    """Whether a `Host` names this machine, with or without a port."""
    address = parse_address(host) or parse_address(f"{host}:80")
    return address is not None and SocketAddress(address.host.lower(), 80).is_loopback


_OTHER_SITE: Final = (
    403,
    "pages of other sites may not connect here, unless [listen] origins has them\n",
)
_OTHER_HOST: Final = (421, "expected to be addressed as localhost, 127.0.0.1 or [::1]\n")
_SUBPROTOCOLS: Final = (Subprotocol("mqtt"), Subprotocol("mqttv3.1"))
_UNREAD_BYTES: Final = 4_000_000
_SILENT: Final = logging.getLogger("accord.websockets")
_SILENT.setLevel(logging.CRITICAL)


class WebSocketProtocol(MqttProtocol):
    __slots__ = ("_is_open", "_origins", "_raw", "_socket")

    def __init__(self, server: Server, *, origins: tuple[str, ...]) -> None:
        """`origins` are those of pages that may connect, beside pages of this machine."""
        super().__init__(server)
        self._origins = origins
        self._is_open = False
        self._raw: asyncio.Transport | None = None
        self._socket = ServerProtocol(
            subprotocols=_SUBPROTOCOLS,
            max_size=server.broker.limits.packet_bytes,
            logger=_SILENT,
            select_subprotocol=lambda _, offered: next(
                (each for each in _SUBPROTOCOLS if each in offered), None
            ),
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._raw = cast("asyncio.Transport", transport)

    def _enable_cut_through(self) -> None:
        """No cut-through: output has to be framed as messages first."""

    def data_received(self, data: bytes) -> None:
        self._socket.receive_data(data)
        for event in self._socket.events_received():
            if isinstance(event, Request):
                self._reply(event)
            elif not isinstance(event, Frame):
                continue
            elif event.opcode in (Opcode.BINARY, Opcode.CONT) and self._is_open:
                super().data_received(bytes(event.data))
            elif event.opcode is Opcode.TEXT:
                self._socket.fail(1003, "MQTT is sent in binary messages")
        self._send()
        if self._raw is not None and self._raw.get_write_buffer_size() > _UNREAD_BYTES:
            self.abort()  # it sends pings and does not read the pongs

    def eof_received(self) -> bool:
        self._socket.receive_eof()
        self._send()
        return super().eof_received()

    def write(self, frames: list[bytes]) -> int:
        if self._socket.state is not OPEN:
            return 0
        data = b"".join(frames)
        size = len(data)
        self._server.broker.context.counters.bytes_sent += size
        at = 0
        while at < size:
            length, body = read_varint(data, at + 1, size)
            self._socket.send_binary(data[at : body + length])
            at = body + length
        self._send()
        return size

    def flush(self) -> None:
        if self._is_open or (self._connection is not None and self._connection.is_closing):
            super().flush()

    def finish(self) -> None:
        if self._socket.state is OPEN:
            self._socket.send_close(1000)
            self._send()
        super().finish()

    def _reply(self, request: Request) -> None:
        if self._socket.eof_sent:
            return  # input after the request was already a reason to refuse it
        response = self._socket.accept(request)
        if response.status_code == 101 and (refusal := self._refusal(request)) is not None:
            response = self._socket.reject(*refusal)
        self._socket.send_response(response)
        self._is_open = _is_accepted(response)

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        """Status and text with which a connection is refused; None if it is welcome."""
        origin = request.headers.get("Origin")
        return None if origin is None or self._is_welcome(origin, request) else _OTHER_SITE

    def _is_welcome(self, origin: str, _request: Request) -> bool:
        return is_named(origin, self._origins) or is_of_this_machine(origin)

    def _send(self) -> None:
        transport = self._raw
        if transport is None or transport.is_closing():
            return
        parts = self._socket.data_to_send()
        if any(parts):
            transport.write(b"".join(parts))
        if b"" in parts:
            transport.close()
        if self._socket.close_expected():
            self._server.start_close_timeout(self)


class PageWebSocketProtocol(WebSocketProtocol):
    """A connection that the HTTP listener hands over: of a page of the node, as it serves them.

    Accepts pages of the same origin and of configured sites; and clients that are no pages.
    """

    __slots__ = ("_is_loopback",)

    def __init__(self, server: Server, *, origins: tuple[str, ...], is_loopback: bool) -> None:
        super().__init__(server, origins=origins)
        self._is_loopback = is_loopback

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        if self._is_loopback and not is_local_host(request.headers.get("Host", "")):
            return _OTHER_HOST
        return super()._refusal(request)

    def _is_welcome(self, origin: str, request: Request) -> bool:
        return is_named(origin, self._origins) or is_same_origin(
            origin, request.headers.get("Host", "")
        )


def _is_accepted(response: Response) -> bool:
    return response.status_code == 101
