"""`$accord/query`: queries for kept events, and history for subscriptions.

Pages come from the data pipeline. Their events go to the client's outbox like published ones: by
importance, within limits, shaped if necessary, and only as fast as the client accepts them. The
message that ends a page is queued in the same bin after them.

A request is a JSON object whose `do` selects one of the structs below. `QueryRequest` and its
validation serve MQTT and HTTP.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.core.broker.broker import Broker, ClientConnection, make_message
from accord.core.broker.broker_context import NodeRequest
from accord.core.broker.catch_up import CatchUp, PageDemand, page_room
from accord.core.broker.delivery import WAITING, ClientDelivery
from accord.core.broker.kept_messages import result_message
from accord.core.broker.session import MqttSession
from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import EventError, PredicateError
from accord.core.model.units import DEFAULT_IMPORTANCE, parse_time
from accord.core.monitoring.ledger import event_number
from accord.core.mqtt.codes import ProtocolError, Reason
from accord.core.mqtt.properties import END, PAGE, Properties
from accord.core.policy.policies import DEFAULT_GRANT, Entity
from accord.core.predicates.predicate import parse, parse_xpath
from accord.core.queries.messages import EventQuery, Page, QueryHit, decode_token, encode_token
from accord.core.scheduling.lanes import bin_of
from accord.runtime.logs import get_log
from accord.runtime.pipeline import Pipeline, PipelineError
from accord.runtime.policy_requests import decoding_problem
from accord.runtime.process import Clock

ANY: Final = "#"
MAX_LIMIT: Final = 1 << 40


class QueryRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects events by filter, content and time; or one event by its ID."""

    channel: str | None = None
    where: str | None = None
    xpath: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    order: Literal["newest", "oldest"] = "newest"
    event: str | None = None


def parse_query(question: QueryRequest, *, now_ms: int) -> EventQuery:
    """Raises PipelineError with the location of the problem if the request is invalid."""
    since_ms = _moment(question.since, "since", now_ms)
    until_ms = _moment(question.until, "until", now_ms)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise query_problem("since", "expected a time before `until`")
    if question.limit is not None and not 1 <= question.limit <= MAX_LIMIT:
        raise query_problem("limit", f"expected 1 to {MAX_LIMIT}, got {question.limit}")
    return validate(
        EventQuery(
            channel=_channel(question),
            where=question.where or "",
            xpath=question.xpath or "",
            since_ms=since_ms,
            until_ms=until_ms,
            number=_number(question.event),
            is_newest_first=question.order == "newest",
            limit=question.limit,
        )
    )


def read_cursor(text: str) -> tuple[EventQuery, str]:
    """The query of a page's cursor, and its position; raises PipelineError if invalid."""
    try:
        ask, cursor = decode_token(text)
    except ValueError as error:
        raise query_problem("cursor", str(error)) from None
    # Foreign input: fields that this node never writes make it invalid.
    is_ours = not ask.from_offset and ask.before_offset is None
    is_bounded = 0 < (ask.limit or 1) <= MAX_LIMIT
    if problem_with_filter(ask.channel) or not (is_ours and is_bounded):
        raise query_problem("cursor", "expected the cursor of a page, just as it was given")
    return validate(ask), cursor


def is_single_event(ask: EventQuery) -> bool:
    """Whether the query is for one event ID; rights are checked when its channel is known."""
    return ask.number is not None and ask.channel == ANY


def validate(ask: EventQuery) -> EventQuery:
    """`ask` with its predicate validated; raises PipelineError."""
    if is_single_event(ask) and (ask.where or ask.xpath):
        # Otherwise predicates would reveal the content of events the client may not see.
        raise query_problem(
            "channel", "expected a filter of channels, such as uav/#, with a predicate"
        )
    if ask.where and ask.xpath:
        raise query_problem("xpath", "expected either where or xpath, got both")
    for place, text, read in (("where", ask.where, parse), ("xpath", ask.xpath, parse_xpath)):
        if text:
            try:
                read(text)
            except PredicateError as error:
                raise query_problem(place, error.summary) from None
    return ask


def query_problem(place: str, problem: str) -> PipelineError:
    return PipelineError("question", problem, place)


def _channel(question: QueryRequest) -> str:
    if question.channel is None:
        if question.event is None:
            raise query_problem("channel", "expected a filter of channels, such as uav/#")
        return ANY
    if problem := problem_with_filter(question.channel):
        raise query_problem("channel", problem)
    return question.channel


def _moment(text: str | None, place: str, now_ms: int) -> int | None:
    try:
        return None if text is None else parse_time(text, now_ms=now_ms)
    except ValueError as error:
        raise query_problem(place, str(error)) from None


def _number(event: str | None) -> int | None:
    try:
        return None if event is None else event_number(event)
    except EventError as error:
        raise query_problem("event", error.problem) from None


log = get_log(__name__)

MAX_PAGE: Final = 1_000
MAX_BODY: Final = 1_000_000
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


class Find(QueryRequest, frozen=True, kw_only=True, tag_field="do", tag="find"):
    """Request the first page."""

    page: int = 100


class Next(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="next"):
    """Request the page after the one that returned this cursor."""

    cursor: str
    page: int = 100


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="cancel"):
    """Cancel the query with the same correlation data."""


_DECODER: Final[msgspec.json.Decoder[Find | Next | Stop]] = msgspec.json.Decoder(Find | Next | Stop)


class PageEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a page: its statistics, and the cursor of the next one."""

    ok: bool = True
    count: int
    cursor: str | None
    files: int
    files_skipped: int
    bytes: int
    tail: int
    took_ms: int


class PageFailure(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool = False
    error: str
    place: str = ""


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

    def take(self, request: NodeRequest) -> None:
        """Answer a request."""
        client, correlation = request.client, request.message.properties.correlation_data or b""
        reply = QueryReply(self._broker, request)
        try:
            question = _read(request.message.payload)
        except PipelineError as error:
            self._end(reply, _refusal(error))
            return
        if isinstance(question, Stop):
            for task, key in list(self._queries.items()):
                if key == (client, correlation):
                    task.cancel()
            return
        of_client = sum(key[0] == client for key in self._queries.values())
        if len(self._queries) >= _QUERIES or of_client >= _QUERIES_OF_ONE:
            self._end(reply, PageFailure(error="too many queries are under way"))
            return
        task = asyncio.create_task(self._reply(reply, question))
        self._queries[task] = (client, correlation)
        task.add_done_callback(self._queries.pop)

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
        log.error("subscription ended", client=session.name, problem=problem)
        self._broker.unsubscribe(session, catch_up.pattern)
        if isinstance(session.connection, ClientConnection):
            session.connection.end(Reason.IMPLEMENTATION_SPECIFIC_ERROR, problem, catch_up.pattern)

    # Queries.

    async def _reply(self, reply: QueryReply, question: Find | Next) -> None:
        try:
            end: PageEnd | PageFailure = await self._find(reply, question)
        except PipelineError as error:
            end = _refusal(error)
        except Exception as error:
            log.failure("query failed", error, client=reply.request.client)
            end = PageFailure(error="failed; the log of the node says why")
        self._end(reply, end)

    async def _find(self, reply: QueryReply, question: Find | Next) -> PageEnd:
        request = reply.request
        if not 1 <= question.page <= MAX_PAGE:
            raise query_problem("page", f"expected 1 to {MAX_PAGE}, got {question.page}")
        cursor = ""
        if isinstance(question, Next):
            ask, cursor = await asyncio.to_thread(read_cursor, question.cursor)
        else:
            now_ms = self._clock.now_ms()
            ask = await asyncio.to_thread(parse_query, question, now_ms=now_ms)
        rights = request.rights
        # Overrides whatever a cursor contains.
        ask = replace(ask, without=() if rights is None else rights.denied.subscribe)
        if not is_single_event(ask) and not request.may_subscribe(ask.channel):
            raise query_problem("channel", f"you may not subscribe to {ask.channel}")
        count = files = skipped = size = tail = took_ms = 0
        while True:
            session, rows, bytes_ = await self._room(reply)
            importance = self._importance(session, ask.channel)
            page = await self._pipeline.page(
                ask,
                cursor=cursor,
                rows=min(rows, question.page - count),
                bytes_=bytes_,
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
            cursor = page.cursor
            if not cursor or count >= question.page:
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

    def _end(self, reply: QueryReply, end: PageEnd | PageFailure) -> None:
        self._broker.context.now_ms = self._clock.now_ms()
        reply.end(msgspec.json.encode(end))
        self._due()

    def _importance(self, session: MqttSession, channel: str) -> int:
        """Importance of a client's query on a filter of channels."""
        view = self._broker.router.policies.view(channel)
        return view.publish_grant(view.query(session.entity)).importance


def _read(body: bytes) -> Find | Next | Stop:
    if len(body) > MAX_BODY:
        raise query_problem("request", f"expected at most {MAX_BODY} bytes, got {len(body)}")
    try:
        return _DECODER.decode(body)
    except RecursionError:
        raise query_problem("request", "JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = decoding_problem(error, ("find", "next", "cancel"))
        raise query_problem(problem.place, problem.problem) from None


def _refusal(error: PipelineError) -> PageFailure:
    return PageFailure(error=error.problem, place=error.place)


def _bin(importance: int) -> int:
    return bin_of(importance, 0, 1)
