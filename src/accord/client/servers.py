"""The servers of a session: the last one used first, then the others in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from accord.client.address import Address, parse_address
from accord.client.errors import ConnectionFailedError, explain
from accord.client.transport import Stream, Transport


class Servers:
    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("expected the URL of a server, got none")
        self._addresses = [parse_address(url) for url in urls]
        self.first = self._addresses[0]
        self.opened: Address | None = None  # the last server tried, if it was reached

    async def open(self, transport: Transport, timeout_s: float) -> Stream:
        """Connect to the first server that can be reached; it is tried first from then on."""
        problems = []
        self.opened, cause = None, None
        for address in list(self._addresses):
            try:
                async with asyncio.timeout(timeout_s):
                    stream = await transport(address)
            except (OSError, ValueError) as error:  # ValueError: the host name is malformed
                problems.append(explain(address.url, error))
                cause = error
            except ConnectionFailedError as error:
                problems.append(str(error))
            else:
                self._prefer(self._addresses.index(address))
                self.opened = address
                return stream
        raise ConnectionFailedError("; ".join(problems)) from cause

    def _prefer(self, at: int) -> None:
        self._addresses = self._addresses[at:] + self._addresses[:at]
