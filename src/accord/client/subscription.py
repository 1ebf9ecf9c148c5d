"""A subscription as its user sees it: a context to be in, and events to go through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from accord.client.driver import Driver
from accord.client.errors import ClientError, SessionClosedError
from accord.client.inbox import Delivery, Inbox
from accord.client.messages import Outcome, ReceivedEvent, to_received
from accord.client.quality import ExpectationState
from accord.client.signals import Consumed, SubscribeAsked, UnsubscribeAsked
from accord.edges.mqtt.packets import Filter

if TYPE_CHECKING:
    from accord.client.negotiating import Expected


class Subscription:
    """Made by `Session.subscribe`, entered with `async with`, gone through with `async for`.

    An event counts as worked on when the next one is asked for, or the subscription is left: then
    it is acknowledged. One task at a time may go through it. The loop ends when the session is
    closed; when the server ends the session or the subscription, it raises why.
    """

    def __init__(  # noqa: PLR0913 - made in one place only
        self,
        driver: Driver,
        chosen: Filter,
        user: tuple[tuple[str, str], ...],
        *,
        queue: int,
        keep: bool,
        may_be_kept: bool,
        clock: Callable[[], int],
        before: Callable[[], Awaitable[None]] | None = None,
        respond: Callable[..., Awaitable[Outcome]] | None = None,
    ) -> None:
        self._driver = driver
        self._filter = chosen
        self._user = user
        self._queue = queue
        self._keep = keep
        self._may_be_kept = may_be_kept
        self._clock = clock
        self._before = before  # what has to be done before it is asked for
        self._respond = respond
        self.expectations: tuple[Expected, ...] = ()
        self._on_state: Callable[[ExpectationState], object] | None = None
        self._identifier: int | None = None
        self._inbox: Inbox | None = None
        self._taken: Delivery | None = None
        self._error: ClientError | None = None
        self._news = asyncio.Event()
        # The share of nodes on the way that promised to carry it, where that was asked for.
        self.admitted = 1.0

    @property
    def pattern(self) -> str:
        return self._filter.pattern

    @property
    def shed(self) -> int:
        """Events of QoS 0 that were dropped because this consumer was too slow."""
        return 0 if self._inbox is None else self._inbox.shed

    def on_state(
        self, handler: Callable[[ExpectationState], object]
    ) -> Callable[[ExpectationState], object]:
        """Call it whenever an expectation of this subscription stands otherwise than before."""
        self._on_state = handler
        return handler

    async def __aenter__(self) -> Self:
        assert self._inbox is None, "a subscription is entered once"
        if self._before is not None:
            await self._before()
        self._identifier = identifier = self._driver.new_identifier()
        self._driver.listeners[identifier] = self
        try:
            settled = await self._driver.ask(self._ask)
            self.admitted = _admitted(settled.properties.user)
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedEvent:
        self._finish()
        while True:
            if self._error is not None:
                if isinstance(self._error, SessionClosedError):
                    raise StopAsyncIteration
                raise self._error.with_traceback(None)
            if self._identifier is None:
                raise StopAsyncIteration
            self._taken = self._driver.machine.take(self._identifier)
            if self._taken is not None:
                return self._event(self._taken)
            self._news.clear()
            await self._news.wait()

    # -------------------------------------------------------------------------- for the driver

    def wake(self) -> None:
        self._news.set()

    def stands(self, state: ExpectationState) -> None:
        if self._on_state is not None:
            self._on_state(state)

    def fail(self, error: ClientError) -> None:
        self._error = error
        self._identifier = None
        self._news.set()

    # ------------------------------------------------------------------------------------ inside

    def _ask(self, token: int) -> None:
        assert self._identifier is not None
        asked = SubscribeAsked(token, self._identifier, self._filter, self._user, self._queue)
        self._driver.handle(asked)
        self._inbox = self._driver.machine.inbox(self._identifier)

    def _finish(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            self._driver.handle(Consumed(taken))

    def _event(self, delivery: Delivery) -> ReceivedEvent:
        ago_ms = self._driver.now_ms() - delivery.received_ms
        return to_received(
            delivery.message,
            self._clock() - ago_ms,
            may_be_kept=self._may_be_kept,
            respond=self._respond,
        )

    def _leave(self) -> None:
        self._finish()
        identifier, self._identifier = self._identifier, None
        self._news.set()
        if identifier is not None:
            for expected in () if self._keep else self.expectations:
                expected.forget()
            del self._driver.listeners[identifier]
            self._driver.handle(UnsubscribeAsked(identifier, self._keep))


def _admitted(facts: tuple[tuple[str, str], ...]) -> float:
    try:
        return float(dict(facts).get("admitted", "1"))
    except ValueError:
        return 1.0
