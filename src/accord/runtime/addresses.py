"""Where a node listens, and where others do."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

from msgspec import Struct

from accord.core.model.errors import AccordError

BACKLOG: Final = 1_024


# How links may be carried: TCP (encrypted if the node's links are), or WebSocket.
TCP: Final = ""
WEBSOCKET: Final = "ws"
WEBSOCKET_TLS: Final = "wss"
_PATH_CHARACTERS: Final = 1_024


class SocketAddress(Struct, frozen=True):
    """A host name or number, and a port; port 0 lets the system choose one.

    Where that can be chosen, `scheme` says what carries the connection, and `path` what to ask for.
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
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class ListenError(AccordError):
    """An address that can't be listened on."""

    def __init__(self, address: SocketAddress, problem: str) -> None:
        self.address = address
        self.problem = problem
        super().__init__(f"can't listen on {address}: {problem}")


def parse_address(text: str) -> SocketAddress | None:
    """The address that `text` says as HOST:PORT or [HOST]:PORT, or None where it says none."""
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
    """The same, or as tcp://HOST:PORT, ws://HOST:PORT/PATH or wss://HOST:PORT/PATH."""
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


def listen_on(address: SocketAddress) -> socket.socket:
    """A listening socket; `ListenError` says why there can be none."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ListenError(address, f"unknown host ({_reason(error)})") from None
    # A name may have several numbers; version 4 is what clients try where a name is localhost.
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
    """Where a socket really listens, also if the system chose the port."""
    host, port = listener.getsockname()[:2]
    return SocketAddress(host, port)


def _is_version_6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _is_path(path: str) -> bool:
    """Whether it can stand in the first line of a request as it is."""
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
