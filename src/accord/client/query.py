"""`Session.query`: kept events, in pages, and the messages of the query protocol.

A page is requested with the cursor of the previous one, and arrives as one message per event, then
one that ends the page. While the consumer works on a page the next is prefetched, but no more: at
most two are queued here. When the connection breaks inside a page, the page is requested again and
the events received before are filtered out by event ID. So each event is delivered once, in order,
across any number of reconnections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from accord.client.driver import Driver
from accord.client.errors import ClientError, QueryError, read_answer
from accord.client.machine import Phase
from accord.client.machine_io import PublishRequested
from accord.client.messages import Extras, ReceivedEvent, to_message
from accord.client.replies import Replies
from accord.client.resume_point import ago_text, iso_text
from accord.core.model.channels import problem_with_filter
from accord.core.model.units import parse_time
from accord.core.monitoring.ledger import event_id, event_number
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.properties import END, PAGE
from accord.core.queries.messages import ReadBy
from accord.core.router.rights import QUERIES
from accord.operations.query import Cancel, Find, Next, PageEnd

Moment = str | datetime | timedelta


class QueryStats(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a query so far.

    `files` of the archive were opened for a page, `files_skipped` were ruled out beforehand;
    `bytes` is the size of those opened, and `tail` counts events that were scanned because they
    were not archived yet: each is the maximum over the pages. `missing` are events withheld by
    policies or by a slow link. `engine` read the archive.
    """

    events: int = 0
    pages: int = 0
    files: int = 0
    files_skipped: int = 0
    bytes: int = 0
    tail: int = 0
    took_ms: int = 0
    missing: int = 0
    engine: ReadBy = "tail"


def read_page_end(payload: bytes) -> PageEnd:
    """Decode a page end; raises QueryError if the node refused or the reply is malformed."""
    return read_answer(payload, PageEnd, QueryError)


def check_find(find: Find, now_ms: int) -> Find:
    """The request with its event ID in the nodes' form; raises ValueError if it is invalid."""
    if problem := problem_with_filter(find.channel or ""):
        raise ValueError(f"channel: {problem}")
    if find.where is not None and find.xpath is not None:
        raise ValueError("expected one of where and xpath, got both")
    for name, low in (("limit", 1), ("page", 1)):
        value = getattr(find, name)
        if value is not None and value < low:
            raise ValueError(f"{name}: expected at least {low}, got {value}")
    for name in ("since", "until"):
        text = getattr(find, name)
        if text is not None:
            _check_moment(name, text, now_ms)
    if find.as_of is not None and not find.as_of.isdigit():
        _check_moment("as_of", find.as_of, now_ms)
    if find.event is None:
        return find
    return msgspec.structs.replace(find, event=event_id(event_number(find.event)))


def moment_text(moment: Moment | None, name: str, now_ms: int) -> str | None:
    """The text form that nodes read; a duration means that long ago.

    Raises ValueError that states what was expected.
    """
    if moment is None:
        return None
    if isinstance(moment, timedelta):
        return ago_text(abs(moment) // timedelta(milliseconds=1))
    if isinstance(moment, datetime):
        if moment.utcoffset() is None:
            raise ValueError(f"{name}: expected a time with its time zone, got one without")
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    _check_moment(name, moment, now_ms)
    return moment


def _check_moment(name: str, text: str, now_ms: int) -> None:
    try:
        parse_time(text, now_ms=now_ms)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def encode_request(question: Find | Next | Cancel) -> bytes:
    return msgspec.json.encode(question)


def add_page(stats: QueryStats, end: PageEnd, received: int) -> QueryStats:
    """`stats` after one more page, of which `received` events were received."""
    return QueryStats(
        pages=stats.pages + 1,
        files=max(stats.files, end.files),
        files_skipped=max(stats.files_skipped, end.files_skipped),
        bytes=max(stats.bytes, end.bytes),
        tail=max(stats.tail, end.tail),
        took_ms=stats.took_ms + end.took_ms,
        missing=stats.missing + max(end.count - received, 0),
        engine=stats.engine if end.engine == "tail" else end.engine,
    )


JSON: Final = "application/json"
GOODBYE_MS: Final = 2_000

Publishing = Callable[[Publish], Awaitable[object]]


class Query:
    """A running query: iterate with `async for`; `async with` guarantees that it is ended.

    Made by `Session.query`. Leaving it early cancels it at the node. Raises QueryError if the query
    fails or ends early.
    """

    def __init__(
        self,
        driver: Driver,
        replies: Callable[[], Replies],
        publish: Publishing,
        find: Find,
        *,
        timeout_s: float,
    ) -> None:
        self._driver = driver
        self._replies = replies
        self._publish = publish
        self._find = find
        self._page = find.page
        self._timeout_s = timeout_s
        self._waiting: deque[ReceivedEvent] = deque()
        self._seen_ids: set[str] = set()  # IDs of the page's events received so far
        self._newest_ms: int | None = None
        self._received = 0
        self._stats = QueryStats()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._is_over = False
        self._is_entered = False

    @property
    def stats(self) -> QueryStats:
        """Cost of the query so far."""
        return msgspec.structs.replace(self._stats, events=self._received)

    async def __aenter__(self) -> Self:
        self._is_entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the query, and wait for its task."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def __aiter__(self) -> AsyncIterator[ReceivedEvent]:
        # Leaving a loop closes a generator, but does not notify a plain iterator.
        return self if self._is_entered else self._all()

    async def __anext__(self) -> ReceivedEvent:
        events = await self.take(1)
        if not events:
            raise StopAsyncIteration
        return events[0]

    async def take(self, most: int) -> list[ReceivedEvent]:
        """The next events, as soon as there are any; empty at the end."""
        if self._task is None and not self._is_over:
            self._task = asyncio.create_task(self._fetch())
        while not self._waiting and not self._is_over:
            self._arrived.clear()
            await self._arrived.wait()
        if not self._waiting and self._error is not None:
            raise self._error.with_traceback(None)
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._room.set()
        return taken

    def stop(self, error: ClientError | None = None) -> None:
        """End the query; events already received are kept only if an error follows them."""
        if self._task is not None:
            self._task.cancel()
        if not self._is_over:
            self._error = error
        if error is None:
            self._waiting.clear()
        self._end()

    # -------------------------------------------------------------------------------------- inside

    async def _all(self) -> AsyncIterator[ReceivedEvent]:
        try:
            while events := await self.take(1):
                yield events[0]
        finally:
            self.stop()

    def _end(self) -> None:
        self._is_over = True
        self._arrived.set()

    async def _fetch(self) -> None:
        """Fetch page after page, as the queue has space."""
        try:
            cursor: str | None = ""
            while cursor is not None:
                while len(self._waiting) > self._page:
                    self._room.clear()
                    await self._room.wait()
                end = await self._fetch_page(cursor)
                if end.cursor and end.cursor == cursor:
                    raise QueryError("the server returned the same page again")
                cursor = None if self._is_enough() else end.cursor or None
        except Exception as error:  # raised to the consumer
            self._error = error
        finally:
            self._end()

    async def _fetch_page(self, cursor: str) -> PageEnd:
        """Fetch one page, with as many requests as it takes."""
        is_again = False
        while True:
            answer = _Answer(self._accept)
            is_whole = await self._request_page(cursor, answer)
            if is_whole:
                break
            is_again = True
        end = answer.end.result()
        self._stats = add_page(self._stats, end, answer.events)
        if not is_again:  # if the first page was requested twice, the next may overlap it
            self._seen_ids.clear()
        return end

    async def _request_page(self, cursor: str, answer: _Answer) -> bool:
        """Request a page; returns whether it arrived completely, or the connection broke."""
        replies = self._replies()
        topic = await replies.topic()
        with replies.expect(answer) as correlation_data:
            next_connection = self._driver.next_connection
            try:
                await self._publish(self._message(cursor, topic, correlation_data))
                return await self._wait_page(answer, next_connection)
            finally:
                if not answer.end.done():
                    self._cancel(topic, correlation_data)

    async def _wait_page(self, answer: _Answer, next_connection: asyncio.Future[None]) -> bool:
        waited: set[asyncio.Future[Any]] = {answer.end, next_connection}
        while True:
            before = answer.events
            done, _ = await asyncio.wait(
                waited, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if next_connection.done():
                # An error may be caused by the disconnection, so only a page counts.
                return answer.end.done() and answer.end.exception() is None
            if done:
                answer.end.result()  # or raises its error
                return True
            is_connected = self._driver.machine.phase is Phase.CONNECTED
            if is_connected and answer.events == before:
                raise QueryError(f"no answer for {self._timeout_s:g} s")

    def _message(self, cursor: str, topic: str, correlation_data: bytes) -> Publish:
        if cursor:
            return _request(Next(cursor=cursor, page=self._page), topic, correlation_data)
        find = self._find
        if self._newest_ms is not None and find.order == "newest":
            # A repeated request: exclude events published since the first one.
            find = msgspec.structs.replace(find, until=iso_text(self._newest_ms + 1))
        return _request(find, topic, correlation_data)

    def _cancel(self, topic: str, correlation_data: bytes) -> None:
        message = _request(Cancel(), topic, correlation_data)
        self._driver.request_nowait(
            lambda token: self._driver.handle(PublishRequested(token, message, GOODBYE_MS))
        )

    def _accept(self, event: ReceivedEvent) -> None:
        if self._is_over or self._is_enough() or event.id in self._seen_ids:
            return
        if event.id:
            self._seen_ids.add(event.id)
        if self._newest_ms is None:
            self._newest_ms = event.received_ms
        self._received += 1
        self._waiting.append(event)
        self._arrived.set()

    def _is_enough(self) -> bool:
        return self._find.limit is not None and self._received >= self._find.limit


class _Answer:
    """The events of one page, as received for one request."""

    def __init__(self, accept: Callable[[ReceivedEvent], None]) -> None:
        self._accept = accept
        self.events = 0
        self.end: asyncio.Future[PageEnd] = asyncio.get_running_loop().create_future()

    def on_reply(self, event: ReceivedEvent) -> None:
        if self.end.done():
            return
        if event.is_kept or (PAGE, END) not in event.properties.user:
            self.events += 1
            self._accept(event)
            return
        try:
            self.end.set_result(read_page_end(event.payload))
        except QueryError as error:
            self.fail(error)

    def fail(self, error: ClientError) -> None:
        if not self.end.done():
            self.end.set_exception(error)
            self.end.exception()  # retrieved: there may be no waiter left


def _request(question: Find | Next | Cancel, topic: str, correlation_data: bytes) -> Publish:
    extras = Extras(
        qos=1, content_type=JSON, response_topic=topic, correlation_data=correlation_data
    )
    return to_message(QUERIES, encode_request(question), {}, extras)
