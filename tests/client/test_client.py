"""The client against real brokers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import pytest
from benchmarks.ports import free_port

import accord
from accord.client.address import Address
from accord.client.errors import ConnectionFailedError, RefusedError
from accord.client.messages import ReceivedEvent
from accord.client.session import Session
from accord.client.subscription import Subscription
from accord.client.transport import Stream, transport_with
from accord.core.model.document import Document
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.packets import Will
from tests.brokers import HOST, start_mosquitto
from tests.certificates import make_certificate
from tests.client.broker import TestBroker

LIMIT_S = 60.0


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(limited())


class Cutter:
    """A transport whose connections the test can cut."""

    def __init__(self) -> None:
        self._connect = transport_with(None)
        self._stream: Stream | None = None
        self.opened = 0

    async def open(self, address: Address) -> Stream:
        self._stream = await self._connect(address)
        self.opened += 1
        return self._stream

    async def cut(self) -> None:
        assert self._stream is not None
        await self._stream.close()


async def collect(events: Subscription, number: int) -> list[ReceivedEvent]:
    return [await anext(events) for _ in range(number)]


def calm() -> float:
    """Chance for tests: attempts to reconnect come as soon as they may."""
    return 0.0


# ------------------------------------------------------------------------------- an intact network


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_events_arrive_as_they_were_published(broker_url: str, qos: int) -> None:
    async def test() -> None:
        async with (
            accord.connect(broker_url) as session,
            session.subscribe("as/+", qos=qos) as events,
        ):
            for number in range(50):
                await session.publish(
                    "as/published", b"%d" % number, qos=qos, n=number, platform="UAV", ratio=0.5
                )
            received = await collect(events, 50)
        assert [event.payload for event in received] == [b"%d" % number for number in range(50)]
        assert received[7].attributes == {"n": 7, "platform": "UAV", "ratio": 0.5}
        assert {event.qos for event in received} == {qos}
        assert received[0].channel == "as/published"

    run(test)


def test_fields_of_an_event_arrive_too(broker_url: str) -> None:
    async def test() -> None:
        async with accord.connect(broker_url) as session, session.subscribe("fields") as events:
            await session.publish(
                "fields",
                "é",
                key="track-7",
                deadline_ms=60_000,
                metadata="<m><a>1</a></m>",
                content_type="text/plain",
            )
            event = await anext(events)
        assert (event.key, event.text) == ("track-7", "é")
        assert event.metadata == Document(b"<m><a>1</a></m>")
        assert event.values == {"a": 1}
        assert event.deadline_ms is not None
        assert 0 < event.deadline_ms <= 60_000
        assert event.properties.content_type == "text/plain"
        assert event.problem is None

    run(test)


def test_overlapping_subscriptions_each_get_their_own(broker_url: str) -> None:
    async def test() -> None:
        async with (
            accord.connect(broker_url) as session,
            session.subscribe("over/#") as wide,
            session.subscribe("over/lapping") as narrow,
            session.subscribe("other") as other,
        ):
            await session.publish("over/lapping", b"1")
            await session.publish("over", b"2")
            await session.publish("other", b"3")
            assert [event.payload for event in await collect(wide, 2)] == [b"1", b"2"]
            assert (await anext(narrow)).payload == b"1"
            assert (await anext(other)).payload == b"3"

    run(test)


def test_a_retained_event_waits_for_its_subscriber(broker_url: str) -> None:
    async def test() -> None:
        async with accord.connect(broker_url) as session:
            await session.publish("retained/a", b"old", retain=True, n=1)
            await session.publish("retained/a", b"new", retain=True, n=2)
            async with session.subscribe("retained/+") as events:
                event = await anext(events)
            assert (event.payload, event.retain, event.attributes) == (b"new", True, {"n": 2})
            await session.publish("retained/a", b"", retain=True)

    run(test)


def test_large_events(broker_url: str) -> None:
    async def test() -> None:
        payload = bytes(range(256)) * 4_000
        async with accord.connect(broker_url) as session, session.subscribe("large") as events:
            for _ in range(3):
                await session.publish("large", payload)
            assert all(event.payload == payload for event in await collect(events, 3))

    run(test)


def test_many_publications_at_once(broker_url: str) -> None:
    async def test() -> None:
        async with accord.connect(broker_url) as session, session.subscribe("many") as events:
            tasks = [session.publish("many", b"%d" % number, qos=2) for number in range(300)]
            await asyncio.gather(*tasks)
            payloads = [event.payload for event in await collect(events, 300)]
        assert sorted(payloads, key=int) == [b"%d" % number for number in range(300)]

    run(test)


def test_a_slow_consumer_gets_everything_and_holds_little(broker_url: str) -> None:
    async def test() -> None:
        async with (
            accord.connect(broker_url, receive_maximum=20) as consumer,
            accord.connect(broker_url) as publisher,
            consumer.subscribe("slow", queue=10) as events,
        ):
            for number in range(200):
                await publisher.publish("slow", b"%d" % number)
            received = []
            for _ in range(200):
                received.append(await anext(events))
                await asyncio.sleep(0)
        assert [event.payload for event in received] == [b"%d" % number for number in range(200)]
        assert events.shed == 0

    run(test)


def test_a_shared_subscription_divides_the_events(broker_url: str) -> None:
    async def test() -> None:
        async with (
            accord.connect(broker_url) as one,
            accord.connect(broker_url) as other,
            one.subscribe("$share/group/work/+") as some,
            other.subscribe("$share/group/work/+") as rest,
        ):
            for number in range(20):
                await one.publish("work/a", b"%d" % number)
            received: set[bytes] = set()

            async def work(events: Subscription) -> None:
                async for event in events:
                    assert event.payload not in received
                    received.add(event.payload)

            workers = [asyncio.create_task(work(events)) for events in (some, rest)]
            while len(received) < 20:
                await asyncio.sleep(0.01)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    run(test)


def test_no_local_and_unsubscribing(broker_url: str) -> None:
    async def test() -> None:
        async with accord.connect(broker_url) as one, accord.connect(broker_url) as other:
            async with one.subscribe("local", no_local=True) as events:
                await one.publish("local", b"mine")
                await other.publish("local", b"theirs")
                assert (await anext(events)).payload == b"theirs"
            async with one.subscribe("local") as events:
                await one.publish("local", b"again")
                assert (await anext(events)).payload == b"again"

    run(test)


def test_request_and_response(broker_url: str) -> None:
    async def test() -> None:
        async with (
            accord.connect(broker_url) as server,
            accord.connect(broker_url) as client,
            server.subscribe("svc/upper") as requests,
        ):

            async def serve() -> None:
                async for request in requests:
                    await server.respond(request, request.payload.upper(), ok=True)

            serving = asyncio.create_task(serve())
            replies = await asyncio.gather(
                *(client.request("svc/upper", f"text {n}") for n in range(10))
            )
            assert [reply.text for reply in replies] == [f"TEXT {n}" for n in range(10)]
            assert replies[0].attributes == {"ok": True}
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    run(test)


def test_a_predicate_selects_at_the_server(broker: TestBroker, broker_url: str) -> None:
    if broker.kind != "accord":
        pytest.skip("goes beyond MQTT")

    async def test() -> None:
        async with (
            accord.connect(broker_url) as session,
            session.subscribe("where/+", where="altitude_m > 300 AND platform = 'UAV'") as high,
            session.subscribe("where/a", xpath="/m/a = 2") as second,
        ):
            for altitude_m in (100, 400, 200, 500):
                await session.publish("where/a", platform="UAV", altitude_m=altitude_m)
            for number in (1, 2):
                await session.publish("where/a", metadata=f"<m><a>{number}</a></m>")
            assert [event.attributes["altitude_m"] for event in await collect(high, 2)] == [
                400,
                500,
            ]
            assert (await anext(second)).values == {"a": 2}
            with pytest.raises(RefusedError, match="character") as caught:
                async with session.subscribe("where/b", where="altitude_m >"):
                    pass
            assert caught.value.explanation

    run(test)


def test_websocket(broker: TestBroker) -> None:
    async def test() -> None:
        async with (
            accord.connect(broker.websocket_url) as session,
            session.subscribe("web/socket") as events,
        ):
            await session.publish("web/socket", bytes(20_000), n=1)
            event = await anext(events)
            assert (len(event.payload), event.attributes) == (20_000, {"n": 1})

    run(test)


def test_a_server_that_does_not_speak_websocket_is_an_error(broker: TestBroker) -> None:
    async def test() -> None:
        url = f"ws://{HOST}:{broker.port}/mqtt"
        with pytest.raises(ConnectionFailedError, match="does not speak WebSocket"):
            async with accord.connect(url, connect_timeout_s=5):
                pass

    run(test)


def test_taking_over_ends_the_other_session(broker: TestBroker, broker_url: str) -> None:
    if broker.kind == "mosquitto":
        pytest.skip("mosquitto closes the connection without saying why")

    async def test() -> None:
        async with (
            accord.connect(broker_url, client_id="twice") as first,
            first.subscribe("taken") as events,
            accord.connect(broker_url, client_id="twice"),
        ):
            with pytest.raises(RefusedError) as caught:
                await anext(events)
            assert caught.value.reason == Reason.SESSION_TAKEN_OVER

    run(test)


def test_a_will_is_published_for_a_client_that_is_cut_off(broker_url: str) -> None:
    async def test() -> None:
        cutter = Cutter()
        will = Will("will", b"gone", 1)
        async with (
            accord.connect(broker_url) as watcher,
            watcher.subscribe("will") as events,
            accord.connect(broker_url, will=will, transport=cutter.open, random=calm),
        ):
            await cutter.cut()
            assert (await anext(events)).payload == b"gone"

    run(test)


# --------------------------------------------------------------------------------- errors at start


def test_nobody_listens() -> None:
    async def test() -> None:
        with pytest.raises(ConnectionFailedError, match=f"can't connect to mqtt://{HOST}:"):
            async with accord.connect(f"mqtt://{HOST}:{free_port()}"):
                pass

    run(test)


def test_a_server_that_says_no() -> None:
    async def test(url: str) -> None:
        with pytest.raises(RefusedError, match="refused the connection: not authorized") as caught:
            async with accord.connect(url):
                pass
        assert caught.value.reason == Reason.NOT_AUTHORIZED

    with start_mosquitto("allow_anonymous false") as broker:
        run(lambda: test(f"mqtt://{broker.host}:{broker.port}"))


def test_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    port = free_port()
    trusting = ssl.create_default_context(cafile=certificate)

    async def test() -> None:
        url = f"mqtts://localhost:{port}"
        async with (
            accord.connect(url, tls=trusting) as session,
            session.subscribe("secret") as events,
        ):
            await session.publish("secret", b"hidden")
            assert (await anext(events)).payload == b"hidden"
        with pytest.raises(ConnectionFailedError, match=r"is not trusted .* with `tls="):
            async with accord.connect(url):
                pass

    config = f"user root\nlistener {port} {HOST}\ncertfile {certificate}\nkeyfile {key}"
    with start_mosquitto(config):
        run(test)


# ----------------------------------------------------------------------------------- cut and mended


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_that_is_cut_off_loses_nothing(broker_url: str, qos: int) -> None:
    async def test() -> None:
        cutter = Cutter()
        topic = f"cut/publisher/{qos}"
        async with (
            accord.connect(broker_url) as watcher,
            watcher.subscribe(topic, qos=2) as events,
            accord.connect(broker_url, transport=cutter.open, random=calm) as session,
        ):
            received: list[bytes] = []

            async def watch() -> None:
                async for event in events:
                    received.append(event.payload)

            watching = asyncio.create_task(watch())
            for number in range(60):
                publishing = asyncio.create_task(session.publish(topic, b"%d" % number, qos=qos))
                if number % 10 == 5:
                    await asyncio.sleep(0)
                    await cutter.cut()
                await publishing
            await session.publish(topic, b"end", qos=qos)
            while not received or received[-1] != b"end":
                await asyncio.sleep(0.01)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        assert cutter.opened >= 6
        expected = [b"%d" % number for number in range(60)]
        assert set(received) == {*expected, b"end"}
        if qos == 2:
            assert received == [*expected, b"end"]

    run(test)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_subscriber_that_is_cut_off_loses_nothing(broker_url: str, qos: int) -> None:
    async def test() -> None:
        cutter = Cutter()
        topic = f"cut/subscriber/{qos}"
        async with (
            accord.connect(
                broker_url, transport=cutter.open, random=calm, receive_maximum=5
            ) as session,
            accord.connect(broker_url) as publisher,
            session.subscribe(topic, qos=qos) as events,
        ):
            received: list[bytes] = []
            for number in range(60):
                await publisher.publish(topic, b"%d" % number, qos=2)
            while len(set(received)) < 60:
                received.append((await anext(events)).payload)
                if len(received) in (10, 20, 40):
                    opened = cutter.opened
                    await cutter.cut()
                    while cutter.opened == opened:
                        await asyncio.sleep(0.01)
        expected = [b"%d" % number for number in range(60)]
        assert [each for at, each in enumerate(received) if each not in received[:at]] == expected
        if qos == 2:
            assert received == expected

    run(test)


def test_a_restarted_server_is_found_again(own_broker: TestBroker) -> None:
    """After `kill` mosquitto has forgotten the session: subscriptions are made again."""

    async def test() -> None:
        async with (
            accord.connect(own_broker.url, random=calm) as session,
            session.subscribe("again") as events,
        ):
            await session.publish("again", b"before")
            assert (await anext(events)).payload == b"before"
            own_broker.kill()
            publishing = asyncio.create_task(session.publish("again", b"meanwhile"))
            own_broker.start()
            await publishing
            await session.publish("again", b"after")
            received = [event.payload for event in await collect(events, 2)]
            assert received == [b"meanwhile", b"after"]

    run(test)


async def _until_resumed(session: Session) -> None:
    await session.publish("probe")


def test_a_session_outlives_its_process_and_the_servers(own_broker: TestBroker) -> None:
    async def test() -> None:
        def durable() -> AbstractAsyncContextManager[Session]:
            return accord.connect(own_broker.url, client_id="durable", clean_start=False)

        async with durable() as session, session.subscribe("kept/+", keep=True):
            pass
        async with accord.connect(own_broker.url) as publisher:
            for number in range(10):
                await publisher.publish("kept/a", b"%d" % number)
        own_broker.stop()
        own_broker.start()
        async with durable() as session, session.subscribe("kept/+", keep=True) as events:
            first = await collect(events, 5)
        async with durable() as session:
            await _until_resumed(session)
            async with session.subscribe("kept/+") as events:
                rest = await collect(events, 5)
        received = [event.payload for event in first + rest]
        assert received == [b"%d" % number for number in range(10)]

    run(test)
