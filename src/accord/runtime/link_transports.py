"""Selects the transport of a link by the scheme of its address."""

from __future__ import annotations

import ssl
from urllib.parse import SplitResult

from msgspec import Struct

from accord.runtime.addresses import WEBSOCKET, WEBSOCKET_TLS, SocketAddress
from accord.runtime.neighbour_tls import link_contexts
from accord.runtime.tls import TlsFiles
from accord.runtime.transports.interface import LinkTransport
from accord.runtime.transports.tcp import TcpTransport
from accord.runtime.transports.websocket import WebSocketTransport


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
