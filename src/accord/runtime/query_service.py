"""`$accord/query`: queries for kept events, and history for subscriptions.

Pages come from the data pipeline. Their events go to the client's outbox like published ones: by
importance, within limits, shaped if necessary, and only as fast as the client accepts them. The
message that ends a page is queued in the same bin after them.

Requests and their validation are in `accord.operations.query`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final

from accord.core.broker.broker import Broker, ClientConnection, make_message
from accord.core.broker.broker_context import NodeRequest
from accord.core.broker.catch_up import CatchUp, PageDemand, page_room
from accord.core.broker.delivery import WAITING, ClientDelivery
from accord.core.broker.kept_messages import result_message
from accord.core.broker.session import MqttSession
from accord.core.model.errors import AccordError
from accord.core.model.units import DEFAULT_IMPORTANCE
from accord.core.mqtt.codes import ProtocolError, Reason
from accord.core.mqtt.properties import END, PAGE, Properties
from accord.core.policy.policies import DEFAULT_GRANT, Entity
from accord.core.queries.messages import Page, QueryHit, ReadBy, encode_token
from accord.core.scheduling.lanes import bin_of
from accord.operations.catalog import encode_answer, encode_error, encode_problem
from accord.operations.operation import FAILED, Request, RequestError
from accord.operations.query import (
    MOST_WITHIN_MS,
    Find,
    Next,
    PageEnd,
    is_single_event,
    permitted,
    read_question,
)
from accord.runtime.logs import get_log
from accord.runtime.pipeline import Pipeline, PipelineError
from accord.runtime.process import Clock

log = get_log(__name__)

_PAGES: Final = 16  # concurrent history pages
_PAGES_OF_ONE: Final = 2
_PART: Final = 20
_ROOM_TIMEOUT_MS: Final = 30_000
_ROOM_POLL_S: Final = 0.05
_GONE: Final = "the requesting client is gone"
_QUERIES: Final = 100  # concurrent, of all clients
_QUERIES_OF_ONE: Final = 4
_POLL_S: Final = 0.01
_SHAPING_POLLS: Final = 1_000


class QueryReply:
    """The reply to one request, sent through the client's outbox in a single bin.

    It is bound to the requesting session, not to a later one of the same name.
    """

    def __init__(self, broker: Broker, request: NodeRequest) -> None:
        self.request = request
        self.session = broker.sessions.get(request.client)
        self.qos = 0
        self._broker = broker
        self._bin = _bin(DEFAULT_IMPORTANCE)
        self._identifiers: tuple[int, ...] = ()
        self._sent: list[ClientDelivery] = []
        topic = request.message.properties.response_topic
        assert topic is not None  # requests without one are refused
        self._topic = topic
        self.can_deliver()

    def can_deliver(self) -> bool:
        """Whether the session is connected and subscribed to the response topic."""
        session = self.session
        if session is None or self._broker.sessions.get(self.request.client) is not session:
            return False
        subscription = session.subscription_to(self._topic)
        if subscription is None or session.connection is None:
            return False
        self.qos = min(subscription.qos, 1)
        self._identifiers = (subscription.identifier,) if subscription.identifier else ()
        return True

    def send(self, found: QueryHit, importance: int) -> None:
        """Queue an event for delivery."""
        session, context = self.session, self._broker.context
        assert session is not None
        correlation_data = self.request.message.properties.correlation_data
        try:
            message = result_message(found, self._topic, correlation_data, context.now_ms)
        except ProtocolError:
            context.counters.count_shed("unreadable in the archive", session.name)
            return
        self._bin = _bin(importance)
        publisher = Entity(found.publisher, node=context.node)
        grant = context.router.query_grant(message, publisher, session.entity)
        delivery = session.deliver_kept(message, self.qos, self._identifiers, grant, self._bin)
        if delivery is not None:
            self._sent.append(delivery)

    async def until_shaped(self) -> None:
        """Wait for events being shaped, so that none arrives after the end of the page."""
        for _ in range(_SHAPING_POLLS):
            if not any(each.stage == WAITING for each in self._sent):
                return
            await asyncio.sleep(_POLL_S)

    def end(self, body: bytes) -> None:
        """Send the message that ends the page."""
        session, context, topic, qos = self.session, self._broker.context, self._topic, self.qos
        if not self.can_deliver():
            return
        assert session is not None
        properties = Properties(
            content_type="application/json",
            correlation_data=self.request.message.properties.correlation_data,
            user=((PAGE, END),),
        )
        message = make_message(topic, body, qos, False, "", context.now_ms, properties)
        context.assign_number(message, context.router.channels.get(topic))
        session.deliver_kept(message, qos, self._identifiers, DEFAULT_GRANT, self._bin)


class QueryService:
    """`due` is called when there is something to send."""

    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        pipeline: Pipeline,
        *,
        committed_offset: Callable[[], int],
        due: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._pipeline = pipeline
        self._committed_offset = committed_offset
        self._due = due
        self._pages: set[asyncio.Task[None]] = set()
        self._queries: dict[asyncio.Task[None], tuple[str, bytes]] = {}
        pipeline.watch_lack(self._set_lack)

    def _set_lack(self, lack: str) -> None:
        self._broker.context.history_problem = f"there is no data pipeline: {lack}" if lack else ""

    def turn(self) -> None:
        """Advance subscriptions that still receive history."""
        broker = self._broker
        if not broker.catch_ups:
            return
        broker.step_catch_ups()
        committed, now_ms = self._committed_offset(), self._clock.now_ms()
        asking: Counter[MqttSession] = Counter(
            each.session for each in broker.catch_ups.values() if each.is_fetching
        )
        for catch_up in broker.catch_ups.values():
            if len(self._pages) >= _PAGES:
                return
            if asking[catch_up.session] >= _PAGES_OF_ONE:
                continue
            wanted = catch_up.next_demand(committed, now_ms)
            if wanted is not None:
                asking[catch_up.session] += 1
                self._start(self._pages, self._continue(catch_up, wanted))

    def take(self, request: NodeRequest, ask: Request[Any]) -> None:
        """Answer a request: start a query, or cancel one."""
        client, correlation = request.client, request.message.properties.correlation_data or b""
        if not isinstance(ask, Find | Next):
            for task, key in list(self._queries.items()):
                if key == (client, correlation):
                    task.cancel()
            return
        of_client = sum(key[0] == client for key in self._queries.values())
        if len(self._queries) >= _QUERIES or of_client >= _QUERIES_OF_ONE:
            raise RequestError(503, "too many queries are under way", retry_s=1)
        task = asyncio.create_task(self._reply(QueryReply(self._broker, request), ask))
        self._queries[task] = (client, correlation)
        task.add_done_callback(self._queries.pop)

    def refuse(self, request: NodeRequest, body: bytes) -> None:
        """End the page that was requested with a problem."""
        self._end(QueryReply(self._broker, request), body)

    async def close(self) -> None:
        tasks = (*self._pages, *self._queries)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    # History of a subscription.

    async def _continue(self, catch_up: CatchUp, wanted: PageDemand) -> None:
        try:
            page = await self._pipeline.page(
                wanted.query,
                cursor=wanted.cursor,
                rows=wanted.rows,
                bytes_=wanted.bytes,
                importance=self._importance(catch_up.session, wanted.query.channel),
            )
        except PipelineError as error:
            now_ms = self._clock.now_ms()
            is_final = error.kind in ("question", "off", "ended")
            catch_up.on_failure(str(error), is_final=is_final, now_ms=now_ms)
            self._abandon(catch_up)
        else:
            await self._deliver(catch_up, page)
        self._due()

    async def _deliver(self, catch_up: CatchUp, page: Page) -> None:
        async for part in self._parts(page.events):
            if not catch_up.deliver_page(part):
                return
        catch_up.finish_page(page.cursor)

    def _abandon(self, catch_up: CatchUp) -> None:
        """End the subscription: none is better than one with an unnoticed gap."""
        if not catch_up.problem or catch_up.is_removed():
            return
        session = catch_up.session
        problem = f"the past of {catch_up.pattern} can't be read: {catch_up.problem}"
        log.error("subscription: ended", client=session.name, problem=problem)
        self._broker.unsubscribe(session, catch_up.pattern)
        if isinstance(session.connection, ClientConnection):
            session.connection.end(Reason.IMPLEMENTATION_SPECIFIC_ERROR, problem, catch_up.pattern)

    # Queries.

    async def _reply(self, reply: QueryReply, question: Find | Next) -> None:
        try:
            body = encode_answer(await self._find(reply, question))
        except AccordError as error:
            body = encode_error(error)
        except Exception as error:
            log.failure("query: failed", error, client=reply.request.client)
            body = encode_problem(FAILED)
        self._end(reply, body)

    async def _find(self, reply: QueryReply, question: Find | Next) -> PageEnd:
        request = reply.request
        ask, cursor = await read_question(question, now_ms=self._clock.now_ms())
        ask = permitted(ask, request.rights, "you")
        within_ms = question.within_ms if isinstance(question, Find) else MOST_WITHIN_MS
        count = files = skipped = size = tail = took_ms = 0
        engine: ReadBy = "tail"
        while True:
            session, rows, bytes_ = await self._room(reply)
            importance = self._importance(session, ask.channel)
            page = await self._pipeline.page(
                ask,
                cursor=cursor,
                rows=min(rows, question.page - count),
                bytes_=bytes_,
                within_ms=within_ms,
                importance=importance,
            )
            events = page.events
            if is_single_event(ask):
                events = tuple(each for each in events if request.may_subscribe(each.channel))
            async for part in self._parts(events):
                if not reply.can_deliver():
                    raise PipelineError("unavailable", _GONE)
                for found in part:
                    reply.send(found, importance)
            count += len(events)
            files, skipped = max(files, page.files), max(skipped, page.files_skipped)
            size, tail = max(size, page.bytes), max(tail, page.tail)
            took_ms += page.took_ms
            engine = page.engine if page.engine != "tail" else engine
            cursor = page.cursor
            is_late = within_ms < MOST_WITHIN_MS and took_ms >= within_ms
            if not cursor or count >= question.page or is_late:
                break
        await reply.until_shaped()
        return PageEnd(
            count=count,
            cursor=encode_token(ask, cursor) or None,
            files=files,
            files_skipped=skipped,
            bytes=size,
            tail=tail,
            took_ms=took_ms,
            engine=engine,
        )

    async def _room(self, reply: QueryReply) -> tuple[MqttSession, int, int]:
        """Wait, with a timeout, until the client has accepted most of what was sent."""
        until_ms = self._clock.now_ms() + _ROOM_TIMEOUT_MS
        while self._clock.now_ms() < until_ms:
            session = reply.session
            if session is None or not reply.can_deliver():
                raise PipelineError("unavailable", _GONE)
            room = page_room(session, reply.qos)
            if room is not None:
                return session, *room
            await asyncio.sleep(_ROOM_POLL_S)
        raise PipelineError("timeout", "the client does not accept more data")

    async def _parts(self, events: Sequence[QueryHit]) -> AsyncIterator[Sequence[QueryHit]]:
        """A few events at a time; others get their turn in between."""
        for start in range(0, len(events), _PART):
            self._broker.context.now_ms = self._clock.now_ms()
            yield events[start : start + _PART]
            self._due()
            await asyncio.sleep(0)

    def _end(self, reply: QueryReply, body: bytes) -> None:
        self._broker.context.now_ms = self._clock.now_ms()
        reply.end(body)
        self._due()

    def _importance(self, session: MqttSession, channel: str) -> int:
        """Importance of a client's query on a filter of channels."""
        view = self._broker.router.policies.view(channel)
        return view.publish_grant(view.query(session.entity)).importance


def _bin(importance: int) -> int:
    return bin_of(importance, 0, 1)
