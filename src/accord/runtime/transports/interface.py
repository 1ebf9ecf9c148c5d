"""Interface of link transports: connections in asyncio's terms, and the identity of their peer.

The user of a transport implements asyncio's `Protocol` and writes to its `Transport`, so anything
that asyncio can connect to can carry a link.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any, Final, Protocol

from accord.core.links.handshake import RemoteEndpoint

Factory = Callable[[], asyncio.Protocol]


class Listener(Protocol):
    """Accepts connections; `port` is the actual one, also if the system chose it."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Stop accepting; existing connections stay."""


class LinkTransport(Protocol):
    """Listens and dials. Raises OSError or ValueError on failure."""

    async def listen(self, host: str, port: int, factory: Factory) -> Listener: ...

    async def dial(self, host: str, port: int, factory: Factory) -> None: ...


# Set by transports that never leave this process.
IS_LOCAL: Final = "is_local"
# Set if a proxy opened the connection: its address proves nothing.
IS_FORWARDED: Final = "is_forwarded"


def remote_of(transport: asyncio.BaseTransport) -> RemoteEndpoint:
    peer: Any = transport.get_extra_info("peername")
    address = str(peer[0]) if isinstance(peer, tuple) and peer else str(peer or "")
    is_here = bool(transport.get_extra_info(IS_LOCAL)) or is_loopback(address)
    return RemoteEndpoint(
        address=address,
        is_loopback=is_here and not transport.get_extra_info(IS_FORWARDED),
        is_encrypted=transport.get_extra_info("sslcontext") is not None,
        certified=certified_names(transport.get_extra_info("peercert")),
    )


def is_loopback(address: str) -> bool:
    """Whether `address` is of this machine."""
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(number, ipaddress.IPv6Address) and number.ipv4_mapped is not None:
        return number.ipv4_mapped.is_loopback
    return number.is_loopback


def certified_names(certificate: Any) -> tuple[str, ...]:
    """Common name and DNS names of a verified certificate; empty without one."""
    if not certificate:
        return ()
    names = [
        value
        for part in certificate.get("subject", ())
        for field, value in part
        if field == "commonName"
    ]
    names += [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return tuple(dict.fromkeys(names))
