"""Dials neighbours: an address until there is a link, and again with backoff when it ends.

The scheme of the address selects the transport.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import SplitResult

from msgspec import Struct

from accord.client.driver import Backoff
from accord.core.links.errors import CloseReason, LinkError
from accord.runtime.addresses import WEBSOCKET, WEBSOCKET_TLS, SocketAddress
from accord.runtime.connection_writer import clock_us
from accord.runtime.logs import get_log
from accord.runtime.neighbour_link import NeighbourLink
from accord.runtime.tls import TlsFiles, link_contexts
from accord.runtime.transports.interface import LinkTransport
from accord.runtime.transports.tcp import TcpTransport
from accord.runtime.transports.websocket import WebSocketTransport

log = get_log(__name__)

_CONNECT_S: Final = 5.0
# A link that was up this long resets the backoff.
_PROVEN_US: Final = 2_000_000
# Close reasons that mean another link with the same node exists.
_LINKED: Final = (CloseReason.DUPLICATE, CloseReason.REPLACED)


class DialStatus(Struct, frozen=True, kw_only=True):
    """`node` is the node found there, `problem` why there is no link; empty if there is one."""

    address: str
    node: str
    attempts: int
    problem: str
    remedy: str


class DialOwner(Protocol):
    def new_link(self, expected: str) -> NeighbourLink:
        """The protocol for a connection being opened; `expected` restricts it to that node."""

    async def wait_until_down(self, node: str) -> None:
        """Returns when there is no link with `node`, whichever side opened it."""


class Dialler:
    """Dials one address; `run` runs until cancelled."""

    def __init__(
        self,
        owner: DialOwner,
        transport: LinkTransport,
        address: SocketAddress,
        random: Callable[[], float],
        expected: str = "",
    ) -> None:
        self.address = address
        self.expected = expected
        self.node = ""
        self.link: NeighbourLink | None = None  # the last one opened
        self.attempts = 0
        self.problem: LinkError | None = None
        self._owner = owner
        self._transport = transport
        self._backoff = Backoff(random)
        self._logged = ""

    def status(self) -> DialStatus:
        problem = self.problem
        if problem is not None and problem.reason in _LINKED:
            problem = None
        return DialStatus(
            address=str(self.address),
            node=self.node,
            attempts=self.attempts,
            problem="" if problem is None else str(problem),
            remedy="" if problem is None else problem.remedy,
        )

    async def run(self) -> None:
        while True:
            await self._owner.wait_until_down(self.node)
            await self._attempt()
            await self._owner.wait_until_down(self.node)
            await asyncio.sleep(self._backoff.next_ms() / 1000)

    async def _attempt(self) -> None:
        self.attempts += 1
        link = self.link = self._owner.new_link(self.expected)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._transport.dial(self.address.host, self.address.port, lambda: link)
        except (OSError, ValueError) as error:
            self._failed(LinkError(CloseReason.UNREACHABLE, _problem(error)))
            return
        waits: list[asyncio.Future[Any]] = [link.up, link.done]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not link.done.done():
            self.node = link.node
            self.problem = None
            self._logged = ""
            await asyncio.wait([link.done])
        if link.up.done() and clock_us() - link.up_us >= _PROVEN_US:
            self._backoff.reset()
        ended = link.done.result()
        if link.session is not None and ended.reason in _LINKED:
            self.node = link.session.claimed_name
        self._failed(ended)

    def _failed(self, error: LinkError) -> None:
        self.problem = error
        is_new = self._logged != str(error)
        self._logged = str(error)
        write = log.warning if is_new and not error.is_routine else log.debug
        write(
            "neighbour: link failed",
            address=str(self.address),
            node=self.node,
            problem=str(error),
            remedy=error.remedy,
        )


def _problem(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_CONNECT_S:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); name its authority"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there ({error.reason or error})"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


class TransportOptions(Struct, frozen=True, kw_only=True):
    """`tls` are the node's certificates, if any; `is_encrypted`: links over TCP use TLS.

    Links over WebSocket are dialled through `proxy`, if set.
    """

    tls: TlsFiles | None = None
    is_encrypted: bool = False
    proxy: SplitResult | None = None


class LinkTransports:
    """Raises TlsError if certificates can't be used; files are read only when needed."""

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._read: tuple[ssl.SSLContext, ssl.SSLContext] | None = None

    def of(self, address: SocketAddress) -> LinkTransport:
        if address.scheme == WEBSOCKET:
            return WebSocketTransport(address.path, proxy=self._options.proxy)
        if address.scheme == WEBSOCKET_TLS:
            accepting, dialing = self._contexts()
            return WebSocketTransport(
                address.path, accepting=accepting, dialing=dialing, proxy=self._options.proxy
            )
        if self._options.is_encrypted:
            accepting, dialing = self._contexts()
            return TcpTransport(accepting=accepting, dialing=dialing)
        return TcpTransport()

    def _contexts(self) -> tuple[ssl.SSLContext | None, ssl.SSLContext]:
        """Listening needs a certificate; dialling with the system's trust store does not."""
        if self._options.tls is None:
            return None, ssl.create_default_context()
        if self._read is None:
            self._read = link_contexts(self._options.tls)
        return self._read
