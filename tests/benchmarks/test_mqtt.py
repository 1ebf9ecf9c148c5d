"""Frames are what the standards say, and answers are read to the byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from benchmarks.mqtt import Mqtt, frame, read_frame
from benchmarks.nats import Nats
from benchmarks.wire import MOST_UNACKNOWLEDGED, UnexpectedAnswerError


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(10)
        yield ours, theirs


def test_connect() -> None:
    assert Mqtt(4).connect("me") == b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x02me"
    assert Mqtt(5).connect("me") == b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x02me"


def test_subscription_with_predicate() -> None:
    asked = Mqtt(5).subscription("a/+", 7, {"where": "x > 1"})
    assert asked == b"\x82\x18\x00\x07\x0f\x26\x00\x05where\x00\x05x > 1\x00\x03a/+\x00"
    assert Mqtt(4, qos=1).subscription("a") == b"\x82\x06\x00\x01\x00\x01a\x01"


def test_message() -> None:
    assert Mqtt(4).message("a", b"xyz", 9) == b"\x30\x06\x00\x01axyz"
    assert Mqtt(4, qos=1).message("a", b"xyz", 9) == b"\x32\x08\x00\x01a\x00\x09xyz"
    assert Mqtt(5, qos=1).message("a", b"xyz", 9) == b"\x32\x09\x00\x01a\x00\x09\x00xyz"


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
    theirs.sendall(frame(0x30, bytes(20_000)) + b"\xd0\x00")
    assert read_frame(ours) == (0x30, bytes(20_000))
    assert read_frame(ours) == (0xD0, b"")


def test_receive_maximum_is_found_among_other_properties(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    properties = b"\x12\x00\x02id" + b"\x26\x00\x01a\x00\x01b" + b"\x27\x00\x00\x10\x00"
    for extra, expected in ((b"\x21\x00\x20", 32), (b"", MOST_UNACKNOWLEDGED)):
        body = b"\x00\x00" + bytes([len(properties + extra)]) + properties + extra
        theirs.sendall(frame(0x20, body))
        assert Mqtt(5).enter(ours, "me") == expected


def test_refusals_are_said(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(frame(0x20, b"\x00\x05") + frame(0x90, b"\x00\x01\x80"))
    with pytest.raises(UnexpectedAnswerError, match="no connection: 0x20 00 05"):
        Mqtt(4).enter(ours, "me")
    with pytest.raises(UnexpectedAnswerError, match="no subscription: 0x90 00 01 80"):
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
    with pytest.raises(UnexpectedAnswerError, match="too many"):
        Nats().subscribe(ours, "bench/1")
