"""Servers that a session may use: the one it had last, and the others in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from accord.client.address import parse_address
from accord.client.errors import ConnectionFailedError
from accord.client.transport import Stream, Transport


class Servers:
    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("expected the URL of a server, got none")
        self._addresses = [parse_address(url) for url in urls]
        self.first = self._addresses[0]

    async def open(self, transport: Transport, timeout_s: float) -> Stream:
        """A connection to the first of them that answers; it comes first from then on."""
        problems = []
        for address in list(self._addresses):
            try:
                async with asyncio.timeout(timeout_s):
                    stream = await transport(address)
            except TimeoutError:
                problems.append(f"can't connect to {address.place}: no answer in {timeout_s:g} s")
            except OSError as error:
                problems.append(f"can't connect to {address.place}: {error}")
            else:
                self._prefer(self._addresses.index(address))
                return stream
        raise ConnectionFailedError("; ".join(problems))

    def _prefer(self, at: int) -> None:
        self._addresses = self._addresses[at:] + self._addresses[:at]
