"""Interface of link transports: connections in asyncio's terms.

The user of a transport implements asyncio's `Protocol` and writes to its `Transport`, so anything
that asyncio can connect to can carry a link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

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
