"""`accord.connect`: a session with a server, for asyncio.

    async with accord.connect("mqtt://localhost") as session:
        async with session.subscribe("uav/+", where="altitude_m > 300") as events:
            await session.publish("uav/imagery", jpeg, platform="UAV", altitude_m=420)
            async for event in events:
                print(event.channel, event.attributes)

The session reconnects by itself when the connection breaks, and continues where it was.

Requests to list and define channels, over `$accord/channels`.

The servers of a session: the last one used first, then the others in turn.
"""

from __future__ import annotations

import asyncio
import random as system_random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakSet

import msgspec

from accord.client.address import Address, parse_address
from accord.client.advertisements import Advertisement, Advertisements
from accord.client.driver import Backoff, Driver
from accord.client.errors import (
    ChannelRefusedError,
    ConnectionFailedError,
    NotTakenError,
    RefusedError,
    SessionClosedError,
    explain,
    read_answer,
)
from accord.client.feedback import Answers
from accord.client.machine import ClientMachine
from accord.client.machine_io import DURABLE_S, PublishRequested, SessionOptions
from accord.client.messages import Extras, Outcome, ReceivedEvent, time_to_send_ms, to_message
from accord.client.quality import Capability, Coupling, Expectation, json_text
from accord.client.quality_session import Expected, Publisher, QualitySession
from accord.client.query import Moment, Query, check_find, moment_text
from accord.client.replies import Replies, SingleReply
from accord.client.resume_point import SINCE
from accord.client.subscription import Subscription
from accord.client.transport import Stream, Transport, transport_with
from accord.core.model.errors import EventError
from accord.core.model.values import Value
from accord.core.mqtt.codec import SHARED, problem_with_subscription
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.packets import Publish, TopicFilter, Will
from accord.core.mqtt.properties import Properties
from accord.core.overlay.channel_directory import Channel
from accord.core.queries.messages import EngineName
from accord.core.router.rights import EXPECTATIONS, FEEDBACK
from accord.operations.channels import CreateChannel, DeleteChannel, ListChannels
from accord.operations.operation import Request, operation_of
from accord.operations.query import Find

T = TypeVar("T")


class Servers:
    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("expected the URL of a server, got none")
        self._addresses = [parse_address(url) for url in urls]
        self.first = self._addresses[0]
        self.opened: Address | None = None  # the last server tried, if it was reached

    async def open(self, transport: Transport, timeout_s: float) -> Stream:
        """Connect to the first server that can be reached; it is tried first from then on."""
        problems = []
        self.opened, cause = None, None
        for address in list(self._addresses):
            try:
                async with asyncio.timeout(timeout_s):
                    stream = await transport(address)
            except (OSError, ValueError) as error:  # ValueError: the host name is malformed
                problems.append(explain(address.url, error))
                cause = error
            except ConnectionFailedError as error:
                problems.append(str(error))
            else:
                self._prefer(self._addresses.index(address))
                self.opened = address
                return stream
        raise ConnectionFailedError("; ".join(problems)) from cause

    def _prefer(self, at: int) -> None:
        self._addresses = self._addresses[at:] + self._addresses[:at]


QUEUE: Final = 1_000
PAGE: Final = 200
MIRROR: Final = "-mirror"  # client id suffix of connections that only subscribe
FOREVER_MS: Final = 10**15


class Session:
    """A session with a server: publishes, subscribes and queries. Made by `connect`."""

    def __init__(
        self, driver: Driver, clock: Callable[[], int], mirrors: Sequence[Driver] = ()
    ) -> None:
        self._driver = driver
        self._mirrors = mirrors  # one per server, for mirrored subscriptions
        self._clock = clock
        self._replies: Replies | None = None
        self._queries: WeakSet[Query] = WeakSet()
        self._quality: QualitySession | None = None
        self._advertisements: Advertisements | None = None

    @property
    def client_id(self) -> str:
        """The client id given, or the one that the server assigned."""
        return self._driver.machine.client_id

    @property
    def server(self) -> Properties:
        """The properties with which the server accepted the connection."""
        return self._driver.server

    def on_connection(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` with False when the connection breaks, and True when it is back."""
        self._driver.on_connection = listener

    async def publish(  # noqa: PLR0913 - each is an option of its own
        self,
        channel: str,
        payload: bytes | str = b"",
        /,
        *,
        qos: int = 1,
        retain: bool = False,
        deadline_ms: int | None = None,
        expiry_s: int | None = None,
        key: str | None = None,
        metadata: str | bytes | None = None,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | None = None,
        feedback: bool = False,
        attributes: Mapping[str, Value] | None = None,
        **more: Value,
    ) -> Outcome:
        """Publish an event; attributes are given by name, or in `attributes`.

        With `feedback`, receivers can reply: their feedback arrives at `Session.feedback`, with the
        `correlation_data` given here.

        Returns when the server has accepted the event (QoS 0: when it is on its way), however often
        the connection breaks until then. Raises RefusedError if the server refuses it, ExpiredError
        if it could not be sent within its deadline, EventError if it is not a valid event.
        """
        if feedback:
            if response_topic is not None:
                raise EventError("feedback", "expected no response topic besides")
            response_topic = FEEDBACK
        extras = Extras(
            qos=qos,
            retain=retain,
            deadline_ms=deadline_ms,
            expiry_s=expiry_s,
            key=key,
            metadata=metadata,
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
        )
        message = to_message(channel, payload, merge_attributes(attributes, more), extras)
        return await self._publish(message, time_to_send_ms(message, extras))

    def subscribe(  # noqa: PLR0913
        self,
        pattern: str,
        *,
        where: str | None = None,
        xpath: str | None = None,
        since: Moment | None = None,
        qos: int = 1,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        queue: int = QUEUE,
        keep: bool = False,
        expect: Sequence[Expectation] = (),
        user: Mapping[str, str] | None = None,
    ) -> Subscription:
        """Subscribe to the channels that `pattern` selects, for events that match the predicate.

        With `since` (`-24h`, an ISO 8601 time, a datetime, a timedelta) kept events from then on
        come first, then live ones, without gaps or duplicates; the former have `is_kept`.

        Enter it with `async with`, which raises RefusedError, with the server's explanation, if the
        subscription is refused. About `queue` events at most wait for the consumer; then no more
        are read. With `keep` the server continues to queue events for this `client_id` after the
        subscription is left; subscribe to the same pattern to receive them. `expect` has the
        quality needed, several being alternatives; the subscription's `expectations` have their
        states. `user` has further user properties for the server.
        """
        if problem := problem_with_subscription(pattern):
            raise ValueError(f"pattern: {problem}")
        for name, value, high in (("qos", qos, 2), ("retain_handling", retain_handling, 2)):
            if not 0 <= value <= high:
                raise ValueError(f"{name}: expected 0 to {high}, got {value}")
        if queue < 1:
            raise ValueError(f"queue: expected at least 1, got {queue}")
        beginning = moment_text(since, SINCE, self._clock())
        predicates = [("where", where), ("xpath", xpath), (SINCE, beginning)]
        pairs = [(name, text) for name, text in predicates if text is not None]
        pairs += (user or {}).items()
        named = _by_id(pattern, expect)
        pairs += [("expect", json_text(each.form(id_))) for id_, each in named.items()]
        chosen = TopicFilter(pattern, qos, no_local, retain_as_published, retain_handling)
        is_shared = pattern.startswith(SHARED)
        mirrors = () if pattern.startswith("$") and not is_shared else self._mirrors
        has_past = any(name == SINCE for name, _ in pairs)
        if mirrors and (keep or named or has_past or no_local or is_shared):
            problem = "expected no `keep`, `since`, `expect`, `no_local`, and no $share"
            raise ValueError(f"mirrored: {problem}")
        subscription = Subscription(
            mirrors or (self._driver,),
            chosen,
            tuple(pairs),
            queue=queue,
            keep=keep,
            clock=self._clock,
            before=self._listener(EXPECTATIONS) if named else None,
            respond=self.respond,
        )
        if named:
            negotiating = self._get_quality()
            subscription.expectations = tuple(
                Expected(negotiating, id_, each, subscription.notify_state)
                for id_, each in named.items()
            )
            for expected in subscription.expectations:
                negotiating.add_expectation(expected)
        return subscription

    def feedback(self, *, qos: int = 1, queue: int = QUEUE, keep: bool = False) -> Answers:
        """Subscribe to feedback to this client: to events it published, and to feedback it gave.

            async with session.feedback() as answers:
                await session.publish("uav/imagery", jpeg, feedback=True)
                async for answer in answers:
                    print(answer.source, answer.payload)
                    await answer.feedback(b"thanks")

        Enter it before publishing the first event with `feedback`; `queue` and `keep` are as for
        `subscribe`.
        """
        if not 0 <= qos <= 2:
            raise ValueError(f"qos: expected 0 to 2, got {qos}")
        if queue < 1:
            raise ValueError(f"queue: expected at least 1, got {queue}")
        return Answers(
            (self._driver,),
            TopicFilter(FEEDBACK, qos),
            (),
            queue=queue,
            keep=keep,
            clock=self._clock,
            respond=self.respond,
        )

    def publisher(
        self,
        channel: str,
        *,
        capabilities: Sequence[Capability],
        couplings: Sequence[Coupling] = (),
        source: str | None = None,
    ) -> Publisher:
        """Register what this client can provide on a channel, and receive advice on what is needed.

        Enter it with `async with`; leaving it withdraws the profile. `source` is the id of the
        client that publishes, if that is another one.
        """
        return Publisher(
            self._get_quality(),
            channel,
            capabilities=list(capabilities),
            couplings=list(couplings),
            source=source,
            publish=self.publish,
        )

    async def advertise(
        self, channel: str, *, rate_hz: float, where: str | None = None, name: str = ""
    ) -> Advertisement:
        """Promise to publish at most `rate_hz` events per second to `channel`, or to a filter.

        Nodes admit subscriptions on that basis. Where the node enforces it, events beyond the rate
        are refused. Advertising again under the same `name` (default: the channel and predicate)
        replaces the promise. Raises AdvertisementError if the node refuses it.
        """
        if self._advertisements is None:
            self._advertisements = Advertisements(self._driver, self.request)
        made = Advertisement(self._advertisements, channel, where, rate_hz, name)
        await self._advertisements.send(made)
        return made

    async def channels(self) -> tuple[Channel, ...]:
        """The channels defined at any node, and whether their requirements are met."""
        return (await self._call(ListChannels(), ChannelRefusedError)).channels

    async def create_channel(  # noqa: PLR0913 - each is an option of its own
        self,
        name: str,
        /,
        *,
        template: str = "routed",
        max_delay_ms: float = 0,
        paths: int = 1,
        resiliency: float = 0.0,
        persistent: bool | str | None = None,
        options: Mapping[str, str | bool | int | float] | None = None,
        replaces: bool = False,
    ) -> Channel:
        """Define a channel, or all channels that a filter selects, at all nodes.

        `persistent` is True, or how far back new subscribers can go (`"7d"`); it may be given among
        the template's `options` as well. Raises ChannelRefusedError if the server refuses.
        """
        options = dict(options or {})
        if persistent is not None and options.setdefault("persistent", persistent) != persistent:
            raise ValueError(f"persistent is {persistent!r}, but another in options")
        request = CreateChannel(
            name=name,
            template=template,
            max_delay_ms=max_delay_ms,
            paths=paths,
            resiliency=resiliency,
            options=options,
            replaces=replaces,
        )
        return await self._call(request, ChannelRefusedError)

    async def delete_channel(self, name: str, /) -> None:
        """Delete a channel, whichever node defined it."""
        await self._call(DeleteChannel(name=name), ChannelRefusedError)

    def query(  # noqa: PLR0913
        self,
        channel: str,
        *,
        where: str | None = None,
        xpath: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
        newest_first: bool = True,
        event: str | None = None,
        engine: EngineName | None = None,
        as_of: str | None = None,
        page: int = PAGE,
        timeout_s: float = 120.0,
    ) -> Query:
        """Query the kept events of the channels that a filter selects, by content and time.

            async for event in session.query("uav/#", where="altitude_m > 300", since="-24h"):
                print(event.id, event.received_ms, event.attributes)

        `since` and `until` bound the time at which the node received the events (`-24h`, `now`, an
        ISO 8601 time, a datetime, a timedelta before now); `event` is the id of a single one.
        `engine` is what shall read the archive. With `as_of`, a version of the archive or a time,
        it is the archive as it was then, without what was not archived. Events arrive in pages of
        `page`, and the next page is fetched while one is processed.
        Raises QueryError if the query fails, or if nothing arrives for `timeout_s`.
        """
        now_ms = self._clock()
        find = Find(
            channel=channel,
            where=where,
            xpath=xpath,
            since=moment_text(since, "since", now_ms),
            until=moment_text(until, "until", now_ms),
            limit=limit,
            order="newest" if newest_first else "oldest",
            event=event,
            engine=engine,
            as_of=as_of,
            page=page if limit is None else min(page, limit),
        )
        find = check_find(find, now_ms)

        def publish(message: Publish) -> Awaitable[object]:
            return self._publish(message, None)

        query = Query(self._driver, self._get_replies, publish, find, timeout_s=timeout_s)
        self._queries.add(query)
        return query

    async def request(
        self,
        channel: str,
        payload: bytes | str = b"",
        /,
        *,
        timeout_s: float = 10.0,
        qos: int = 1,
        attributes: Mapping[str, Value] | None = None,
        **more: Value,
    ) -> ReceivedEvent:
        """Publish a request and return the first reply; raises TimeoutError if none arrives."""
        async with asyncio.timeout(timeout_s):
            replies = self._get_replies()
            topic = await replies.topic()
            reply = SingleReply()
            with replies.expect(reply) as correlation_data:
                await self.publish(
                    channel,
                    payload,
                    qos=qos,
                    response_topic=topic,
                    correlation_data=correlation_data,
                    attributes=merge_attributes(attributes, more),
                )
                return await reply.event

    async def call(self, request: Request[T], /, *, timeout_s: float = 10.0) -> T:
        """Perform an operation of the node, such as `accord.operations.policies.PutPolicy`.

        Raises NotTakenError if the node refuses it, TimeoutError if it does not answer. Events of
        kept channels are queried by `query`.
        """
        return await self._call(request, NotTakenError, timeout_s)

    async def _call(
        self, request: Request[T], error: type[NotTakenError], timeout_s: float = 10.0
    ) -> T:
        operation = operation_of(type(request))
        if operation.streams:
            raise ValueError(f"{operation.name} has several replies: use Session.query")
        body = msgspec.json.encode(request)
        event = await self.request(operation.topic, body, timeout_s=timeout_s)
        answer: T = read_answer(event.payload, operation.answer, error)
        return answer

    async def respond(
        self,
        request: ReceivedEvent,
        payload: bytes | str = b"",
        /,
        *,
        qos: int = 1,
        attributes: Mapping[str, Value] | None = None,
        **more: Value,
    ) -> Outcome:
        """Reply to a request."""
        topic = request.properties.response_topic
        if topic is None:
            raise EventError("response_topic", "the event asks for no answer")
        return await self.publish(
            topic,
            payload,
            qos=qos,
            correlation_data=request.properties.correlation_data,
            attributes=merge_attributes(attributes, more),
        )

    async def _publish(self, message: Publish, within_ms: int | None) -> Outcome:
        def order(token: int) -> None:
            self._driver.handle(PublishRequested(token, message, within_ms))

        try:
            settled = await self._driver.request(order)
        except (ValueError, OverflowError) as error:
            raise EventError("message", str(error)) from None
        explanation = settled.properties.reason_string or ""
        reason = Reason(settled.reason)
        if reason >= Reason.UNSPECIFIED_ERROR:
            what = f"the server refused the event on {message.topic!r}"
            raise RefusedError(reason, explanation, what=what, facts=settled.properties.user)
        return Outcome(reason, explanation, settled.properties.user)

    def _get_replies(self) -> Replies:
        if self._replies is None:
            self._replies = Replies(self.server, self.client_id, self._subscribe_to_replies)
        return self._replies

    def _subscribe_to_replies(self, topic: str) -> Subscription:
        return Subscription(
            (self._driver,),
            TopicFilter(topic, 1),
            (),
            queue=QUEUE,
            keep=False,
            clock=self._clock,
        )

    def _get_quality(self) -> QualitySession:
        if self._quality is None:
            self._quality = QualitySession(self._driver, self._subscribe_to_replies, self.request)
        return self._quality

    def _listener(self, topic: str) -> Callable[[], Awaitable[None]]:
        return lambda: self._get_quality().listen(topic)

    async def _close(self) -> None:
        if self._advertisements is not None:
            await self._advertisements.close()
        if self._quality is not None:
            await self._quality.close()
        for query in list(self._queries):
            query.stop(SessionClosedError("the session was closed"))
        if self._replies is not None:
            await self._replies.close()


@asynccontextmanager
async def connect(  # noqa: PLR0913
    url: str | Sequence[str] = "mqtt://localhost",
    *,
    client_id: str = "",
    username: str | None = None,
    password: str | bytes | None = None,
    tls: ssl.SSLContext | None = None,
    clean_start: bool = True,
    session_expiry_s: int = DURABLE_S,
    keep_alive_s: int = 30,
    will: Will | None = None,
    wait_s: float = 0.0,
    connect_timeout_s: float = 10.0,
    inflight_limit: int = 1_000,
    receive_maximum: int = 1_000,
    maximum_packet_size: int = 64 * 1024 * 1024,
    mirrored: bool = False,
    transport: Transport | None = None,
    random: Callable[[], float] = system_random.random,
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> AsyncIterator[Session]:
    """Connect to the server at `url` (mqtt://, mqtts://, ws:// or wss://), or to one of several.

    Raises ConnectionFailedError if no server is reached within `wait_s` (at least one attempt is
    made at each), and RefusedError if the server refuses. If the connection breaks later, the
    session reconnects silently: to the same server if it can be reached, else to the next, where
    subscriptions are made again. If `mirrored`, subscriptions are at all servers at the same time,
    over connections of their own, so that nothing is missed while one of the servers is up. With
    your own `client_id` and `clean_start=False` the session continues where an earlier process left
    it, if that was at most `session_expiry_s` ago. `transport` replaces the network, `random` (0 to
    1) spreads reconnection attempts, and `clock` gives the time of received events.
    """
    urls = [url] if isinstance(url, str) else url
    servers = Servers(urls)
    if username is None:
        username = servers.first.username
    if password is None:
        password = servers.first.password
    options = SessionOptions(
        client_id=client_id,
        username=username,
        password=password.encode() if isinstance(password, str) else password,
        clean_start=clean_start,
        session_expiry_s=session_expiry_s,
        keep_alive_s=keep_alive_s,
        connect_timeout_ms=round(connect_timeout_s * 1000),
        inflight_limit=inflight_limit,
        receive_maximum=receive_maximum,
        maximum_packet_size=maximum_packet_size,
        will=will,
    )
    chosen = transport or transport_with(tls)

    async def open_stream() -> Stream:
        return await servers.open(chosen, connect_timeout_s)

    driver = Driver(ClientMachine(options), open_stream, Backoff(random))
    mirrors: list[Driver] = []
    for each in urls if mirrored else ():
        opening = partial(Servers([each]).open, chosen, connect_timeout_s)
        mirrors.append(Driver(ClientMachine(_mirror_options(options)), opening, Backoff(random)))
    session = Session(driver, clock, mirrors)
    try:
        try:
            await driver.start(round(wait_s * 1000))
        except ConnectionFailedError as error:
            if servers.opened is None:
                raise
            raise ConnectionFailedError(f"{servers.opened.url}: {error}") from None
        for mirror in mirrors:
            mirror.start_nowait(FOREVER_MS)
        yield session
    finally:
        await session._close()
        for mirror in mirrors:
            await mirror.stop(is_discarded=True)
        await driver.stop(is_discarded=not client_id)


def _mirror_options(options: SessionOptions) -> SessionOptions:
    """Options of a connection that only subscribes."""
    client_id = f"{options.client_id}{MIRROR}" if options.client_id else ""
    return msgspec.structs.replace(
        options, client_id=client_id, clean_start=True, will=None, wants_event_ids=True
    )


def _by_id(pattern: str, expect: Sequence[Expectation]) -> dict[str, Expectation]:
    """The expectations by id, given or generated."""
    named: dict[str, Expectation] = {}
    for number, each in enumerate(expect, start=1):
        id_ = each.id or f"{pattern}#{number}"
        if id_ in named:
            raise ValueError(f"expect: expected different ids, got {id_!r} twice")
        named[id_] = each
    return named


def merge_attributes(
    attributes: Mapping[str, Value] | None, more: Mapping[str, Any]
) -> dict[str, Value]:
    """Merge attributes given in both ways; raises if a name is given twice."""
    both = {**(attributes or {}), **more}
    if len(both) < len(attributes or {}) + len(more):
        twice = next(name for name in more if name in (attributes or {}))
        raise EventError(f"attributes.{twice}", "given twice: by name, and in attributes")
    return both
