"""Subscriptions: the public object, an iterator over events, and its state at each server.

Mirrored subscriptions: one subscription at several servers, each event delivered once.

No event is missed while at least one of the servers is up. Each server has its own connection,
which reconnects to that server only. An event ID (source node and number) is the same at every
node, so duplicates are recognised. Each server keeps the order that a channel guarantees, and
always the first copy is delivered: the delivered order is therefore that of the server that is
ahead, and all servers have the same order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from accord.client.driver import Driver
from accord.client.errors import ClientError, SessionClosedError
from accord.client.inbox import Inbox, ReceivedMessage
from accord.client.machine_io import Consumed, Settled, SubscribeRequested, UnsubscribeRequested
from accord.client.messages import Outcome, ReceivedEvent, to_received
from accord.client.quality import ExpectationState
from accord.core.model.bounded import LruMap
from accord.core.mqtt.packets import Publish, TopicFilter
from accord.core.mqtt.properties import EVENT, NODE

if TYPE_CHECKING:
    from accord.client.quality_session import Expected


T = TypeVar("T")

# How far servers may be apart, in events; events further behind may be delivered twice.
MAX_EVENT_IDS: Final = 50_000
_MAX_ID_CHARS: Final = 1_000  # characters of an event ID; no node has longer ones


class MirrorDedup:
    """Duplicate filter over event IDs."""

    def __init__(self, most: int = MAX_EVENT_IDS) -> None:
        self._seen: LruMap[tuple[str, str], bool] = LruMap(most)
        self.dropped = 0

    def is_first(self, message: Publish) -> bool:
        """Whether the event is new; an event without ID always is."""
        user = dict(message.properties.user)
        event = user.get(EVENT)
        if event is None:
            return True
        name = (user.get(NODE, ""), event)
        if sum(map(len, name)) > _MAX_ID_CHARS:
            return True  # not stored, so that memory is bounded whatever servers send
        if name in self._seen:
            self.dropped += 1
            return False
        self._seen.put(name, True)
        return True


async def first_of(attempts: Sequence[Awaitable[T]]) -> tuple[T, list[asyncio.Future[T]]]:
    """Return the result of the first attempt to complete, and the others, which continue.

    If the first one to complete raises, the others are cancelled and its exception is raised.
    """
    tasks = [asyncio.ensure_future(each) for each in attempts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = next(each for each in tasks if each in done)
        result = first.result()
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    return result, [each for each in tasks if each is not first]


class ServerSubscription:
    """The subscription's state at one server; `changed` is set on every message and on failure."""

    def __init__(
        self, driver: Driver, asked: TopicFilter, queue: int, changed: asyncio.Event
    ) -> None:
        self.error: ClientError | None = None
        self._driver = driver
        self._filter = asked
        self._queue = queue
        self._changed = changed
        self._identifier: int | None = None
        self._inbox: Inbox | None = None

    @property
    def is_open(self) -> bool:
        return self._identifier is not None

    @property
    def shed(self) -> int:
        return 0 if self._inbox is None else self._inbox.shed

    async def subscribe(self, user: tuple[tuple[str, str], ...]) -> Settled:
        """Subscribe with these user properties, and wait until the subscription is granted."""
        assert self._inbox is None, "a subscription is entered once"
        self._identifier = identifier = self._driver.new_identifier()
        self._driver.listeners[identifier] = self

        def order(token: int) -> None:
            asked = SubscribeRequested(token, identifier, self._filter, user, self._queue)
            self._driver.handle(asked)
            self._inbox = self._driver.machine.inbox(identifier)

        return await self._driver.request(order)

    def unsubscribe(self, *, is_kept: bool) -> bool:
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
        self._changed.set()

    def fail(self, error: ClientError) -> None:
        self.error = error
        self._identifier = None
        self._changed.set()


class Subscription:
    """A subscription: enter it with `async with`, iterate with `async for`.

    Made by `Session.subscribe`. An event is acknowledged when the next one is requested, or the
    subscription is left. Only one task at a time may iterate. The loop ends when the session is
    closed; if the server ends the session or the subscription, it raises the reason. With several
    drivers the subscription is at several servers, and ends when one of them refuses it.
    """

    def __init__(  # noqa: PLR0913 - made in one place only
        self,
        drivers: Sequence[Driver],
        chosen: TopicFilter,
        user: tuple[tuple[str, str], ...],
        *,
        queue: int,
        keep: bool,
        clock: Callable[[], int],
        before: Callable[[], Awaitable[None]] | None = None,
        respond: Callable[..., Awaitable[Outcome]] | None = None,
    ) -> None:
        self._filter = chosen
        self._user = user
        self._keep = keep
        self._clock = clock
        self._before = before  # to be done before subscribing
        self._respond = respond
        self.expectations: tuple[Expected, ...] = ()
        self._on_state: Callable[[ExpectationState], object] | None = None
        self._changed = asyncio.Event()
        self._servers = [ServerSubscription(each, chosen, queue, self._changed) for each in drivers]
        self._dedup = MirrorDedup() if len(drivers) > 1 else None
        self._pending: list[asyncio.Future[Settled]] = []  # at servers that have not replied
        self._refusal: ClientError | None = None  # by one of those
        self._taken: tuple[ServerSubscription, ReceivedMessage] | None = None
        # The fraction of nodes on the path that admitted it, where admission was requested.
        self.admitted = 1.0

    @property
    def pattern(self) -> str:
        return self._filter.pattern

    @property
    def shed(self) -> int:
        """QoS 0 events dropped because this consumer was too slow."""
        return sum(each.shed for each in self._servers)

    def on_state(
        self, handler: Callable[[ExpectationState], object]
    ) -> Callable[[ExpectationState], object]:
        """Call the handler whenever the state of an expectation of this subscription changes."""
        self._on_state = handler
        return handler

    async def __aenter__(self) -> Self:
        if self._before is not None:
            await self._before()
        try:
            asked = [each.subscribe(self._user) for each in self._servers]
            settled, self._pending = await first_of(asked)
            for entering in self._pending:
                entering.add_done_callback(self._on_reply)
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
            error = self._error()
            if error is not None and not isinstance(error, SessionClosedError):
                raise error.with_traceback(None)
            if error is not None or not all(each.is_open for each in self._servers):
                raise StopAsyncIteration
            self._changed.clear()
            self._taken = self._take()
            if self._taken is not None:
                return self._event(*self._taken)
            await self._changed.wait()

    def notify_state(self, state: ExpectationState) -> None:
        if self._on_state is not None:
            self._on_state(state)

    # ------------------------------------------------------------------------------------ inside

    def _on_reply(self, entering: asyncio.Future[Settled]) -> None:
        """Handle the reply of one more server."""
        error = None if entering.cancelled() else entering.exception()
        if isinstance(error, ClientError):
            self._refusal = error
            self._changed.set()

    def _error(self) -> ClientError | None:
        """Why the subscription has ended at one of the servers."""
        failed = (each.error for each in self._servers if each.error is not None)
        return next(failed, self._refusal)

    def _take(self) -> tuple[ServerSubscription, ReceivedMessage] | None:
        """The next message and its server; duplicates from other servers are finished at once."""
        # Round robin: a server that is always last would fall behind, and its node would shed.
        self._servers.append(self._servers.pop(0))
        for feed in self._servers:
            while (delivery := feed.take()) is not None:
                if self._dedup is None or self._dedup.is_first(delivery.message):
                    return feed, delivery
                feed.finish(delivery)
        return None

    def _finish(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            feed, delivery = taken
            feed.finish(delivery)

    def _event(self, feed: ServerSubscription, delivery: ReceivedMessage) -> ReceivedEvent:
        return to_received(
            delivery.message,
            self._clock() - feed.age_ms(delivery),
            respond=self._respond,
        )

    def _leave(self) -> None:
        self._finish()
        for entering in self._pending:
            entering.cancel()
        was_there = [each.unsubscribe(is_kept=self._keep) for each in self._servers]
        self._changed.set()
        if any(was_there) and not self._keep:
            for expected in self.expectations:
                expected.detach()


def _admitted(facts: tuple[tuple[str, str], ...]) -> float:
    try:
        return float(dict(facts).get("admitted", "1"))
    except ValueError:
        return 1.0
