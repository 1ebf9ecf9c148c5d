"""What any transport offers: connections, as asyncio knows them.

The other end speaks through asyncio's own interfaces: a `Protocol` is told what comes, and writes
to a `Transport`. So whatever asyncio can connect with can carry a link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

Factory = Callable[[], asyncio.Protocol]


class Listener(Protocol):
    """Where connections are accepted; `port` is the real one, also if the system chose it."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def close(self) -> None:
        """Accept no more; those that are there stay."""


class LinkTransport(Protocol):
    """Both ways of getting a connection. What is not possible raises OSError or ValueError."""

    async def listen(self, host: str, port: int, factory: Factory) -> Listener: ...

    async def dial(self, host: str, port: int, factory: Factory) -> None: ...
