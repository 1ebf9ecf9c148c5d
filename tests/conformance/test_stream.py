"""Packets and the bytes that carry them: cut anywhere, or many at once (4.2)."""

from __future__ import annotations

import pytest

from accord.core.mqtt.codec import encode
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicFilter,
)
from tests.conformance.conversation import Conversation


def _dialogue(talk: Conversation, topic: str) -> bytes:
    """All that a client says, from CONNECT to DISCONNECT."""
    packets = (
        Connect(talk.client_id("a"), version=talk.version),
        Subscribe(1, (TopicFilter(topic),)),
        Publish(topic, b"zero"),
        Publish(topic, b"one" * 60, qos=1, packet_id=2),
        Publish(topic, b"two", qos=2, packet_id=3),
        Pubrel(3),
        Pingreq(),
        Disconnect(),
    )
    return b"".join(encode(packet, talk.version) for packet in packets)


def _expect_answers(client_packets: list[object], topic: str) -> None:
    payloads = [each.payload for each in client_packets if isinstance(each, Publish)]
    assert payloads == [b"zero", b"one" * 60, b"two"]
    others = [type(each) for each in client_packets if not isinstance(each, Publish)]
    assert others == [Connack, Suback, Puback, Pubrec, Pubcomp, Pingresp]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100_000])
def test_bytes_may_come_in_pieces_of_any_size(talk: Conversation, topic: str, size: int) -> None:
    client = talk.open()
    data = _dialogue(talk, topic)
    for start in range(0, len(data), size):
        client.send_bytes(data[start : start + size])
    _expect_answers([client.receive() for _ in range(9)], topic)
    client.expect_closed()


def test_a_packet_may_come_in_two_pieces_with_time_between(talk: Conversation, topic: str) -> None:
    """Other clients are served meanwhile."""
    slow = talk.join("slow").subscribed(topic)
    data = encode(Publish(topic, b"slow"), talk.version)
    slow.send_bytes(data[:5])
    talk.join("quick").publish(topic, b"quick")
    slow.take(topic, b"quick")
    slow.send_bytes(data[5:])
    slow.take(topic, b"slow")


def test_many_packets_in_one_write(talk: Conversation, topic: str) -> None:
    count = 2_000
    sub = talk.join("sub").subscribed(topic)
    pub = talk.join("pub")
    pub.send(*(Publish(topic, b"%d" % number) for number in range(count)))
    for number in range(count):
        sub.expect(Publish, payload=b"%d" % number)


def test_many_acknowledged_packets_in_one_write(talk: Conversation, topic: str) -> None:
    count = 500
    pub = talk.join("pub")
    pub.send(*(Publish(topic, b"x", qos=1, packet_id=n) for n in range(1, 1 + count)))
    for number in range(1, 1 + count):
        pub.expect(Puback, packet_id=number)


def test_large_and_small_packets_mixed(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(topic)
    pub = talk.join("pub")
    sizes = (10, 300_000, 0, 70_000, 1, 128, 900_000, 5)
    pub.send(*(Publish(topic, b"x" * size) for size in sizes))
    for size in sizes:
        assert len(sub.expect(Publish).payload) == size


def test_what_follows_a_bad_packet_is_not_heard(talk: Conversation, topic: str) -> None:
    """4.13: what came before it is."""
    sub = talk.join("sub").subscribed(topic)
    pub = talk.join("pub")
    before = encode(Publish(topic, b"before"), talk.version)
    after = encode(Publish(topic, b"after"), talk.version)
    pub.send_bytes(before + b"\x00\x00" + after)
    sub.take(topic, b"before")
    talk.join("other").publish(topic, b"later")
    sub.take(topic, b"later")
    sub.expect_silence()


def test_a_client_that_reads_nothing_harms_nobody(talk: Conversation, topic: str) -> None:
    talk.join("deaf").subscribed(topic)
    sub = talk.join("sub").subscribed(topic)
    pub = talk.join("pub")
    for _ in range(20):
        pub.send(Publish(topic, b"x" * 500_000))
        sub.expect(Publish)
    sub.expect_silence()


def test_many_connections_at_once(talk: Conversation, topic: str) -> None:
    clients = [talk.join(f"n{number}").subscribed(topic) for number in range(100)]
    talk.join("pub").publish(topic, b"x")
    for client in clients:
        client.take(topic, b"x")
