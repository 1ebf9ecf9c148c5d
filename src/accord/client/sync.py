"""`accord.connect_sync`: the same session for programs without asyncio, on a background thread.

with accord.connect_sync("mqtt://localhost") as session:
    session.publish("uav/imagery", jpeg, platform="UAV")
    for event in session.subscribe("uav/+"):
        print(event.channel, event.attributes)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from accord.client.advertisements import Advertisement
from accord.client.errors import SessionClosedError
from accord.client.feedback import Answer, Answers
from accord.client.messages import Outcome, ReceivedEvent
from accord.client.quality import Capability, Expectation, ExpectationState, Usage, Value
from accord.client.quality_session import Expected, OnAdvice, OnUsage, Publisher
from accord.client.query import Query, QueryStats
from accord.client.session import Session, connect
from accord.client.subscription import Subscription

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE: Final = 50  # events of a query passed between threads together


class _Runner:
    """An event loop on a background thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="accord-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[None, None, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise SessionClosedError("the session was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # for a wait interrupted by Ctrl-C
            raise

    def call_soon(self, work: Callable[[], object]) -> None:
        """Schedule work without waiting; usable on the loop's own thread, where `run` deadlocks."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        self.run(_finish_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _finish_tasks() -> None:
    """Wait for tasks that other threads wait for: their session has ended, so they end too."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=1.0)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _blocking(
    method: Callable[Concatenate[Session, P], Awaitable[T]],
) -> Callable[Concatenate[SyncSession, P], T]:
    def call(self: SyncSession, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return await method(self._session, *args, **kwargs)

        return self._runner.run(work())

    call.__doc__ = method.__doc__
    return call


def _subscribing(
    method: Callable[Concatenate[Session, P], Subscription],
) -> Callable[Concatenate[SyncSession, P], SyncSubscription]:
    def call(self: SyncSession, /, *args: P.args, **kwargs: P.kwargs) -> SyncSubscription:
        async def work() -> Subscription:
            return await method(self._session, *args, **kwargs).__aenter__()

        return SyncSubscription(self._runner, self._runner.run(work()))

    call.__doc__ = method.__doc__
    return call


def _querying(
    method: Callable[Concatenate[Session, P], Query],
) -> Callable[Concatenate[SyncSession, P], SyncQuery]:
    def call(self: SyncSession, /, *args: P.args, **kwargs: P.kwargs) -> SyncQuery:
        async def work() -> Query:
            return method(self._session, *args, **kwargs)

        return SyncQuery(self._runner, self._runner.run(work()))

    call.__doc__ = method.__doc__
    return call


def _publishing(
    method: Callable[Concatenate[Session, P], Publisher],
) -> Callable[Concatenate[SyncSession, P], SyncPublisher]:
    def call(self: SyncSession, /, *args: P.args, **kwargs: P.kwargs) -> SyncPublisher:
        async def work() -> Publisher:
            return await method(self._session, *args, **kwargs).__aenter__()

        return SyncPublisher(self._runner, self._runner.run(work()))

    call.__doc__ = method.__doc__
    return call


class SyncPublisher:
    """A registered publisher; close it or leave its `with`.

    Handlers are called on the session's own thread: they must not wait for the session.
    """

    def __init__(self, runner: _Runner, publisher: Publisher) -> None:
        self._runner = runner
        self._publisher = publisher
        self.channel = publisher.channel

    @property
    def usage(self) -> Usage:
        return self._publisher.usage

    @property
    def capabilities(self) -> dict[str, Capability]:
        return self._publisher.capabilities

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def on_advice(self, handler: OnAdvice) -> OnAdvice:
        self._runner.call_soon(lambda: self._publisher.on_advice(handler))
        return handler

    def on_usage(self, handler: OnUsage) -> OnUsage:
        self._runner.call_soon(lambda: self._publisher.on_usage(handler))
        return handler

    def publish(self, payload: bytes | str = b"", /, **extras: Any) -> Outcome:
        return self._runner.run(self._publisher.publish(payload, **extras))

    def update(self, *capabilities: Capability, **current: Value) -> None:
        self._runner.run(self._publisher.update(*capabilities, **current))

    def ask_usage(self) -> Usage:
        return self._runner.run(self._publisher.ask_usage())

    def revoke(self) -> None:
        """Withdraw the profile."""
        self._runner.run(self._publisher.revoke())

    def close(self) -> None:
        self.revoke()


class SyncExpected:
    """One expectation of a subscription."""

    def __init__(self, runner: _Runner, expected: Expected) -> None:
        self._runner = runner
        self._expected = expected
        self.id = expected.id

    @property
    def state(self) -> ExpectationState | None:
        return self._expected.state

    @property
    def is_satisfied(self) -> bool:
        return self._expected.is_satisfied

    def wait_for(self, state: str, timeout_s: float | None = None) -> ExpectationState:
        """Wait until the expectation has this state; raises TimeoutError if it does not in time."""
        return self._runner.run(asyncio.wait_for(self._expected.wait_for(state), timeout_s))

    def update(self, expectation: Expectation) -> None:
        self._runner.run(self._expected.update(expectation))

    def suspend(self) -> None:
        self._runner.run(self._expected.suspend())

    def resume(self) -> None:
        self._runner.run(self._expected.resume())

    def revoke(self) -> None:
        self._runner.run(self._expected.revoke())


def _advertising(
    method: Callable[Concatenate[Session, P], Awaitable[Advertisement]],
) -> Callable[Concatenate[SyncSession, P], SyncAdvertisement]:
    def call(self: SyncSession, /, *args: P.args, **kwargs: P.kwargs) -> SyncAdvertisement:
        async def work() -> Advertisement:
            return await method(self._session, *args, **kwargs)

        return SyncAdvertisement(self._runner, self._runner.run(work()))

    call.__doc__ = method.__doc__
    return call


class SyncAdvertisement:
    """An advertisement; holds until `withdraw`, the end of its `with` or the session."""

    def __init__(self, runner: _Runner, advertisement: Advertisement) -> None:
        self._runner = runner
        self._advertisement = advertisement

    @property
    def name(self) -> str:
        return self._advertisement.name

    @property
    def mode(self) -> str:
        return self._advertisement.mode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runner.run(self._advertisement.__aexit__(kind, error, traceback))

    def update(self, rate_hz: float) -> None:
        self._runner.run(self._advertisement.update(rate_hz))

    def withdraw(self) -> None:
        self._runner.run(self._advertisement.withdraw())


class SyncQuery:
    """A running query: iterate with `for`; leaving the loop, or its `with`, ends it."""

    def __init__(self, runner: _Runner, query: Query) -> None:
        self._runner = runner
        self._query = query

    @property
    def stats(self) -> QueryStats:
        return self._query.stats

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[ReceivedEvent]:
        try:
            while events := self._runner.run(self._query.take(_AT_ONCE)):
                yield from events
        finally:
            self._runner.call_soon(self._query.stop)

    def close(self) -> None:
        self._runner.run(self._query.aclose())


class SyncSubscription:
    """An active subscription: iterate with `for`, and close it or leave its `with`."""

    def __init__(self, runner: _Runner, subscription: Subscription) -> None:
        self._runner = runner
        self._subscription = subscription

    @property
    def shed(self) -> int:
        return self._subscription.shed

    @property
    def admitted(self) -> float:
        return self._subscription.admitted

    @property
    def expectations(self) -> tuple[SyncExpected, ...]:
        expectations = self._subscription.expectations
        return tuple(SyncExpected(self._runner, each) for each in expectations)

    def on_state(
        self, handler: Callable[[ExpectationState], object]
    ) -> Callable[[ExpectationState], object]:
        """Call the handler on the session's own thread; it must not wait for the session."""
        self._runner.call_soon(lambda: self._subscription.on_state(handler))
        return handler

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedEvent:
        event = self._runner.run(self._next(None))
        if event is None:
            raise StopIteration
        return event

    def get(self, timeout_s: float | None = None) -> ReceivedEvent | None:
        """The next event, or None if none arrives in time or the session is closed."""
        return self._runner.run(self._next(timeout_s))

    def close(self) -> None:
        self._runner.run(self._subscription.__aexit__(None, None, None))

    async def _next(self, timeout_s: float | None) -> ReceivedEvent | None:
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._subscription)
        except (TimeoutError, StopAsyncIteration):
            return None


def _receiving_feedback(
    method: Callable[Concatenate[Session, P], Answers],
) -> Callable[Concatenate[SyncSession, P], SyncAnswers]:
    def call(self: SyncSession, /, *args: P.args, **kwargs: P.kwargs) -> SyncAnswers:
        async def work() -> Answers:
            return await method(self._session, *args, **kwargs).__aenter__()

        return SyncAnswers(self._runner, self._runner.run(work()))

    call.__doc__ = method.__doc__
    return call


class SyncAnswers(SyncSubscription):
    """Feedback to this client; `SyncSession.respond` replies to it."""

    def __next__(self) -> Answer:
        answer = super().__next__()
        assert isinstance(answer, Answer)
        return answer

    def get(self, timeout_s: float | None = None) -> Answer | None:
        answer = super().get(timeout_s)
        assert answer is None or isinstance(answer, Answer)
        return answer


class SyncSession:
    """`Session` with blocking calls."""

    def __init__(self, runner: _Runner, session: Session) -> None:
        self._runner = runner
        self._session = session

    @property
    def client_id(self) -> str:
        return self._session.client_id

    publish = _blocking(Session.publish)
    request = _blocking(Session.request)
    respond = _blocking(Session.respond)
    channels = _blocking(Session.channels)
    create_channel = _blocking(Session.create_channel)
    delete_channel = _blocking(Session.delete_channel)
    advertise = _advertising(Session.advertise)
    subscribe = _subscribing(Session.subscribe)
    feedback = _receiving_feedback(Session.feedback)
    query = _querying(Session.query)
    publisher = _publishing(Session.publisher)


def _make_sync(
    make: Callable[P, AbstractAsyncContextManager[Session]],
) -> Callable[P, AbstractContextManager[SyncSession]]:
    @contextmanager
    def connected(*args: P.args, **kwargs: P.kwargs) -> Iterator[SyncSession]:
        runner = _Runner()
        try:
            context = make(*args, **kwargs)
            session = runner.run(_enter(context))
            try:
                yield SyncSession(runner, session)
            finally:
                runner.run(_exit(context))
        finally:
            runner.close()

    connected.__doc__ = make.__doc__
    return connected


async def _enter(context: AbstractAsyncContextManager[Session]) -> Session:
    return await context.__aenter__()


async def _exit(context: AbstractAsyncContextManager[Session]) -> None:
    await context.__aexit__(None, None, None)


connect_sync = _make_sync(connect)
