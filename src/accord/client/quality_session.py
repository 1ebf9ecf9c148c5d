"""Quality messages of a session: dispatches states and advice to expectations and publishers.

There is one subscription for all expectations of the session and one for all profiles, each made on
first use. Profiles are registered again after every reconnection, because a server that restarted
does not know them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from accord.client.driver import Driver
from accord.client.errors import ClientError, ConnectionFailedError, QualityRefusedError
from accord.client.messages import Outcome, ReceivedEvent
from accord.client.quality import (
    Advice,
    Capability,
    Coupling,
    Expectation,
    ExpectationState,
    Usage,
    Value,
    read_advice,
    read_json,
    read_reply,
    read_state,
)
from accord.client.subscription import Subscription
from accord.core.router.rights import ADVICE, CAPABILITIES, EXPECTATIONS

RequestFn = Callable[[str, bytes], Awaitable[ReceivedEvent]]
OnState = Callable[[ExpectationState], object]
OnAdvice = Callable[[Advice], object]
OnUsage = Callable[[Usage], object]

_MAX_ADVICE: Final = 1_000  # advice queued for its handler; the oldest is dropped


class QualitySession:
    """The quality protocol of one session; `subscribe` subscribes to one of the server's topics."""

    def __init__(
        self, driver: Driver, subscribe: Callable[[str], Subscription], ask: RequestFn
    ) -> None:
        self.driver = driver
        self._subscribe = subscribe
        self._request = ask
        self._expectations: dict[str, Expected] = {}
        self._publishers: dict[str, Publisher] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ready: dict[str, asyncio.Future[None]] = {}

    async def request(self, topic: str, **request: Any) -> dict[str, Any]:
        """Send a request; raises QualityRefusedError if the server refuses it."""
        answered = await self._request(topic, msgspec.json.encode(request))
        return read_reply(answered.payload)

    async def listen(self, topic: str) -> None:
        """Subscribe to the topic, if that has not been done yet."""
        task = self._tasks.get(topic)
        if task is None or task.done():
            ready = asyncio.get_running_loop().create_future()
            self._ready[topic] = ready
            self._tasks[topic] = asyncio.create_task(self._collect(topic, ready))
        await asyncio.shield(self._ready[topic])

    def add_expectation(self, expected: Expected) -> None:
        self._expectations[expected.id] = expected

    def remove_expectation(self, id_: str) -> None:
        self._expectations.pop(id_, None)

    def add_publisher(self, publisher: Publisher) -> None:
        if publisher.channel in self._publishers:
            raise ValueError(f"this session has a publisher for {publisher.channel!r} already")
        self._publishers[publisher.channel] = publisher

    def remove_publisher(self, publisher: Publisher) -> None:
        if self._publishers.get(publisher.channel) is publisher:
            del self._publishers[publisher.channel]

    async def close(self) -> None:
        for publisher in list(self._publishers.values()):
            publisher.stop()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _collect(self, topic: str, ready: asyncio.Future[None]) -> None:
        try:
            async with self._subscribe(topic) as events:
                ready.set_result(None)
                async for event in events:
                    self._on_event(topic, read_json(event.payload))
        except ClientError as error:
            if not ready.done():
                ready.set_exception(error)
                ready.exception()  # retrieved: there may be no waiter left

    def _on_event(self, topic: str, found: dict[str, Any]) -> None:
        if topic == EXPECTATIONS:
            state = read_state(found)
            expected = None if state is None else self._expectations.get(state.expectation)
            if state is not None and expected is not None:
                expected.set_state(state)
            return
        notice = read_advice(found)
        publisher = None if notice is None else self._publishers.get(notice[0])
        if notice is not None and publisher is not None:
            publisher.dispatch(notice[1])


class Expected:
    """One expectation of a subscription: its state, and operations to change it."""

    def __init__(
        self, negotiating: QualitySession, id_: str, expectation: Expectation, on_state: OnState
    ) -> None:
        self.id = id_
        self.expectation = expectation
        self.state: ExpectationState | None = None  # None until the server has reported one
        self._quality = negotiating
        self._on_state = on_state
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<{self.id}: {'unknown' if self.state is None else self.state.state}>"

    @property
    def is_satisfied(self) -> bool:
        return self.state is not None and self.state.is_satisfied

    async def wait_for(self, state: str) -> ExpectationState:
        """Wait until the expectation has this state."""
        while self.state is None or self.state.state != state:
            self._changed.clear()
            await self._changed.wait()
        return self.state

    async def update(self, expectation: Expectation) -> None:
        await self._request("update", expect=expectation.form(self.id))
        self.expectation = expectation

    async def suspend(self) -> None:
        await self._request("suspend")

    async def resume(self) -> None:
        await self._request("resume")

    async def revoke(self) -> None:
        await self._request("revoke")
        self.detach()
        self.set_state(ExpectationState(self.id, "revoked"))

    def detach(self) -> None:
        """Stop dispatching to it, as its subscription has ended."""
        self._quality.remove_expectation(self.id)

    def set_state(self, state: ExpectationState) -> None:
        self.state = state
        self._changed.set()
        self._on_state(state)

    async def _request(self, do: str, **more: Any) -> None:
        answered = await self._quality.request(EXPECTATIONS, do=do, id=self.id, **more)
        state = read_state(answered)
        if state is not None and state != self.state:
            self.set_state(state)


class Publisher:
    """Registers what its client can provide on a channel, and receives advice.

        async with session.publisher("lab/t", capabilities=[rate]) as publisher:
            @publisher.on_advice
            async def follow(advice: Advice) -> float:
                sensor.rate_hz = advice.target
                return advice.target

    Made by `Session.publisher`. The value that a handler returns becomes the current value of the
    capability; a handler that returns None reports it itself, with `update`.
    """

    def __init__(  # noqa: PLR0913 - made in one place only
        self,
        negotiating: QualitySession,
        channel: str,
        *,
        capabilities: list[Capability],
        couplings: list[Coupling],
        source: str | None,
        publish: Callable[..., Awaitable[Outcome]],
    ) -> None:
        self.channel = channel
        self.usage = Usage()  # as last reported
        self.capabilities = {each.property: each for each in capabilities}
        self._is_registered = False  # whether the server has the profile
        self._couplings = couplings
        self._source = source
        self._quality = negotiating
        self._publish = publish
        self._on_advice: OnAdvice | None = None
        self._on_usage: OnUsage | None = None
        self._early: list[Advice] = []  # received before there was a handler
        self._advice: asyncio.Queue[Advice] = asyncio.Queue(_MAX_ADVICE)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._quality.add_publisher(self)
        try:
            await self._quality.listen(ADVICE)
            returning = asyncio.create_task(self._reregister(self._quality.driver.next_connection))
            self._tasks = [returning, asyncio.create_task(self._run_handler())]
            await self._register()
        except BaseException:
            self.stop()
            raise
        self._is_registered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.revoke()

    async def revoke(self) -> None:
        """Withdraw the profile; leaving the `async with` does so, too."""
        is_known, self._is_registered = self._is_registered, False
        self.stop()
        if is_known and self._quality.driver.error is None:
            await self._quality.request(CAPABILITIES, do="revoke", channel=self.channel)

    def on_advice(self, handler: OnAdvice) -> OnAdvice:
        """Call the handler with each advice, one at a time; it may be a coroutine function."""
        self._on_advice = handler
        early, self._early = self._early, []
        for advice in early:
            self.dispatch(advice)
        return handler

    def on_usage(self, handler: OnUsage) -> OnUsage:
        self._on_usage = handler
        return handler

    async def publish(self, payload: bytes | str = b"", /, **extras: Any) -> Outcome:
        """Publish on this channel, as `Session.publish`."""
        return await self._publish(self.channel, payload, **extras)

    async def update(self, *capabilities: Capability, **current: Value) -> None:
        """Change capabilities, or current values by property."""
        forms = {each.property: each.form() for each in capabilities}
        await self._quality.request(
            CAPABILITIES, do="update", channel=self.channel, capabilities=forms, current=current
        )
        self.capabilities |= {each.property: each for each in capabilities}
        for name, value in current.items():
            known = self.capabilities[name]
            self.capabilities[name] = Capability(
                name, known.lower, known.upper, current=value, cost=known.cost
            )

    async def ask_usage(self) -> Usage:
        """Request the current usage."""
        found = await self._quality.request(CAPABILITIES, do="usage", channel=self.channel)
        self.usage = Usage(int(found["expectations"]), float(found["utility"]))
        return self.usage

    def dispatch(self, notice: Advice | Usage) -> None:
        if isinstance(notice, Usage):
            self.usage = notice
            if self._on_usage is not None:
                self._on_usage(notice)
        elif self._on_advice is None:
            self._early = [*self._early, notice][-_MAX_ADVICE:]
        else:
            if self._advice.full():
                self._advice.get_nowait()
            self._advice.put_nowait(notice)

    def stop(self) -> None:
        self._quality.remove_publisher(self)
        for task in self._tasks:
            task.cancel()

    async def _register(self) -> None:
        request: dict[str, Any] = {
            "channel": self.channel,
            "capabilities": {name: each.form() for name, each in self.capabilities.items()},
            "couplings": [
                {"of": each.of, "on": each.on, "per_unit": each.per_unit}
                for each in self._couplings
            ],
        }
        if self._source is not None:
            request["source"] = self._source
        await self._quality.request(CAPABILITIES, do="register", **request)

    async def _reregister(self, connected: asyncio.Future[None]) -> None:
        """Register again after each reconnection."""
        while True:
            await asyncio.shield(connected)
            connected = self._quality.driver.next_connection
            try:
                await self._register()
            except (ConnectionFailedError, TimeoutError):
                continue  # retry on the next connection
            except QualityRefusedError as error:  # such as a property that is no longer defined
                context = {"message": "profile rejected after reconnect", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    async def _run_handler(self) -> None:
        while True:
            advice = await self._advice.get()
            assert self._on_advice is not None
            try:
                value = self._on_advice(advice)
                if inspect.isawaitable(value):
                    value = await value
                if isinstance(value, (int, float, str)) and not isinstance(value, bool):
                    await self.update(**{advice.property: value})
            except Exception as error:
                context = {"message": "following advice failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
