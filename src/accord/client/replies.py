"""Replies to requests: one subscription for a session, matched by correlation data."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import quote

from accord.client.errors import ClientError, SessionClosedError
from accord.client.messages import ReceivedEvent
from accord.client.subscription import Subscription
from accord.core.model.channels import RESPONSES
from accord.core.mqtt.properties import Properties


class ReplyWaiter(Protocol):
    """Receiver of the replies to one request."""

    def on_reply(self, event: ReceivedEvent) -> None: ...

    def fail(self, error: ClientError) -> None: ...


class SingleReply:
    """Waits for the first reply only."""

    def __init__(self) -> None:
        self.event: asyncio.Future[ReceivedEvent] = asyncio.get_running_loop().create_future()

    def on_reply(self, event: ReceivedEvent) -> None:
        if not self.event.done():
            self.event.set_result(event)

    def fail(self, error: ClientError) -> None:
        if not self.event.done():
            self.event.set_exception(error)
            self.event.exception()  # retrieved: there may be no waiter left


class Replies:
    """Dispatches replies; subscribes at the first request."""

    def __init__(
        self, server: Properties, client_id: str, subscribe: Callable[[str], Subscription]
    ) -> None:
        # The topics that the server reserves for responses if it names any, else one of our own.
        start = server.response_information or RESPONSES + quote(client_id, safe="")
        self._secret = secrets.token_bytes(8)
        self._topic = f"{start.rstrip('/')}/{self._secret.hex()}"
        self._subscribe = subscribe
        self._sent = 0
        self._waiters: dict[bytes, ReplyWaiter] = {}
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None

    async def topic(self) -> str:
        """The response topic, after subscribing to it."""
        if self._task is None or self._task.done():
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._collect(self._ready))
        assert self._ready is not None
        await asyncio.shield(self._ready)
        return self._topic

    @contextmanager
    def expect(self, expecting: ReplyWaiter) -> Iterator[bytes]:
        """Correlation data for a request whose replies go to `expecting`."""
        self._sent += 1
        correlation_data = self._secret + self._sent.to_bytes(8, "big")
        self._waiters[correlation_data] = expecting
        try:
            yield correlation_data
        finally:
            del self._waiters[correlation_data]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail(SessionClosedError("the session was closed"))

    async def _collect(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self._subscribe(self._topic) as events:
                ready.set_result(None)
                async for event in events:
                    self._dispatch(event)
            self._fail(SessionClosedError("the session was closed"))
        except ClientError as error:
            if not ready.done():
                ready.set_exception(error)
                ready.exception()  # retrieved: there may be no waiter left
            self._fail(error)

    def _dispatch(self, event: ReceivedEvent) -> None:
        expecting = self._waiters.get(event.properties.correlation_data or b"")
        if expecting is not None:
            expecting.on_reply(event)

    def _fail(self, error: ClientError) -> None:
        for expecting in list(self._waiters.values()):
            expecting.fail(error)
