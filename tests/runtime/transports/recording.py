"""A protocol that notes what happens to it, and waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

WAIT_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens soon."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


class Recorder(asyncio.Protocol):
    def __init__(self, *, keeps_open: bool = False) -> None:
        self.transport: asyncio.Transport | None = None
        self.data = b""
        self.events: list[str] = []
        self.error: Exception | None = None
        self._keeps_open = keeps_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self._keeps_open

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost")
        self.error = error

    def pause_writing(self) -> None:
        self.events.append("paused")

    def resume_writing(self) -> None:
        self.events.append("resumed")

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    @property
    def is_lost(self) -> bool:
        return "lost" in self.events
