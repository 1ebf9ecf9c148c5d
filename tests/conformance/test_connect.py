"""Opening a connection: CONNECT, CONNACK and what must come first (3.1, 3.2)."""

from __future__ import annotations

import pytest

from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Subscribe,
    TopicFilter,
    Unsubscribe,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from tests.brokers import accord_only
from tests.conformance.conversation import Conversation, only_5, only_311


def test_a_connect_is_answered_first_of_all(talk: Conversation) -> None:
    """[MQTT-3.2.0-1], [MQTT-3.2.2-1]: CONNACK comes first, without session after a clean start."""
    client = talk.open()
    client.send(Connect(talk.client_id("a"), version=talk.version), Pingreq())
    client.expect(Connack, session_present=False, reason=0)


@only_311
def test_a_connack_of_3_1_1_has_four_bytes(talk: Conversation) -> None:
    client = talk.join("a")
    assert client.frame == bytes.fromhex("20020000")


@pytest.mark.parametrize(
    "packet",
    [
        Pingreq(),
        Publish("a", b"x"),
        Subscribe(1, (TopicFilter("a"),), NO_PROPERTIES),
        Unsubscribe(1, ("a",), NO_PROPERTIES),
        Puback(1),
        Disconnect(),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_what_comes_before_connect_ends_the_connection(talk: Conversation, packet: Packet) -> None:
    """[MQTT-3.1.0-1]: there is no version yet in which a reason could be told."""
    client = talk.open()
    client.send(packet)
    client.expect_closed()


@only_5
def test_auth_before_connect_ends_the_connection(talk: Conversation) -> None:
    client = talk.open()
    client.send(Auth(Reason.CONTINUE_AUTHENTICATION, Properties(authentication_method="x")))
    client.expect_closed()


def test_a_second_connect_is_a_protocol_error(talk: Conversation) -> None:
    """[MQTT-3.1.0-2]"""
    client = talk.join("a")
    client.send(Connect(talk.client_id("a"), version=talk.version))
    client.expect_end(Reason.PROTOCOL_ERROR)


def test_a_second_connect_of_another_name_is_a_protocol_error(talk: Conversation) -> None:
    client = talk.join("a")
    client.send(Connect(talk.client_id("b"), version=talk.version))
    client.expect_end(Reason.PROTOCOL_ERROR)


def test_packets_may_follow_connect_without_waiting(talk: Conversation, topic: str) -> None:
    """3.1.4: a client need not wait for CONNACK."""
    client = talk.open()
    client.send(
        Connect(talk.client_id("a"), version=talk.version),
        Subscribe(1, (TopicFilter(topic),), NO_PROPERTIES),
        Publish(topic, b"x"),
        Disconnect(),
    )
    client.expect(Connack, reason=0)
    client.receive()
    client.take(topic, b"x")
    client.expect_closed()


def _connect(name: bytes, level: int, flags: int, rest: bytes) -> bytes:
    """CONNECT from its parts, sensible or not."""
    body = len(name).to_bytes(2, "big") + name + bytes([level, flags]) + b"\x00\x00" + rest
    return b"\x10" + bytes([len(body)]) + body


def _is_unsupported_version(answer: bytes) -> bool:
    """CONNACK with return code 1 (3.1.1) or reason 0x84 (5.0)."""
    return answer[:1] == b"\x20" and answer[2:4] in (b"\x00\x01", b"\x00\x84")


@pytest.mark.parametrize("name", [b"MQTX", b"mqtt", b"", b"MQTTT", b"HTTP"])
def test_another_protocol_is_not_served(talk: Conversation, name: bytes) -> None:
    """[MQTT-3.1.2-1]: the one CONNACK allowed is that of an unsupported version."""
    client = talk.open()
    client.send_bytes(_connect(name, talk.version, 2, b"\x00\x00\x00"[: talk.version - 2]))
    answer = client.receive_rest()
    assert answer == b"" or _is_unsupported_version(answer)


@only_5
@pytest.mark.parametrize("level", [0, 1, 2, 6, 7, 0x7F, 0xFF])
def test_an_unknown_version_is_refused(talk: Conversation, level: int) -> None:
    """[MQTT-3.1.2-2]: in the terms of either version, as the client may know just one."""
    client = talk.open()
    client.send_bytes(_connect(b"MQTT", level, 2, b"\x00\x00\x00"))
    assert _is_unsupported_version(client.receive_rest())


@only_311
@accord_only
def test_version_3_1_is_refused_in_its_own_terms(talk: Conversation) -> None:
    """MQTT 3.1 has another protocol name; its clients understand return code 1."""
    client = talk.open()
    client.send_bytes(_connect(b"MQIsdp", 3, 2, b"\x00\x01a"))
    assert client.receive_rest() == bytes.fromhex("20020001")


def test_reserved_connect_flag_must_be_0(talk: Conversation) -> None:
    """[MQTT-3.1.2-3]"""
    client = talk.open()
    client.send_bytes(_connect(b"MQTT", talk.version, 3, b"\x00\x00\x00"[: talk.version - 2]))
    client.expect_refusal(None, Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR)


@only_311
def test_an_empty_client_id_needs_a_clean_session(talk: Conversation) -> None:
    """[MQTT-3.1.3-8] of 3.1.1"""
    client = talk.open()
    client.send(Connect("", version=V311, clean_start=False))
    client.expect_refusal(2)


@only_311
def test_an_empty_client_id_with_clean_session_is_fine(talk: Conversation) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.1.3-7] of 3.1.1"""
    for _ in range(2):
        client = talk.open()
        client.send(Connect("", version=V311, clean_start=True))
        client.expect(Connack, reason=0, session_present=False)
    client.expect_silence()


@only_5
@pytest.mark.parametrize("clean_start", [True, False])
def test_an_empty_client_id_is_assigned(talk: Conversation, clean_start: bool) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.2.2-16]: each gets an identifier of its own, and is told."""
    assigned = []
    for _ in range(3):
        client = talk.open()
        client.send(Connect("", version=V5, clean_start=clean_start))
        answer = client.expect(Connack, reason=0, session_present=False)
        assert answer.properties.assigned_client_id
        assigned.append(answer.properties.assigned_client_id)
    assert len(set(assigned)) == 3


@only_5
def test_an_assigned_client_id_can_be_used_again(talk: Conversation, topic: str) -> None:
    client = talk.open()
    client.send(Connect("", version=V5, properties=Properties(session_expiry_s=60)))
    client_id = client.expect(Connack, reason=0).properties.assigned_client_id
    assert client_id is not None
    client.subscribed(topic)
    client.leave()
    client = talk.open()
    client.send(Connect(client_id, version=V5, clean_start=False))
    answer = client.expect(Connack, reason=0, session_present=True)
    assert answer.properties.assigned_client_id is None


@pytest.mark.parametrize(
    "client_id",
    [
        "abcdefghijklmnopqrstuvw",
        "0123456789ABCDEFGHIJKLM",
        "with spaces / and #",
        "ä€💧",
        "x" * 300,
    ],
)
def test_client_ids_of_many_kinds(talk: Conversation, client_id: str) -> None:
    """[MQTT-3.1.3-5]: the first two must be accepted, the others are what people use."""
    client = talk.open()
    client.send(Connect(client_id, version=talk.version))
    client.expect(Connack, reason=0)


def test_client_ids_are_compared_as_they_are(talk: Conversation) -> None:
    """1.5.4: no normalisation, no folding of case; a byte order mark counts."""
    names = ["id", "ID", "\ufeffid", "i\u0301d", "\u00edd"]
    clients = [talk.join(name) for name in names]
    for client in clients:
        client.expect_silence()


def test_a_user_name_alone_is_fine(talk: Conversation) -> None:
    client = talk.open()
    client.send(Connect(talk.client_id("a"), version=talk.version, username="somebody"))
    client.expect(Connack, reason=0)


def test_user_name_and_password_where_no_users_are_configured(talk: Conversation) -> None:
    client = talk.open()
    client.send(
        Connect(
            talk.client_id("a"), version=talk.version, username="somebody", password=b"\x00\xff"
        )
    )
    client.expect(Connack, reason=0)


@only_311
def test_a_password_needs_a_user_name_in_3_1_1(talk: Conversation) -> None:
    """[MQTT-3.1.2-22] of 3.1.1"""
    client = talk.open()
    client.send_bytes(_connect(b"MQTT", 4, 0x42, b"\x00\x01a\x00\x01p"))
    client.expect_refusal(None)


@only_5
def test_a_password_alone_is_fine_in_5(talk: Conversation) -> None:
    """3.1.2.9: tokens are passwords without names."""
    client = talk.open()
    client.send_bytes(_connect(b"MQTT", 5, 0x42, b"\x00\x00\x01a\x00\x01p"))
    client.expect(Connack, reason=0)


@only_5
def test_authentication_by_an_unknown_method_is_refused(talk: Conversation) -> None:
    """[MQTT-4.12.0-1]"""
    client = talk.open()
    properties = Properties(authentication_method="unheard-of", authentication_data=b"x")
    client.send(Connect(talk.client_id("a"), version=V5, properties=properties))
    client.expect_refusal(None, Reason.BAD_AUTHENTICATION_METHOD)


@only_5
def test_auth_without_a_method_at_connect_is_a_protocol_error(talk: Conversation) -> None:
    """[MQTT-4.12.0-6], 4.12.1"""
    client = talk.join("a")
    client.send(Auth(Reason.REAUTHENTICATE, Properties(authentication_method="x")))
    client.expect_end(Reason.PROTOCOL_ERROR)


@only_5
def test_connack_leaves_out_what_was_not_asked_for(talk: Conversation) -> None:
    """[MQTT-3.1.2-28]: no response information unless requested; no authentication either."""
    _, answer = talk.connect("a")
    assert answer.properties.response_information is None
    assert answer.properties.authentication_method is None
    assert answer.properties.assigned_client_id is None


@only_5
@pytest.mark.parametrize("wanted", [True, False])
def test_response_information_may_be_asked_for(talk: Conversation, wanted: bool) -> None:
    """3.1.2.11.6: an answer is optional, an error would not be."""
    talk.connect("a", properties=Properties(request_response_information=wanted))


@only_5
def test_connack_restricts_nothing(talk: Conversation, topic: str) -> None:
    """3.2.2.3: everything optional is there, so it is either said or left out."""
    said = talk.connect("a")[1].properties
    assert said.maximum_qos is None
    assert said.retain_available in (None, True)
    assert said.wildcard_subscription_available in (None, True)
    assert said.subscription_identifiers_available in (None, True)
    assert said.shared_subscription_available in (None, True)


@only_5
def test_all_properties_of_connect_together(talk: Conversation) -> None:
    properties = Properties(
        session_expiry_s=10,
        receive_maximum=10,
        maximum_packet_size=1000,
        topic_alias_maximum=5,
        request_response_information=True,
        request_problem_information=False,
        user=(("a", "1"), ("a", "1"), ("b", "")),
    )
    client, _ = talk.connect("a", properties=properties)
    client.expect_silence()


def test_ping_is_answered(talk: Conversation) -> None:
    """[MQTT-3.12.4-1]"""
    client = talk.join("a")
    for _ in range(3):
        client.expect_silence()
    assert client.frame == bytes.fromhex("d000")


def test_disconnect_closes_the_connection(talk: Conversation) -> None:
    """[MQTT-3.14.4-1], [MQTT-3.14.4-2]"""
    talk.join("a").leave()


def test_nothing_is_taken_after_disconnect(talk: Conversation, topic: str) -> None:
    """3.14.4: what follows DISCONNECT was never said."""
    witness = talk.join("witness").subscribed(topic)
    client = talk.join("a")
    client.send(Publish(topic, b"before"), Disconnect(), Publish(topic, b"after"))
    client.expect_closed()
    witness.take(topic, b"before")
    witness.expect_silence()


@only_5
@pytest.mark.parametrize("reason", [Reason.SUCCESS, Reason.UNSPECIFIED_ERROR])
def test_disconnect_may_say_why(talk: Conversation, reason: Reason) -> None:
    client = talk.join("a")
    client.leave(reason, Properties(reason_string="enough", user=(("k", "v"),)))


def test_the_versions_meet_on_one_broker(talk: Conversation, topic: str) -> None:
    """A message crosses from either version to the other."""
    other = V5 if talk.version == V311 else V311
    sub = talk.join("sub", version=other).subscribed(topic, qos=2)
    pub = talk.join("pub")
    for qos in (0, 1, 2):
        pub.publish(topic, b"x", qos=qos)
        sub.take(topic, b"x", qos=qos, properties=NO_PROPERTIES)
