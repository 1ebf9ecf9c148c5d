"""Real packets to begin with: all types, both versions, and what real clients say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from accord.core.broker.broker import Broker
from accord.core.broker.connection import Connection
from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5, V311
from accord.core.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
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
    Unsuback,
    Unsubscribe,
    Will,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from accord.core.mqtt.wire import Framer, varint_bytes
from accord.core.router.limits import Limits

CLIENTS: Final = 400  # so few names that clients now and then take over each other's sessions
_CHANNELS: Final = ("fuzz/a", "fuzz/b/c", "kept/a", "fuzz/é/💧", "$SYS/broker/uptime", "x", "/")
_WHERE: Final = (
    "altitude_m > 300 AND platform = 'UAV'",
    "a LIKE 'x%' OR b IS NULL OR NOT (c BETWEEN 1 AND 2)",
    "broken ((",
)


class Corpus(msgspec.Struct, frozen=True):
    """Encoded packets, by version: CONNECTs, what may come after them, and what may not."""

    connects: dict[int, list[bytes]]
    polite: dict[int, list[bytes]]
    rude: dict[int, list[bytes]]
    large: dict[int, list[bytes]]

    def all(self) -> list[bytes]:
        parts = (self.connects, self.polite, self.rude, self.large)
        return [packet for part in parts for version in (V311, V5) for packet in part[version]]


def make_corpus(recorded: list[bytes]) -> Corpus:
    """Our own packets, and those of `recorded` conversations of clients with the node."""
    corpus = Corpus(_nothing(), _nothing(), _nothing(), _nothing())
    for version in (V311, V5):
        corpus.large[version] += [encode(each, version) for each in _large(version)]
        corpus.connects[version] += [encode(each, version) for each in _connects(version)]
        for packet in _others(version):
            _add(corpus, version, encode(packet, version))
    for conversation in recorded:
        packets = split(conversation)
        version = packets[0][8]  # after the protocol's name
        corpus.connects[version].append(packets[0])
        for frame in packets[1:]:
            _add(corpus, version, frame)
    return corpus


def _nothing() -> dict[int, list[bytes]]:
    return {V311: [], V5: []}


def _add(corpus: Corpus, version: int, packet: bytes) -> None:
    """Polite is what does not end a connection by itself: try it."""
    broker = Broker(Limits(), now_ms=0, new_client_id=lambda: "somebody")
    connection = Connection(broker, None, "here")
    connection.receive(encode(Connect("fuzz", version), version), now_ms=0)
    connection.receive(packet, now_ms=0)
    part = corpus.rude if connection.is_closing else corpus.polite
    part[version].append(packet)


def split(conversation: bytes) -> list[bytes]:
    """The packets of a well-formed stream."""
    return [
        bytes([first]) + varint_bytes(len(body)) + body
        for first, body in Framer(1_000_000).feed(conversation)
    ]


def _connects(version: int) -> Iterator[Connect]:
    is_v5 = version == V5
    for number in range(CLIENTS):
        properties = NO_PROPERTIES
        will = None
        if is_v5:
            properties = Properties(
                session_expiry_s=(None, 1, 60, 0xFFFFFFFF)[number % 4],
                receive_maximum=(None, 1, 20)[number % 3],
                maximum_packet_size=(None, 100, 2_000)[number // 3 % 3],
                topic_alias_maximum=(None, 5)[number % 2],
                request_problem_information=(None, False, True)[number // 2 % 3],
                user=(("a", "b"),) if number % 5 == 0 else (),
            )
        if number % 3 == 0:
            extra = Properties(will_delay_s=number % 4) if is_v5 else NO_PROPERTIES
            will = Will("fuzz/will", b"gone", number % 3, number % 2 == 0, extra)
        yield Connect(
            f"fuzz{number}",
            version,
            clean_start=number % 3 != 1,
            keep_alive_s=(0, 1, 60)[number % 3],
            will=will,
            properties=properties,
        )
    yield Connect("", version)
    yield Connect("fuzz", version, username="ann", password=b"secret")
    if is_v5:
        extra = Properties(authentication_method="SCRAM", authentication_data=b"x")
        yield Connect("fuzz", version, properties=extra)


def _others(version: int) -> Iterator[Packet]:
    yield from _publishes(version)
    yield from _subscribes(version)
    for packet_id in (1, 2, 3, 7, 65_535):
        for make in (Puback, Pubrec, Pubrel, Pubcomp):
            yield make(packet_id)
            if version == V5:
                yield make(packet_id, 0x92 if make in (Pubrel, Pubcomp) else 0x80)
        yield Unsubscribe(packet_id, ("fuzz/a", "$share/g/fuzz/#", "kept/a"))
    for _ in range(10):
        yield Pingreq()
    yield Disconnect()
    # What only servers send.
    yield Connack(True)
    yield Suback(1, (0, 1, 2, 0x80))
    yield Unsuback(1, () if version == V311 else (0,))
    yield Pingresp()
    if version == V5:
        yield Disconnect(4, Properties(session_expiry_s=2))
        yield Auth(0x18, Properties(authentication_method="SCRAM", authentication_data=b"x"))


def _publishes(version: int) -> Iterator[Packet]:
    for number in range(60):
        qos = number % 3
        properties = NO_PROPERTIES
        channel = _CHANNELS[number % len(_CHANNELS)]
        if version == V5 and number % 2:
            properties = Properties(
                payload_format=(None, 0, 1)[number % 3],
                message_expiry_s=(None, 0, 1, 60)[number % 4],
                content_type=(None, "text/plain")[number // 2 % 2],
                response_topic=(None, "fuzz/answers")[number // 3 % 2],
                correlation_data=(None, b"\0\1")[number // 3 % 2],
                topic_alias=(None, None, 1, 2, 2_000)[number % 5],
                user=(("altitude_m", "420"), ("platform", "UAV"), ("deadline_ms", "5000"))
                if number % 3
                else (),
            )
            if number % 10 == 7:
                channel = ""  # an alias, known or not
                properties = Properties(topic_alias=1)
        yield Publish(
            channel,
            b"" if number % 7 == 0 else f"message {number}".encode() * (number % 9),
            qos,
            retain=number % 4 == 0,
            dup=qos > 0 and number % 5 == 0,
            packet_id=number % 11 + 1 if qos else 0,
            properties=properties,
        )


def _subscribes(version: int) -> Iterator[Packet]:
    filters = ("fuzz/a", "fuzz/+/c", "kept/+", "$share/g/fuzz/b/c", "fuzz/will", "$SYS/broker/+")
    for number, pattern in enumerate(filters):
        yield Subscribe(number + 1, (TopicFilter(pattern, number % 3), TopicFilter("x", 1)))
    yield Subscribe(9, tuple(TopicFilter(f"fuzz/{each}", each % 3) for each in range(20)))
    if version == V5:
        yield Subscribe(
            10,
            (TopicFilter("fuzz/a", 2, True, True, 1), TopicFilter("kept/a", 1, False, True, 2)),
            Properties(subscription_identifiers=(7,)),
        )
        for where in _WHERE:
            yield Subscribe(11, (TopicFilter("fuzz/b/c", 1),), Properties(user=(("where", where),)))
        xpath = "/attributes[altitude_m > 300 and contains(platform, 'U')]"
        yield Subscribe(12, (TopicFilter("fuzz/a", 1),), Properties(user=(("xpath", xpath),)))


def _large(version: int) -> Iterator[Packet]:
    """Much of everything, within the limits or just beyond."""
    yield Publish("fuzz/a", bytes(150_000), 1, packet_id=20)
    yield Publish("/".join("abc" * 70), b"deep", 2, packet_id=21)
    yield Publish("/" * 1_000, b"levels", 1, packet_id=22)
    yield Subscribe(23, tuple(TopicFilter(f"fuzz/many/{each}", 1) for each in range(300)))
    yield Subscribe(24, (TopicFilter("+/" * 150 + "#", 1),))
    yield Unsubscribe(25, tuple(f"fuzz/many/{each}" for each in range(300)))
    if version == V5:
        many = tuple((f"name{each}", str(each)) for each in range(300))
        yield Publish("kept/a", b"attributes", 1, packet_id=26, properties=Properties(user=many))
        deep = "(" * 300 + "a = 1" + ")" * 300
        wide = " OR ".join(f"name{each} = {each}" for each in range(300))
        listed = f"a IN ({', '.join(map(str, range(500)))})"
        for where in (
            deep,
            wide,
            listed,
            f"NOT ({wide}) AND ({wide})",
            "a LIKE '%" + "x%" * 99 + "'",
        ):
            yield Subscribe(27, (TopicFilter("fuzz/a", 1),), Properties(user=(("where", where),)))
        xpath = "/attributes[" + "not(" * 100 + "a" + ")" * 100 + "]"
        yield Subscribe(28, (TopicFilter("fuzz/a", 1),), Properties(user=(("xpath", xpath),)))
