"""Socket addresses of this node's listeners and of other nodes."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

from msgspec import Struct

from accord.core.model.errors import AccordError

BACKLOG: Final = 1_024


# Schemes of link addresses: TCP (with TLS if the node's links use it), or WebSocket.
TCP: Final = ""
WEBSOCKET: Final = "ws"
WEBSOCKET_TLS: Final = "wss"
_PATH_CHARACTERS: Final = 1_024


class SocketAddress(Struct, frozen=True):
    """Host name or IP address, and port; port 0 lets the system choose.

    For links, `scheme` selects the transport, and `path` is the WebSocket's request path.
    """

    host: str
    port: int
    scheme: str = TCP
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = f"{host}:{self.port}"
        return f"{self.scheme}://{place}{self.path}" if self.scheme else place

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class ListenError(AccordError):
    """The address can't be listened on."""

    def __init__(self, address: SocketAddress, problem: str) -> None:
        self.address = address
        self.problem = problem
        super().__init__(f"can't listen on {address}: {problem}")


def parse_address(text: str) -> SocketAddress | None:
    """Parse HOST:PORT or [HOST]:PORT; None if invalid."""
    host, colon, digits = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_version_6(host):
            return None
    elif not colon or not host or not all(c.isalnum() or c in ".-_" for c in host):
        return None
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 5 or int(digits) > 65_535:
        return None
    return SocketAddress(host, int(digits))


def parse_link_address(text: str) -> SocketAddress | None:
    """Parse HOST:PORT, tcp://HOST:PORT, ws://HOST:PORT/PATH or wss://HOST:PORT/PATH."""
    scheme, mark, rest = text.strip().partition("://")
    if not mark:
        return parse_address(text)
    if scheme == "tcp":
        return parse_address(rest)
    place, slash, path = rest.partition("/")
    address = parse_address(place)
    if scheme not in (WEBSOCKET, WEBSOCKET_TLS) or address is None or not _is_path(path):
        return None
    return SocketAddress(address.host, address.port, scheme, slash + path if path else "")


def network_of(address: str) -> str:
    """What one client has: an address, or the 64 bits of a network of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, ipaddress.IPv6Address):
        return address
    mapped = found.ipv4_mapped
    return str(int(found) >> 64) if mapped is None else str(mapped)


def listen_on(address: SocketAddress) -> socket.socket:
    """A listening socket. Raises `ListenError` with the problem."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ListenError(address, f"unknown host ({_reason(error)})") from None
    # A name may have several addresses; clients try IPv4 first for localhost.
    family, _, _, _, number = min(found, key=lambda each: each[0] != socket.AF_INET)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(number)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ListenError(address, _problem(error)) from None
    return listener


def bound_address(listener: socket.socket) -> SocketAddress:
    """The actual address of a listening socket, including a port chosen by the system."""
    host, port = listener.getsockname()[:2]
    return SocketAddress(host, port)


def _is_version_6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _is_path(path: str) -> bool:
    """Whether the path can be used unescaped in a request line."""
    is_plain = path.isascii() and path.isprintable() and not any(c in ' #"<>' for c in path)
    return is_plain and len(path) <= _PATH_CHARACTERS


def _problem(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there; stop it or choose another port"
    if error.errno == errno.EACCES:
        return "no permission; choose a port from 1024 on"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    return _reason(error)


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
