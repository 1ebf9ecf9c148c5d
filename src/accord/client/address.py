"""Server addresses, parsed from URLs."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}


class Address(msgspec.Struct, frozen=True):
    """`host` and `port` to connect to; `path` matters to WebSocket only."""

    scheme: str
    host: str
    port: int
    path: str = "/"
    username: str | None = None
    password: str | None = None

    @property
    def is_encrypted(self) -> bool:
        return self.scheme in ("mqtts", "wss")

    @property
    def url(self) -> str:
        """The URL for messages to the operator, without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path.removesuffix('/')}"


def parse_address(url: str) -> Address:
    """Parse a server URL; raises ValueError that states what was expected."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"expected a URL such as mqtt://localhost:1883: {error}") from None
    if parts.scheme not in PORTS or not parts.netloc:
        # Only the part up to the '@' can hold a password.
        shown = url.rpartition("@")[2][:80]
        raise ValueError(f"expected mqtt://, mqtts://, ws:// or wss:// and a host, got {shown!r}")
    if not parts.hostname:
        raise ValueError("expected a host in the URL, such as mqtt://localhost:1883")
    is_web = parts.scheme in ("ws", "wss")
    if not is_web and parts.path not in ("", "/"):
        raise ValueError(f"expected no path in a {parts.scheme}:// URL, got {parts.path[:80]!r}")
    query = f"?{parts.query}" if parts.query else ""
    return Address(
        parts.scheme,
        parts.hostname,
        PORTS[parts.scheme] if port is None else port,
        (parts.path or "/") + query if is_web else "/",
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )
