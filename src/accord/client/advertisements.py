"""Advertisements of a session: the maximum rates it promises to publish at.

All of them are sent again after each reconnection, because a node that restarted has lost them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import msgspec

from accord.client.driver import Driver
from accord.client.errors import AdvertisementError, ClientError, read_answer
from accord.client.machine import Phase
from accord.client.messages import ReceivedEvent
from accord.core.router.rights import ADVERTISEMENTS
from accord.operations.operation import Request

if TYPE_CHECKING:
    from accord.operations.admission import Advertised

RequestFn = Callable[[str, bytes], Awaitable[ReceivedEvent]]

OFF: Final = "off"
_FAREWELL_S: Final = 1.0


class Advertisement:
    """An advertised rate, made by `Session.advertise`.

    It holds until `withdraw`, the end of its `async with` or of the session. `mode` is how the node
    applies it: with `enforce`, events beyond the rate are refused.
    """

    def __init__(
        self, kept: Advertisements, channel: str, where: str | None, rate_hz: float, name: str
    ) -> None:
        self.channel = channel
        self.where = where
        self.rate_hz = rate_hz
        self.name = name
        self.mode = OFF
        self._advertisements = kept

    async def update(self, rate_hz: float) -> None:
        """Advertise another rate."""
        before, self.rate_hz = self.rate_hz, rate_hz
        try:
            await self._advertisements.send(self)
        except BaseException:
            self.rate_hz = before
            raise

    async def withdraw(self) -> None:
        await self._advertisements.withdraw(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ClientError, TimeoutError):
            await self.withdraw()


class Advertisements:
    """The advertisements of one session."""

    def __init__(self, driver: Driver, ask: RequestFn) -> None:
        self._driver = driver
        self._request = ask
        self._active: dict[str, Advertisement] = {}
        self._readvertising: asyncio.Task[None] | None = None

    async def send(self, advertisement: Advertisement) -> None:
        """Send the advertisement; raises AdvertisementError if the node refuses it."""
        from accord.operations.admission import Advertise  # noqa: PLC0415 (loads numpy)

        asked = Advertise(
            channel=advertisement.channel,
            where=advertisement.where or "",
            rate_hz=advertisement.rate_hz,
            name=advertisement.name,
        )
        answer = await self._call(asked)
        advertisement.name = answer.name or advertisement.name or advertisement.channel
        advertisement.mode = answer.mode
        self._active[advertisement.name] = advertisement
        if self._readvertising is None:
            self._readvertising = asyncio.create_task(self._readvertise())

    async def withdraw(self, advertisement: Advertisement) -> None:
        if self._active.get(advertisement.name) is advertisement:
            from accord.operations.admission import Unadvertise  # noqa: PLC0415

            del self._active[advertisement.name]
            await self._call(Unadvertise(name=advertisement.name))

    async def close(self) -> None:
        """Withdraw all advertisements, so that the node frees what it reserved for them."""
        with suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                for each in list(self._active.values()):
                    if self._driver.machine.phase is Phase.CONNECTED:
                        await self.withdraw(each)
        if self._readvertising is not None:
            self._readvertising.cancel()
            await asyncio.gather(self._readvertising, return_exceptions=True)

    async def _call(self, request: Request[Advertised]) -> Advertised:
        from accord.operations.admission import Advertised  # noqa: PLC0415

        event = await self._request(ADVERTISEMENTS, msgspec.json.encode(request))
        return read_answer(event.payload, Advertised, AdvertisementError)

    async def _readvertise(self) -> None:
        while True:
            await asyncio.shield(self._driver.next_connection)
            for each in list(self._active.values()):
                with suppress(ClientError, TimeoutError):
                    await self.send(each)
