from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mqtt_strategies import CONNACK, MESSAGE, properties_of

from accord.core.mqtt.codes import PacketType, ProtocolError, Reason
from accord.core.mqtt.properties import (
    NO_PROPERTIES,
    WILL,
    Properties,
    decode_properties,
    encode_properties,
)


def read(text: str, packet: int) -> Properties:
    data = bytes.fromhex(text)
    found, at = decode_properties(data, 0, len(data), packet)
    assert at == len(data)
    return found


def test_none_are_one_byte() -> None:
    assert encode_properties(NO_PROPERTIES) == encode_properties(Properties()) == b"\0"
    assert read("00", PacketType.PUBLISH) is NO_PROPERTIES


def test_they_start_and_end_where_the_packet_says() -> None:
    data = b"ab" + encode_properties(Properties(user=(("k", "v"),))) + b"payload"
    found, at = decode_properties(data, 2, len(data), PacketType.PUBLISH)
    assert found == Properties(user=(("k", "v"),))
    assert data[at:] == b"payload"


def test_every_property_has_the_number_of_the_standard() -> None:
    assert read("02 01 01", PacketType.PUBLISH) == Properties(payload_format=1)
    assert read("05 02 00000005", PacketType.PUBLISH) == Properties(message_expiry_s=5)
    assert read("04 03 0001 74", WILL) == Properties(content_type="t")
    assert read("04 08 0001 74", PacketType.PUBLISH) == Properties(response_topic="t")
    assert read("04 09 0001 ff", PacketType.PUBLISH) == Properties(correlation_data=b"\xff")
    assert read("05 0b 01 0b 8001", PacketType.PUBLISH) == Properties(
        subscription_identifiers=(1, 128)
    )
    assert read("05 11 ffffffff", PacketType.DISCONNECT) == Properties(session_expiry_s=2**32 - 1)
    assert read("04 12 0001 63", PacketType.CONNACK) == Properties(assigned_client_id="c")
    assert read("03 13 003c", PacketType.CONNACK) == Properties(server_keep_alive_s=60)
    assert read("08 15 0001 6d 16 0001 64", PacketType.AUTH) == Properties(
        authentication_method="m", authentication_data=b"d"
    )
    assert read("02 17 00", PacketType.CONNECT) == Properties(request_problem_information=False)
    assert read("05 18 00000003", WILL) == Properties(will_delay_s=3)
    assert read("02 19 01", PacketType.CONNECT) == Properties(request_response_information=True)
    assert read("04 1a 0001 69", PacketType.CONNACK) == Properties(response_information="i")
    assert read("04 1c 0001 73", PacketType.DISCONNECT) == Properties(server_reference="s")
    assert read("04 1f 0001 72", PacketType.SUBACK) == Properties(reason_string="r")
    assert read("03 21 0001", PacketType.CONNECT) == Properties(receive_maximum=1)
    assert read("03 22 0000", PacketType.CONNECT) == Properties(topic_alias_maximum=0)
    assert read("03 23 0009", PacketType.PUBLISH) == Properties(topic_alias=9)
    assert read("02 24 01", PacketType.CONNACK) == Properties(maximum_qos=1)
    assert read("02 25 00", PacketType.CONNACK) == Properties(retain_available=False)
    assert read("07 26 0001 6b 0001 76", PacketType.SUBSCRIBE) == Properties(user=(("k", "v"),))
    assert read("05 27 00000400", PacketType.CONNECT) == Properties(maximum_packet_size=1024)
    assert read("02 28 00", PacketType.CONNACK).wildcard_subscription_available is False
    assert read("02 29 00", PacketType.CONNACK).subscription_identifiers_available is False
    assert read("02 2a 00", PacketType.CONNACK).shared_subscription_available is False


@pytest.mark.parametrize(
    ("text", "packet", "reason"),
    [
        ("02 01 02", PacketType.PUBLISH, Reason.PROTOCOL_ERROR),
        ("04 01 01 01 01", PacketType.PUBLISH, Reason.PROTOCOL_ERROR),
        ("06 21 0001 21 0001", PacketType.CONNECT, Reason.PROTOCOL_ERROR),
        ("03 21 0000", PacketType.CONNECT, Reason.PROTOCOL_ERROR),
        ("05 27 00000000", PacketType.CONNECT, Reason.PROTOCOL_ERROR),
        ("02 0b 00", PacketType.PUBLISH, Reason.PROTOCOL_ERROR),
        ("04 0b 01 0b 02", PacketType.SUBSCRIBE, Reason.PROTOCOL_ERROR),
        ("02 24 02", PacketType.CONNACK, Reason.PROTOCOL_ERROR),
        ("02 25 02", PacketType.CONNACK, Reason.PROTOCOL_ERROR),
        ("04 16 0001 64", PacketType.AUTH, Reason.PROTOCOL_ERROR),
        ("03 23 0000", PacketType.PUBLISH, Reason.TOPIC_ALIAS_INVALID),
        ("04 08 0001 23", PacketType.PUBLISH, Reason.PROTOCOL_ERROR),
        ("03 08 0000", PacketType.PUBLISH, Reason.PROTOCOL_ERROR),
        ("02 00 00", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("02 8b 01", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("03 23 0001", WILL, Reason.MALFORMED_PACKET),
        ("05 18 00000003", PacketType.CONNECT, Reason.MALFORMED_PACKET),
        ("04 1f 0001 72", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("01", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("80", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("8000", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("01 26", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("06 26 0001 6b 0001 76", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("07 26 0001 6b 0002 76", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("07 26 0001 00 0001 76", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("07 26 0001 6b 0001 ff", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("04 03 0001 00", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("04 03 0001 ff", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("04 03 0002 74", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("03 02 0000", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
        ("02 0b 80", PacketType.PUBLISH, Reason.MALFORMED_PACKET),
    ],
)
def test_what_the_standard_forbids_is_refused(text: str, packet: int, reason: Reason) -> None:
    with pytest.raises(ProtocolError) as caught:
        read(text, packet)
    assert caught.value.reason == reason


@given(properties_of(MESSAGE))
def test_those_of_a_message_come_back(properties: Properties) -> None:
    data = encode_properties(properties)
    assert decode_properties(data, 0, len(data), PacketType.PUBLISH) == (properties, len(data))


@given(properties_of(CONNACK))
def test_those_of_a_connack_come_back(properties: Properties) -> None:
    data = encode_properties(properties)
    assert decode_properties(data, 0, len(data), PacketType.CONNACK) == (properties, len(data))


@given(data=st.binary(max_size=40), packet=st.sampled_from([WILL, *PacketType]))
def test_arbitrary_bytes_are_properties_or_a_protocol_error(data: bytes, packet: int) -> None:
    try:
        properties, at = decode_properties(data, 0, len(data), packet)
    except ProtocolError:
        return
    assert len(encode_properties(properties)) == at


def test_many_identifiers_are_read_in_linear_time() -> None:
    identifiers = (1,) * 200_000
    data = encode_properties(Properties(subscription_identifiers=identifiers))
    found, _ = decode_properties(data, 0, len(data), PacketType.PUBLISH)
    assert found.subscription_identifiers == identifiers
