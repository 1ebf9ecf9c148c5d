from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mqtt_strategies import packets

from accord.core.mqtt.codec import decode, encode, problem_with_subscription
from accord.core.mqtt.codes import V5, V311, PacketType, ProtocolError, Reason
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
from accord.core.mqtt.properties import Properties
from accord.core.mqtt.wire import Framer

VERSIONS = [V311, V5]


def frame(data: bytes) -> tuple[int, bytes]:
    [(first, body)] = Framer(1_000_000).feed(data)
    return first, body


def decoded(data: bytes, version: int) -> Packet:
    return decode(*frame(data), version)


# The figures of the standards' sections 3.x, byte by byte.
EXAMPLES: list[tuple[int, str, Packet]] = [
    (
        V5,
        # 3.1.2: user name, password, clean start; keep alive 10; session expiry 10
        "10 1e 0004 4d515454 05 c2 000a 05 11 0000000a 0003 616263 0002 7573 0003 707764",
        Connect("abc", V5, True, 10, "us", b"pwd", None, Properties(session_expiry_s=10)),
    ),
    (
        V311,
        "10 20 0004 4d515454 04 ee 000a 0003 616263 0003 772f74 0002 6279 0002 7573 0002 7077",
        Connect("abc", V311, True, 10, "us", b"pw", Will("w/t", b"by", 1, True)),
    ),
    (V5, "20 03 01 00 00", Connack(True)),
    (V311, "20 02 00 05", Connack(False, Reason.NOT_AUTHORIZED)),
    (V5, "20 09 00 97 06 1f 0003 6e6f21", Connack(False, 0x97, Properties(reason_string="no!"))),
    # 3.3.2: topic a/b, packet identifier 10
    (V5, "32 08 0003 612f62 000a 00", Publish("a/b", b"", 1, packet_id=10)),
    (V311, "3d 09 0003 612f62 000a 6869", Publish("a/b", b"hi", 2, True, True, 10)),
    (V5, "30 07 0000 03 23 0007 21", Publish("", b"!", properties=Properties(topic_alias=7))),
    (V5, "40 02 000a", Puback(10)),
    (V5, "40 03 000a 10", Puback(10, Reason.NO_MATCHING_SUBSCRIBERS)),
    (V5, "50 02 000a", Pubrec(10)),
    (V5, "62 02 000a", Pubrel(10)),
    (V311, "62 02 000a", Pubrel(10)),
    (V5, "70 03 000a 92", Pubcomp(10, Reason.PACKET_IDENTIFIER_NOT_FOUND)),
    # 3.8.3: a/b with QoS 1 and c/d with QoS 2
    (
        V5,
        "82 0f 000a 00 0003 612f62 01 0003 632f64 02",
        Subscribe(10, (TopicFilter("a/b", 1), TopicFilter("c/d", 2))),
    ),
    (
        V5,
        "82 0b 000a 02 0b 07 0003 612f23 2e",
        Subscribe(
            10, (TopicFilter("a/#", 2, True, True, 2),), Properties(subscription_identifiers=(7,))
        ),
    ),
    (V311, "82 08 000a 0003 612f62 01", Subscribe(10, (TopicFilter("a/b", 1),))),
    (V311, "90 05 000a 00 02 80", Suback(10, (0, 2, 0x80))),
    (V5, "90 05 000a 00 01 97", Suback(10, (1, Reason.QUOTA_EXCEEDED))),
    (V5, "a2 0d 000a 00 0003 612f62 0003 632f64", Unsubscribe(10, ("a/b", "c/d"))),
    (V5, "b0 05 000a 00 00 11", Unsuback(10, (0, Reason.NO_SUBSCRIPTION_EXISTED))),
    (V311, "b0 02 000a", Unsuback(10)),
    (V5, "c0 00", Pingreq()),
    (V311, "d0 00", Pingresp()),
    (V5, "e0 00", Disconnect()),
    (V5, "e0 01 8e", Disconnect(Reason.SESSION_TAKEN_OVER)),
    (V311, "e0 00", Disconnect()),
    (V5, "f0 00", Auth()),
    (V5, "f0 06 18 04 15 0001 78", Auth(0x18, Properties(authentication_method="x"))),
]


@pytest.mark.parametrize(("version", "text", "packet"), EXAMPLES)
def test_packets_are_written_as_in_the_standard(version: int, text: str, packet: Packet) -> None:
    data = bytes.fromhex(text)
    assert encode(packet, version) == data
    assert decoded(data, version) == packet


@pytest.mark.parametrize(
    ("text", "packet"),
    [
        ("40 04 000a 00 00", Puback(10)),
        ("e0 02 00 00", Disconnect()),
        ("62 03 000a 00", Pubrel(10)),
    ],
)
def test_what_may_be_left_out_may_also_be_there(text: str, packet: Packet) -> None:
    assert decoded(bytes.fromhex(text), V5) == packet


BROKEN: list[tuple[int, str, Reason]] = [
    # any packet
    (V5, "00 00", Reason.MALFORMED_PACKET),
    (V311, "f0 00", Reason.MALFORMED_PACKET),
    (V5, "60 02 000a", Reason.MALFORMED_PACKET),
    (V5, "42 02 000a", Reason.MALFORMED_PACKET),
    (V5, "80 07 000a 00 0001 61 00", Reason.MALFORMED_PACKET),
    (V5, "c1 00", Reason.MALFORMED_PACKET),
    (V5, "c0 01 00", Reason.MALFORMED_PACKET),
    (V311, "d0 01 00", Reason.MALFORMED_PACKET),
    # CONNECT
    (V5, "10 00", Reason.MALFORMED_PACKET),
    (V5, "11 0d 0004 4d515454 05 02 0000 00 0000", Reason.MALFORMED_PACKET),
    (V5, "10 0d 0004 4d515458 05 02 0000 00 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
    (V5, "10 0e 0006 4d5149736470 03 02 0000 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
    (V5, "10 0d 0004 4d515454 06 02 0000 00 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
    (V5, "10 0d 0004 4d515454 05 03 0000 00 0000", Reason.MALFORMED_PACKET),
    (V5, "10 0d 0004 4d515454 05 0a 0000 00 0000", Reason.MALFORMED_PACKET),
    (V5, "10 0d 0004 4d515454 05 22 0000 00 0000", Reason.MALFORMED_PACKET),
    (V5, "10 13 0004 4d515454 05 1e 0000 00 0000 00 0001 61 0000", Reason.MALFORMED_PACKET),
    (V5, "10 13 0004 4d515454 05 06 0000 00 0000 00 0001 2b 0000", Reason.TOPIC_NAME_INVALID),
    (V5, "10 12 0004 4d515454 05 06 0000 00 0000 00 0000 0000", Reason.TOPIC_NAME_INVALID),
    (V311, "10 0f 0004 4d515454 04 42 0000 0000 0001 61", Reason.MALFORMED_PACKET),
    (V5, "10 0e 0004 4d515454 05 02 0000 00 0000 00", Reason.MALFORMED_PACKET),
    (V5, "10 0d 0004 4d515454 05 82 0000 00 0000", Reason.MALFORMED_PACKET),
    (V5, "10 10 0004 4d515454 05 02 0000 03 21 0000 0000", Reason.PROTOCOL_ERROR),
    (V5, "10 0f 0004 4d515454 05 02 0000 00 0002 6100", Reason.MALFORMED_PACKET),
    # CONNACK
    (V5, "20 03 02 00 00", Reason.MALFORMED_PACKET),
    (V5, "20 03 01 87 00", Reason.PROTOCOL_ERROR),
    (V5, "20 03 00 01 00", Reason.PROTOCOL_ERROR),
    (V311, "20 02 00 06", Reason.PROTOCOL_ERROR),
    (V311, "20 03 00 00 00", Reason.MALFORMED_PACKET),
    # PUBLISH
    (V5, "36 08 0003 612f62 000a 00", Reason.MALFORMED_PACKET),
    (V5, "38 06 0003 612f62 00", Reason.MALFORMED_PACKET),
    (V5, "32 08 0003 612f62 0000 00", Reason.PROTOCOL_ERROR),
    (V5, "32 06 0003 612f62 00", Reason.MALFORMED_PACKET),
    (V5, "30 05 0003 612f62", Reason.MALFORMED_PACKET),
    (V5, "30 06 0003 612f2b 00", Reason.TOPIC_NAME_INVALID),
    (V311, "30 05 0003 612f23", Reason.TOPIC_NAME_INVALID),
    (V311, "30 02 0000", Reason.TOPIC_NAME_INVALID),
    (V5, "30 03 0000 00", Reason.PROTOCOL_ERROR),
    (V5, "30 06 0003 610062 00", Reason.MALFORMED_PACKET),
    (V5, "30 06 0003 eda080 00", Reason.MALFORMED_PACKET),  # a surrogate
    (V5, "30 05 0002 c080 00", Reason.MALFORMED_PACKET),  # an overlong null
    (V5, "30 08 0001 61 03 23 0000 00", Reason.TOPIC_ALIAS_INVALID),
    # acknowledgements
    (V5, "40 02 0000", Reason.PROTOCOL_ERROR),
    (V5, "40 01 00", Reason.MALFORMED_PACKET),
    (V5, "40 03 000a 18", Reason.PROTOCOL_ERROR),
    (V5, "40 05 000a 00 00 00", Reason.MALFORMED_PACKET),
    (V311, "40 03 000a 00", Reason.MALFORMED_PACKET),
    # SUBSCRIBE and its answer
    (V5, "82 03 000a 00", Reason.PROTOCOL_ERROR),
    (V311, "82 02 000a", Reason.PROTOCOL_ERROR),
    (V5, "82 07 0000 00 0001 61 00", Reason.PROTOCOL_ERROR),
    (V5, "82 06 000a 00 0001 61", Reason.MALFORMED_PACKET),
    (V5, "82 07 000a 00 0001 61 03", Reason.PROTOCOL_ERROR),
    (V5, "82 07 000a 00 0001 61 40", Reason.MALFORMED_PACKET),
    (V5, "82 07 000a 00 0001 61 30", Reason.PROTOCOL_ERROR),
    (V311, "82 06 000a 0001 61 04", Reason.MALFORMED_PACKET),
    (V311, "82 06 000a 0001 61 03", Reason.PROTOCOL_ERROR),
    (V5, "82 06 000a 00 0000 00", Reason.TOPIC_FILTER_INVALID),
    (V5, "82 08 000a 00 0002 6123 00", Reason.TOPIC_FILTER_INVALID),
    (V5, "82 0f 000a 00 0009 2473686172652f672f 00", Reason.TOPIC_FILTER_INVALID),
    (V5, "82 10 000a 00 000a 2473686172652f672f61 04", Reason.PROTOCOL_ERROR),
    (V5, "82 09 000a 02 0b 00 0001 61 00", Reason.PROTOCOL_ERROR),
    (V5, "90 03 000a 00", Reason.PROTOCOL_ERROR),
    (V5, "90 04 000a 00 03", Reason.PROTOCOL_ERROR),
    (V311, "90 03 000a 87", Reason.PROTOCOL_ERROR),
    (V5, "a2 03 000a 00", Reason.PROTOCOL_ERROR),
    (V5, "a2 07 000a 00 0002 612b", Reason.TOPIC_FILTER_INVALID),
    (V5, "b0 03 000a 00", Reason.PROTOCOL_ERROR),
    (V5, "b0 04 000a 00 01", Reason.PROTOCOL_ERROR),
    (V311, "b0 03 000a 00", Reason.MALFORMED_PACKET),
    # DISCONNECT and AUTH
    (V311, "e0 01 00", Reason.MALFORMED_PACKET),
    (V5, "e0 01 01", Reason.PROTOCOL_ERROR),
    (V5, "e0 03 00 00 00", Reason.MALFORMED_PACKET),
    (V5, "f0 01 18", Reason.MALFORMED_PACKET),
    (V5, "f0 02 18 00", Reason.PROTOCOL_ERROR),
    (V5, "f0 02 01 00", Reason.PROTOCOL_ERROR),
]


@pytest.mark.parametrize(("version", "text", "reason"), BROKEN)
def test_what_the_standard_forbids_is_refused(version: int, text: str, reason: Reason) -> None:
    with pytest.raises(ProtocolError) as caught:
        decoded(bytes.fromhex(text), version)
    assert caught.value.reason == reason
    assert caught.value.problem


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_every_packet_comes_back_as_it_was(version: int, data: st.DataObject) -> None:
    packet = data.draw(packets(version))
    assert decoded(encode(packet, version), version) == packet


@pytest.mark.parametrize("version", VERSIONS)
@given(first=st.integers(0, 255), body=st.binary(max_size=40))
def test_arbitrary_bytes_are_a_packet_or_a_protocol_error(
    version: int, first: int, body: bytes
) -> None:
    try:
        packet = decode(first, body, version)
    except ProtocolError:
        return
    packet_version = packet.version if isinstance(packet, Connect) else version
    again = decoded(encode(packet, packet_version), packet_version)
    assert again == packet


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_a_damaged_packet_is_a_packet_or_a_protocol_error(
    version: int, data: st.DataObject
) -> None:
    first, body = frame(encode(data.draw(packets(version)), version))
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        new = data.draw(st.binary(max_size=2))
        damaged[at : at + data.draw(st.integers(0, 2))] = new
    try:
        packet = decode(first, bytes(damaged), version)
    except ProtocolError:
        return
    packet_version = packet.version if isinstance(packet, Connect) else version
    assert decoded(encode(packet, packet_version), packet_version) == packet


def test_311_has_the_nearest_return_code() -> None:
    def code(reason: Reason) -> int:
        return encode(Connack(False, reason), V311)[-1]

    assert code(Reason.UNSUPPORTED_PROTOCOL_VERSION) == 1
    assert code(Reason.CLIENT_IDENTIFIER_NOT_VALID) == 2
    assert code(Reason.SERVER_BUSY) == 3
    assert code(Reason.BAD_USER_NAME_OR_PASSWORD) == 4
    assert code(Reason.BANNED) == 5


def test_311_has_one_failure_of_a_subscription_and_no_properties() -> None:
    packet = Suback(1, (1, Reason.QUOTA_EXCEEDED), Properties(reason_string="too many"))
    assert decoded(encode(packet, V311), V311) == Suback(1, (1, 0x80))


def test_what_does_not_fit_the_wire_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="at most 65535 bytes of text"):
        encode(Publish("a" * 65_536), V5)
    with pytest.raises(ValueError, match="null character"):
        encode(Publish("a\0"), V5)
    with pytest.raises(ValueError, match="at most 65535 bytes of binary"):
        encode(Connect(password=bytes(65_536)), V5)
    with pytest.raises(ValueError, match="at most 268435455 bytes"):
        encode(Publish("a", bytes(268_435_455)), V5)


@pytest.mark.parametrize("pattern", ["$share", "$share/g/a", "$share/g/+/#", "$share/g//"])
def test_shared_filters_are_accepted(pattern: str) -> None:
    assert problem_with_subscription(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/g/a#"]
)
def test_shared_filters_are_refused(pattern: str) -> None:
    assert problem_with_subscription(pattern)


def test_the_type_of_a_packet_is_its_first_byte() -> None:
    assert encode(Pingreq(), V5)[0] >> 4 == PacketType.PINGREQ
