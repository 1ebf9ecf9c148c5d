"""Clients say what they are asked to, and answers are read to the byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from benchmarks.mqtt import Mqtt
from benchmarks.nats import Nats
from benchmarks.wire import MOST_UNACKNOWLEDGED
from msgspec import structs

from accord.apps.load.frames import LoadError
from accord.apps.load.mqtt import read_frame
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5
from accord.core.mqtt.packets import Connack, Connect, Publish, Suback, Subscribe, TopicFilter
from accord.core.mqtt.properties import Properties
from accord.core.mqtt.wire import Framer


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(10)
        yield ours, theirs


def test_what_a_client_says(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(encode(Connack(), V5) + encode(Suback(1, (1,)), V5))
    dialect = Mqtt(5, qos=1, session_s=60)
    assert dialect.enter(ours, "me") == MOST_UNACKNOWLEDGED
    dialect.subscribe(ours, "a/+", "x > 1")
    ours.sendall(dialect.message("a", b"xyz", 9))
    ours.sendall(Mqtt(5).message("a", b"xyz", 9))
    packets = [decode(*each, V5) for each in Framer(1_000).feed(theirs.recv(1_000))]
    assert packets == [
        Connect("me", properties=Properties(session_expiry_s=60)),
        Subscribe(1, (TopicFilter("a/+", 1),), Properties(user=(("where", "x > 1"),))),
        Publish("a", b"xyz", 1, packet_id=9),
        Publish("a", b"xyz"),
    ]


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("size", [0, 100, 1_024, 20_000])
def test_packet_identifier_is_where_the_delivery_says(level: int, size: int) -> None:
    message = Mqtt(level, qos=1).message("bench/0", bytes(size), 0xABCD)
    delivery = Mqtt(level, qos=1).delivery("bench/0", size)
    assert delivery.id_at is not None
    assert message[delivery.id_at : delivery.id_at + 2] == b"\xab\xcd"
    assert (message[0], len(message)) == (delivery.head, delivery.size)
    assert Mqtt(level).delivery("bench/0", size).id_at is None


def test_a_long_frame_is_read_whole(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"\x30\xa0\x9c\x01" + bytes(20_000) + b"\xd0\x00")
    assert read_frame(ours) == (0x30, bytes(20_000))
    assert read_frame(ours) == (0xD0, b"")


def test_receive_maximum_is_found_among_other_properties(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    others = Properties(assigned_client_id="id", user=(("a", "b"),), maximum_packet_size=4_096)
    for receive_maximum, expected in ((32, 32), (65_535, MOST_UNACKNOWLEDGED)):
        properties = structs.replace(others, receive_maximum=receive_maximum)
        theirs.sendall(encode(Connack(properties=properties), V5))
        assert Mqtt(5).enter(ours, "me") == expected


def test_refusals_are_said(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"\x20\x02\x00\x05" + b"\x90\x03\x00\x01\x80")
    with pytest.raises(LoadError, match="refused a connection: not authorized"):
        Mqtt(4).enter(ours, "me")
    with pytest.raises(LoadError, match="refused a subscription: unspecified error"):
        Mqtt(4).subscribe(ours, "a")


def test_nats(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b'INFO {"server":"x"}\r\nPONG\r\nPING\r\nPONG\r\n')
    Nats().enter(ours, "me")
    Nats().subscribe(ours, "bench/0")
    assert theirs.recv(1_000).endswith(b"}\r\nPING\r\nSUB bench.0 1\r\nPING\r\n")
    assert Nats().message("bench/0", b"xyz", 0) == b"PUB bench.0 3\r\nxyz\r\n"
    assert Nats().delivery("bench/0", 3).size == len(b"MSG bench.0 1 3\r\nxyz\r\n")
    theirs.sendall(b"-ERR 'too many'\r\n")
    with pytest.raises(LoadError, match="too many"):
        Nats().subscribe(ours, "bench/1")
