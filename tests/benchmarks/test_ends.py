"""Publishers and subscribers count to the message, wherever a read is cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from benchmarks.ends import Publisher, Subscriber
from benchmarks.mqtt import PUBACK, Mqtt
from benchmarks.nats import Nats
from benchmarks.wire import UnexpectedAnswerError

Ends = tuple[socket.socket, socket.socket]
_NATS_MESSAGE = b"MSG bench.0 1 3\r\nxyz\r\n"


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(10)
        yield ours, theirs


@pytest.mark.parametrize("cut", range(1, 40))
def test_messages_are_acknowledged_wherever_a_read_ends(ends: Ends, cut: int) -> None:
    ours, theirs = ends
    dialect = Mqtt(4, qos=1)
    subscriber = Subscriber(ours, dialect.delivery("bench/0", 3))
    data = b"".join(dialect.message("bench/0", b"xyz", number) for number in (1, 258, 65_535))
    for part in (data[:cut], data[cut:]):
        theirs.sendall(part)
        assert subscriber.take() == len(part)
    assert subscriber.delivered == 3
    assert theirs.recv(100) == b"".join(PUBACK + pair for pair in (b"\0\1", b"\1\2", b"\xff\xff"))
    assert subscriber.is_idle


@pytest.mark.parametrize("cut", range(1, 50))
def test_what_a_broker_says_in_between_is_no_message(ends: Ends, cut: int) -> None:
    ours, theirs = ends
    subscriber = Subscriber(ours, Nats().delivery("bench/0", 3))
    data = _NATS_MESSAGE + b"PING\r\n" + _NATS_MESSAGE * 2
    for part in (data[:cut], data[cut:]):
        theirs.sendall(part)
        subscriber.take()
    assert subscriber.delivered == 3


def test_anything_else_is_noticed(ends: Ends) -> None:
    ours, theirs = ends
    subscriber = Subscriber(ours, Mqtt(4).delivery("bench/0", 3))
    theirs.sendall(Mqtt(4).message("bench/0", b"xyz", 0) + b"\xe0\x00" + bytes(20))
    with pytest.raises(UnexpectedAnswerError, match="not a message of 14 bytes"):
        subscriber.take()


def test_more_than_was_published_is_noticed(ends: Ends) -> None:
    ours, theirs = ends
    subscriber = Subscriber(ours, Mqtt(4).delivery("bench/0", 3))
    theirs.sendall(Mqtt(4).message("bench/0", b"xyz", 0))
    with pytest.raises(UnexpectedAnswerError, match="more than was published"):
        subscriber.wait(*Mqtt(4).fence)


def test_a_closed_connection_is_noticed(ends: Ends) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(UnexpectedAnswerError, match="closed the connection"):
        Subscriber(ours, Mqtt(4).delivery("bench/0", 3)).take()


def test_publisher_sends_chunks_in_turns_and_counts_acknowledgements(ends: Ends) -> None:
    ours, theirs = ends
    publisher = Publisher(ours, [b"first", b"second"], 10, has_acks=True)
    for _ in range(3):
        publisher.send()
    assert theirs.recv(100) == b"firstsecondfirst"
    assert (publisher.sent, publisher.unacknowledged, publisher.is_idle) == (30, 30, True)
    for part in (PUBACK + b"\0\1" + PUBACK, b"\0\2"):
        theirs.sendall(part)
        publisher.take()
    assert publisher.unacknowledged == 28
    theirs.sendall(b"\x40\x03\0\3")
    with pytest.raises(UnexpectedAnswerError, match="among acknowledgements"):
        publisher.take()
