"""MQTT over WebSocket, as clients see it that look at the messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import websockets
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

import accord
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    TopicFilter,
)
from accord.core.mqtt.wire import Framer
from accord.core.router.rights import EVERYTHING
from accord.runtime.addresses import SocketAddress
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.users import User, Users, hash_password

LOOPBACK = SocketAddress("127.0.0.1", 0)
LARGE = 200_000  # more than a node writes in one piece without looking at it


@asynccontextmanager
async def a_node(
    origins: tuple[str, ...] = (), users: Users | None = None
) -> AsyncIterator[tuple[str, str]]:
    """Its addresses for plain clients and for those over WebSocket."""
    listeners = (ListenerSettings(LOOPBACK), ListenerSettings(LOOPBACK, is_websocket=True))
    users = users or Users(anonymous=EVERYTHING)
    settings = Settings(listeners=listeners, origins=origins, statistics_s=0)
    async with Node(settings, users) as node:
        plain, websocket = (address.port for address in node.addresses)
        yield f"mqtt://127.0.0.1:{plain}", f"ws://127.0.0.1:{websocket}/mqtt"


def packets_in(message: str | bytes) -> list[Packet]:
    """Of one WebSocket message, which holds nothing but whole packets."""
    assert isinstance(message, bytes)
    framer = Framer(10_000_000)
    packets = [decode(first, body, V5) for first, body in framer.feed(message)]
    assert sum(len(encode(packet, V5)) for packet in packets) == len(message)
    return packets


def payloads_of(number: int) -> bytes:
    return b"%06d" % number + b"x" * (LARGE if number % 100 == 50 else number)


async def read_burst(sent: Sequence[bytes], qos: int) -> list[bytes]:
    """What a client gets of what another publishes at once; each packet is a message."""
    received: list[bytes] = []
    async with a_node() as (plain, websocket), accord.connect(plain) as publisher:
        protocol = [Subprotocol("mqtt")]
        async with websockets.connect(websocket, subprotocols=protocol, max_size=None) as socket:
            # What a client sends may still come in any pieces.
            subscribe = encode(Subscribe(1, (TopicFilter("burst", qos),)), V5)
            first = encode(Connect("reader"), V5) + subscribe[:3]
            await socket.send(first)
            await socket.send(subscribe[3:])
            for expected in (Connack, Suback):
                [packet] = packets_in(await socket.recv())
                assert isinstance(packet, expected)
            await asyncio.gather(*(publisher.publish("burst", each, qos=qos) for each in sent))
            while len(received) < len(sent):
                [packet] = packets_in(await socket.recv())
                assert isinstance(packet, Publish)
                received.append(packet.payload)
                if packet.packet_id:
                    await socket.send(encode(Puback(packet.packet_id), V5))
    return received


def test_each_message_holds_one_packet() -> None:
    sent = [payloads_of(number) for number in range(400)]
    assert sorted(asyncio.run(read_burst(sent, 0))) == sent
    assert sorted(asyncio.run(read_burst(sent, 1))) == sent


SITE = "https://ops.example.org"
SITES = (SITE,)


@pytest.mark.parametrize(
    ("origin", "origins", "has_users", "is_welcome"),
    [
        (None, (), False, True),
        (None, SITES, True, True),
        ("http://localhost:8080", (), False, True),
        ("http://localhost:8080", SITES, True, True),
        ("http://[::1]", (), False, True),
        (SITE, (), False, False),
        ("null", (), False, False),
        ("file://", (), False, False),
        ("http://[bad", (), False, False),
        (SITE, (), True, True),  # who has no password can do no harm
        (SITE, SITES, False, True),
        (SITE + ":8443", SITES, False, False),
        ("http://ops.example.org", SITES, False, False),
        ("https://evil.example", SITES, False, False),
        ("https://evil.example", SITES, True, False),
        ("https://evil.example", ("*",), False, True),
        ("null", ("*",), False, True),
        ("null", ("null",), False, True),
    ],
)
def test_whose_pages_may_connect(
    origin: str | None, origins: tuple[str, ...], has_users: bool, is_welcome: bool
) -> None:
    async def main() -> bytes | None:
        users = Users([User("ann", hash_password("x"))]) if has_users else None
        async with a_node(origins, users) as (_, url):
            said = None if origin is None else Origin(origin)
            protocol = [Subprotocol("mqtt")]
            try:
                async with websockets.connect(url, subprotocols=protocol, origin=said):
                    return None
            except InvalidStatus as error:
                return b"%d %s" % (error.response.status_code, error.response.body)

    refusal = b"403 pages of other sites may not connect here, unless [listen] origins has them\n"
    assert asyncio.run(main()) == (None if is_welcome else refusal)
