"""The asyncio client of Python programs, unchanged: aiomqtt."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import aiomqtt
import pytest
from aiomqtt import Client, Message, ProtocolVersion
from paho.mqtt.packettypes import PacketTypes

from tests.brokers import Broker, accord_only
from tests.scenarios.properties import properties_of

V311: Final = ProtocolVersion.V311
V5: Final = ProtocolVersion.V5
WAIT_S: Final = 15.0


@pytest.fixture(params=[V311, V5], ids=["3.1.1", "5.0"])
def protocol(request: pytest.FixtureRequest) -> ProtocolVersion:
    chosen: ProtocolVersion = request.param
    return chosen


only_5: Final = pytest.mark.parametrize("protocol", [V5], ids=["5.0"])


def _client(broker: Broker, protocol: ProtocolVersion, **options: Any) -> Client:
    return Client(broker.host, broker.port, protocol=protocol, **options)


def _run(work: Coroutine[Any, Any, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WAIT_S * 2):
            await work

    asyncio.run(within())


async def _next(client: Client) -> Message:
    async with asyncio.timeout(WAIT_S):
        return await anext(aiter(client.messages))


async def _take(client: Client, topic: str, payload: bytes, qos: int) -> Message:
    message = await _next(client)
    assert (str(message.topic), message.payload, message.qos) == (topic, payload, qos)
    return message


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publish_and_subscribe(
    broker: Broker, protocol: ProtocolVersion, topic: str, qos: int
) -> None:
    async def talk() -> None:
        async with _client(broker, protocol) as sub, _client(broker, protocol) as pub:
            await sub.subscribe(topic, qos)
            for number in range(20):
                await pub.publish(topic, b"%d" % number, qos)
            for number in range(20):
                await _take(sub, topic, b"%d" % number, qos)

    _run(talk())


def test_over_websocket(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    port = int(broker.websocket_url.split(":")[2].split("/")[0])

    async def talk() -> None:
        async with Client(
            broker.host, port, protocol=protocol, transport="websockets", websocket_path="/mqtt"
        ) as client:
            await client.subscribe(topic, 1)
            await client.publish(topic, b"x", 1)
            await _take(client, topic, b"x", 1)

    _run(talk())


def test_wildcards_and_unsubscribe(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    async def talk() -> None:
        async with _client(broker, protocol) as client:
            await client.subscribe(f"{topic}/+")
            await client.subscribe(f"{topic}/a/#")
            await client.publish(f"{topic}/b", b"1", 1)
            await client.publish(f"{topic}/a/b/c", b"2", 1)
            await _take(client, f"{topic}/b", b"1", 0)
            await _take(client, f"{topic}/a/b/c", b"2", 0)
            await client.unsubscribe(f"{topic}/+")
            await client.publish(f"{topic}/b", b"3", 1)
            await client.publish(f"{topic}/a/b", b"4", 1)
            await _take(client, f"{topic}/a/b", b"4", 0)

    _run(talk())


def test_retained(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    async def talk() -> None:
        async with _client(broker, protocol) as client:
            await client.publish(topic, b"x", 1, retain=True)
            await client.subscribe(topic, 1)
            assert (await _take(client, topic, b"x", 1)).retain

    _run(talk())


def test_a_session_is_resumed(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    name = f"aio-{protocol.value}-{topic.replace('/', '-')}"
    stays: dict[str, Any] = {"identifier": name}
    if protocol == V5:
        expiry = properties_of(PacketTypes.CONNECT, SessionExpiryInterval=3600)
        stays |= {"clean_start": False, "properties": expiry}
    else:
        stays["clean_session"] = False

    async def talk() -> None:
        async with _client(broker, protocol, **stays) as sub:
            await sub.subscribe(topic, 2)
        async with _client(broker, protocol) as pub:
            for number in range(6):
                await pub.publish(topic, b"%d" % number, 1 + number % 2)
        async with _client(broker, protocol, **stays) as sub:
            # QoS 2 messages are handed over when their flow is complete: the levels may mix.
            arrived = [await _next(sub) for _ in range(6)]
            for qos in (1, 2):
                payloads = [message.payload for message in arrived if message.qos == qos]
                assert payloads == [b"%d" % n for n in range(6) if 1 + n % 2 == qos]

    _run(talk())


def test_a_will(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    """A client that is taken over by its namesake did not say goodbye."""
    will = aiomqtt.Will(topic, b"gone", 1)
    name = topic.replace("/", "-")

    async def replaced() -> None:
        async with (
            _client(broker, protocol, identifier=name, will=will) as first,
            _client(broker, protocol, identifier=name),
        ):
            await _next(first)

    async def talk() -> None:
        async with _client(broker, protocol) as witness:
            await witness.subscribe(topic, 1)
            with pytest.raises(aiomqtt.MqttError):
                await replaced()
            await _take(witness, topic, b"gone", 1)

    _run(talk())


def test_a_large_payload(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    payload = bytes(range(256)) * 4096

    async def talk() -> None:
        async with _client(broker, protocol) as client:
            await client.subscribe(topic, 1)
            await client.publish(topic, payload, 1)
            await _take(client, topic, payload, 1)

    _run(talk())


def test_many_clients_at_once(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    async def listen(ready: asyncio.Semaphore) -> None:
        async with _client(broker, protocol) as client:
            await client.subscribe(topic, 1)
            ready.release()
            await _take(client, topic, b"x", 1)

    async def talk() -> None:
        ready = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(listen(ready))
            for _ in range(20):
                await ready.acquire()
            async with _client(broker, protocol) as pub:
                await pub.publish(topic, b"x", 1)

    _run(talk())


@only_5
def test_properties_arrive_unchanged(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    properties = properties_of(
        PacketTypes.PUBLISH,
        ContentType="image/jpeg",
        ResponseTopic=f"{topic}/answer",
        CorrelationData=b"\x00\xff",
        UserProperty=[("b", "1"), ("a", "2"), ("b", "1")],
    )

    async def talk() -> None:
        async with _client(broker, protocol) as client:
            await client.subscribe(topic, 1)
            await client.publish(topic, b"x", 1, properties=properties)
            arrived: Any = (await _take(client, topic, b"x", 1)).properties
            assert arrived.json() == properties.json()

    _run(talk())


@only_5
def test_a_shared_subscription(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    async def talk() -> None:
        async with _client(broker, protocol) as one, _client(broker, protocol) as two:
            for member in (one, two):
                await member.subscribe(f"$share/g/{topic}", 1)
                await member.subscribe(f"{topic}/end", 1)
            for number in range(10):
                await one.publish(topic, b"%d" % number, 1)
            await one.publish(f"{topic}/end", b"", 1)
            numbers: list[int] = []
            for member in (one, two):
                while str((message := await _next(member)).topic) == topic:
                    assert isinstance(message.payload, bytes)
                    numbers.append(int(message.payload))
            assert sorted(numbers) == list(range(10))

    _run(talk())


@only_5
@accord_only
def test_a_predicate_selects(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    where = properties_of(PacketTypes.SUBSCRIBE, UserProperty=("where", "size BETWEEN 2 AND 3"))

    async def talk() -> None:
        async with _client(broker, protocol) as client:
            await client.subscribe(topic, 1, properties=where)
            for size in range(1, 6):
                attributes = properties_of(PacketTypes.PUBLISH, UserProperty=("size", str(size)))
                await client.publish(topic, b"%d" % size, 1, properties=attributes)
            await _take(client, topic, b"2", 1)
            await _take(client, topic, b"3", 1)
            await client.subscribe(f"{topic}/end")
            await client.publish(f"{topic}/end", b"", 1)
            await _take(client, f"{topic}/end", b"", 0)

    _run(talk())


@only_5
@accord_only
def test_a_bad_predicate_is_refused(broker: Broker, protocol: ProtocolVersion, topic: str) -> None:
    where = properties_of(PacketTypes.SUBSCRIBE, UserProperty=("where", "size BETWEEN"))

    async def talk() -> None:
        async with _client(broker, protocol) as client:
            reasons = await client.subscribe(topic, 1, properties=where)
            assert all(getattr(reason, "is_failure", False) for reason in reasons)

    _run(talk())
