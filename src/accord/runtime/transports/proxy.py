"""Connections through an HTTP proxy, by the CONNECT method."""

from __future__ import annotations

import asyncio
import base64
from typing import Final, cast
from urllib.parse import SplitResult, unquote, urlsplit

_REPLY_BYTES: Final = 16 << 10
_END: Final = b"\r\n\r\n"
_PORT: Final = 3128


def parse_proxy(text: str) -> SplitResult | None:
    """Parse http://[USER:PASSWORD@]HOST:PORT; None if invalid."""
    try:
        parts = urlsplit(text.strip())
        is_proxy = parts.scheme == "http" and parts.hostname and parts.path in ("", "/")
        is_plain = text.isascii() and text.isprintable() and parts.port != 0
    except ValueError:
        return None
    return parts if is_proxy and is_plain and not parts.query else None


async def connect_through(proxy: SplitResult, host: str, port: int) -> asyncio.Transport:
    """A connection to `host`, with reading paused. Raises OSError with the problem."""
    loop = asyncio.get_running_loop()
    asking = _Asking(_request(proxy, host, port))
    assert proxy.hostname is not None
    try:
        await loop.create_connection(lambda: asking, proxy.hostname, proxy.port or _PORT)
        return await asking.connected
    except BaseException:
        asking.abandon()
        raise


class _Asking(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.connected: asyncio.Future[asyncio.Transport] = loop.create_future()
        self._request = request
        self._reply = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._reply += data
        head, end, rest = self._reply.partition(_END)
        if self.connected.done() or self._transport is None:
            return
        if not end:
            if len(self._reply) > _REPLY_BYTES:
                self._fail("the proxy does not speak HTTP")
            return
        words = head.split(b"\r\n", 1)[0].split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
            self._fail("the proxy does not speak HTTP")
        elif words[1] != b"200":
            self._fail(f"the proxy refuses (HTTP {words[1].decode('latin-1')[:3]})")
        elif rest:
            self._fail("the proxy sent unexpected data")  # the dialling side sends first
        else:
            self._transport.pause_reading()
            self.connected.set_result(self._transport)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._fail("the proxy closed the connection")

    def abandon(self) -> None:
        self.connected.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, problem: str) -> None:
        if not self.connected.done():
            self.connected.set_exception(ConnectionError(problem))


def _request(proxy: SplitResult, host: str, port: int) -> bytes:
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if proxy.username is not None:
        words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(words.encode()).decode()}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
