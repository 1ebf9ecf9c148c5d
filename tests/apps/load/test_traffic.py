"""Publishers and subscribers count to the event, wherever a read is cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from benchmarks.load import in_turns
from benchmarks.mqtt import PUBACK, Mqtt
from benchmarks.nats import Nats

from accord.apps.load.frames import LoadError
from accord.apps.load.load import ChannelLane
from accord.apps.load.traffic import LoadClient, LoadLane, LoadLoop, LoadPublisher, Plan

Ends = tuple[socket.socket, socket.socket]
NATS_MESSAGE = b"MSG bench.0 1 3\r\nxyz\r\n"
SIZE = len(Mqtt(4).message("bench/0", b"xyz", 0))


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(10)
        yield ours, theirs


def take(client: LoadClient) -> int:
    return client.take(bytearray(64), 5)


@pytest.mark.parametrize("cut", range(1, 48))
def test_events_are_acknowledged_wherever_a_read_ends(ends: Ends, cut: int) -> None:
    ours, theirs = ends
    subscriber = LoadClient(ours, Mqtt(4, qos=1))
    messages = [Mqtt(4, 1).message("bench/0", b"xyz", each) for each in (1, 258, 65_535)]
    data = b"".join(messages)
    assert cut < len(data)
    for part in (data[:cut], data[cut:]):
        theirs.sendall(part)
        assert take(subscriber) == len(part)
    assert (subscriber.delivered, subscriber.last_ns) == (3, 5)
    assert theirs.recv(100) == b"".join(PUBACK + pair for pair in (b"\0\1", b"\1\2", b"\xff\xff"))
    assert subscriber.is_idle


def test_an_event_larger_than_the_buffer(ends: Ends) -> None:
    ours, theirs = ends
    subscriber = LoadClient(ours, Mqtt(4))
    buffer = bytearray(64)
    data = Mqtt(4).message("bench/0", bytes(1_000), 0)
    theirs.sendall(data * 2)
    while subscriber.delivered < 2:
        assert subscriber.take(buffer, 0)


@pytest.mark.parametrize("cut", range(1, 70))
def test_what_a_broker_says_in_between_is_no_event(ends: Ends, cut: int) -> None:
    ours, theirs = ends
    subscriber = LoadClient(ours, Nats(), len(NATS_MESSAGE))
    subscriber.fence()
    data = NATS_MESSAGE + b"PING\r\n" + NATS_MESSAGE * 2 + b"PONG\r\n"
    for part in (data[:cut], data[cut:]):
        theirs.sendall(part)
        while subscriber.take(bytearray(64), 0):
            pass
    assert (subscriber.delivered, subscriber.fences) == (3, 0)
    assert theirs.recv(100) == b"PING\r\nPONG\r\n"


def test_anything_else_is_noticed(ends: Ends) -> None:
    ours, theirs = ends
    subscriber = LoadClient(ours, Mqtt(5), SIZE)
    theirs.sendall(Mqtt(4).message("bench/0", b"xyz", 0) + b"\xe0\x02\x8b\x00")
    with pytest.raises(LoadError, match="the node ended a connection: server shutting down"):
        take(subscriber)
    theirs.sendall(Mqtt(4).message("bench/0", b"x", 0))
    with pytest.raises(LoadError, match=f"expected events of {SIZE} bytes, got {SIZE - 2}"):
        take(subscriber)


def test_a_closed_connection_is_noticed(ends: Ends) -> None:
    ours, theirs = ends
    theirs.close()
    with pytest.raises(LoadError, match="closed the connection"):
        take(LoadClient(ours, Mqtt(4)))
    with pytest.raises(LoadError, match="broke"):
        LoadClient(ours, Mqtt(4)).send(b"x")


def test_publisher_sends_chunks_in_turns_within_its_window(ends: Ends) -> None:
    ours, theirs = ends
    source = in_turns([b"first", b"second"], 10)
    publisher = LoadPublisher(ours, Mqtt(4, qos=1), source, 30)
    assert [publisher.publish(most) for most in (10, 9, 15, 100, 100)] == [10, 0, 10, 10, 0]
    assert theirs.recv(100) == b"firstsecondfirst"
    assert (publisher.published, publisher.unacknowledged, publisher.is_idle) == (30, 30, True)
    for part in (PUBACK + b"\0\1" + PUBACK, b"\0\2"):
        theirs.sendall(part)
        take(publisher)
    assert publisher.unacknowledged == 28


def test_what_a_socket_does_not_take_is_sent_later(ends: Ends) -> None:
    ours, theirs = ends
    data = bytes(range(256)) * 40_000
    lane = ChannelLane([LoadPublisher(ours, Mqtt(4), in_turns([data], 1), 1)], [], Plan(1))
    with closing(LoadLoop(lambda _: [lane])) as traffic:
        lane.target = 1
        traffic.turn(0)
        assert not lane.publishers[0].is_idle
        received = b""
        while len(received) < len(data):
            received += theirs.recv(1 << 20)
            traffic.turn(0)
        assert received == data
        assert lane.publishers[0].is_idle


def test_events_that_are_given_up_leave_the_window(ends: Ends) -> None:
    ours, theirs = ends
    other, _ = pair = socket.socketpair()
    publisher = LoadPublisher(other, Mqtt(4), in_turns([b"x"], 1), 4)
    lane = ChannelLane([publisher], [LoadClient(ours, Mqtt(4))], Plan(4))
    lane.target = 100
    lane.feed()
    lane.feed()
    assert lane.published == 4
    lane.give_up()
    lane.feed()
    assert lane.published == 8
    theirs.sendall(Mqtt(4).message("bench/0", b"xyz", 0))
    take(lane.subscribers[0])
    assert lane.through == 5
    for end in pair:
        end.close()


def test_what_has_no_answer_ends_the_wait(ends: Ends) -> None:
    ours, theirs = ends
    lane = LoadLane([], [LoadClient(ours, Mqtt(4))], Plan(1))
    with closing(LoadLoop(lambda _: [lane])) as traffic:
        assert traffic.finish(0)
        traffic.fence(lane.subscribers)
        assert not traffic.finish(0)
        assert not traffic.finish(10, 0)
        theirs.sendall(b"\xd0\x00")
        assert traffic.finish(10)
        assert theirs.recv(10) == Mqtt.fence
