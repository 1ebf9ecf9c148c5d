"""A subscription at one server."""

from __future__ import annotations

import asyncio

from accord.client.driver import Driver
from accord.client.errors import ClientError
from accord.client.inbox import Inbox, ReceivedMessage
from accord.client.machine_io import Consumed, Settled, SubscribeRequested, UnsubscribeRequested
from accord.core.mqtt.packets import TopicFilter


class ServerSubscription:
    """The subscription's state at one server; `news` is set on every message and on failure."""

    def __init__(self, driver: Driver, asked: TopicFilter, queue: int, news: asyncio.Event) -> None:
        self.error: ClientError | None = None
        self._driver = driver
        self._filter = asked
        self._queue = queue
        self._news = news
        self._identifier: int | None = None
        self._inbox: Inbox | None = None

    @property
    def is_open(self) -> bool:
        return self._identifier is not None

    @property
    def shed(self) -> int:
        return 0 if self._inbox is None else self._inbox.shed

    async def enter(self, user: tuple[tuple[str, str], ...]) -> Settled:
        """Subscribe with these user properties, and wait until the subscription is granted."""
        assert self._inbox is None, "a subscription is entered once"
        self._identifier = identifier = self._driver.new_identifier()
        self._driver.listeners[identifier] = self

        def order(token: int) -> None:
            asked = SubscribeRequested(token, identifier, self._filter, user, self._queue)
            self._driver.handle(asked)
            self._inbox = self._driver.machine.inbox(identifier)

        return await self._driver.ask(order)

    def leave(self, *, is_kept: bool) -> bool:
        """Unsubscribe; returns False if the subscription had ended already."""
        identifier, self._identifier = self._identifier, None
        if identifier is None:
            return False
        del self._driver.listeners[identifier]
        self._driver.handle(UnsubscribeRequested(identifier, is_kept))
        return True

    def take(self) -> ReceivedMessage | None:
        """The next message; `finish` it afterwards."""
        if self._identifier is None:
            return None
        return self._driver.machine.take(self._identifier)

    def finish(self, delivery: ReceivedMessage) -> None:
        self._driver.handle(Consumed(delivery))

    def age_ms(self, delivery: ReceivedMessage) -> int:
        return self._driver.now_ms() - delivery.received_ms

    # -------------------------------------------------------------------------- for the driver

    def wake(self) -> None:
        self._news.set()

    def fail(self, error: ClientError) -> None:
        self.error = error
        self._identifier = None
        self._news.set()
