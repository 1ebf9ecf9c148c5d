"""MQTT over WebSocket, as clients see it that look at the messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import websockets
from websockets.typing import Subprotocol

import accord
from accord.core.node.rights import EVERYTHING
from accord.edges.mqtt.codec import decode, encode
from accord.edges.mqtt.codes import V5
from accord.edges.mqtt.framing import Framer
from accord.edges.mqtt.packets import (
    Connack,
    Connect,
    Filter,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
)
from accord.live.addresses import Address
from accord.live.node import Listener, Node, Settings
from accord.live.users import Users

LOOPBACK = Address("127.0.0.1", 0)
LARGE = 200_000  # more than a node writes in one piece without looking at it


@asynccontextmanager
async def a_node() -> AsyncIterator[tuple[str, str]]:
    """Its addresses for plain clients and for those over WebSocket."""
    listeners = (Listener(LOOPBACK), Listener(LOOPBACK, is_websocket=True))
    users = Users(anonymous=EVERYTHING)
    async with Node(Settings(listeners=listeners, statistics_s=0), users) as node:
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
            subscribe = encode(Subscribe(1, (Filter("burst", qos),)), V5)
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
