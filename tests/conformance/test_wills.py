"""Wills: what is published for a client that goes without a word (3.1.2.5, 3.1.3.2).

Those that take time are in test_timed.
"""

from __future__ import annotations

import pytest

from accord.core.mqtt.codes import V5, Reason
from accord.core.mqtt.packets import Will
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from tests.brokers import deviates
from tests.conformance.conversation import Conversation, only_5, only_311


def test_a_lost_client_s_will_is_published(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-8]"""
    witness = talk.join("witness").subscribed(topic)
    talk.join("a", will=Will(topic, b"gone")).drop()
    witness.take(topic, b"gone", retain=False)
    witness.expect_silence()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_has_its_qos(talk: Conversation, topic: str, qos: int) -> None:
    witness = talk.join("witness").subscribed(topic, qos=2)
    talk.join("a", will=Will(topic, b"gone", qos)).drop()
    witness.take(topic, b"gone", qos=qos)


@pytest.mark.parametrize("retain", [True, False])
def test_a_will_may_be_retained(talk: Conversation, topic: str, retain: bool) -> None:
    """[MQTT-3.1.2-14], [MQTT-3.1.2-15]"""
    witness = talk.join("witness").subscribed(topic)
    talk.join("a", will=Will(topic, b"gone", retain=retain)).drop()
    witness.take(topic, b"gone", retain=False)
    late = talk.join("late").subscribed(topic)
    if retain:
        late.take(topic, b"gone", retain=True)
    late.expect_silence()


def test_a_will_may_be_empty(talk: Conversation, topic: str) -> None:
    """3.1.3.3: a payload of zero bytes, which when retained removes what was."""
    pub = talk.join("pub")
    pub.publish(topic, b"old", retain=True)
    witness = talk.join("witness").subscribed(topic)
    witness.take(topic, b"old", retain=True)
    talk.join("a", will=Will(topic, b"", retain=True)).drop()
    witness.take(topic, b"")
    talk.join("late").subscribed(topic).expect_silence()


def test_a_will_may_be_large_and_binary(talk: Conversation, topic: str) -> None:
    payload = bytes(range(256)) * 200
    witness = talk.join("witness").subscribed(topic)
    talk.join("a", will=Will(topic, payload)).drop()
    witness.take(topic, payload)


def test_a_client_that_says_goodbye_has_no_will(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-10], [MQTT-3.14.4-3]"""
    witness = talk.join("witness").subscribed(topic)
    talk.join("a", will=Will(topic, b"gone")).leave()
    witness.expect_silence()


@only_5
@pytest.mark.parametrize(
    "reason",
    [
        Reason.DISCONNECT_WITH_WILL,
        pytest.param(Reason.UNSPECIFIED_ERROR, marks=deviates("takes any other as a goodbye")),
    ],
)
def test_a_client_may_ask_for_its_will(talk: Conversation, topic: str, reason: Reason) -> None:
    """[MQTT-3.1.2-8], 3.14.2.1: any reason but 0 leaves the will in place."""
    witness = talk.join("witness").subscribed(topic)
    talk.join("a", will=Will(topic, b"gone")).leave(reason)
    witness.take(topic, b"gone")


def test_a_will_is_published_after_a_protocol_error(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-8]: also when it is the broker that closes."""
    witness = talk.join("witness").subscribed(topic)
    client = talk.join("a", will=Will(topic, b"gone"))
    client.send_bytes(b"\x00\x00")
    client.expect_end(Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR)
    witness.take(topic, b"gone")
    witness.expect_silence()


def test_a_client_that_is_replaced_has_a_will(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.4-3], 3.1.2.5: its connection was closed without a DISCONNECT of its own."""
    witness = talk.join("witness").subscribed(topic)
    talk.join("a", will=Will(topic, b"gone"))
    talk.join("a")
    witness.take(topic, b"gone")
    witness.expect_silence()


@only_311
@deviates("forgets it")
def test_a_replaced_session_that_stays_has_a_will(talk: Conversation, topic: str) -> None:
    witness = talk.join("witness").subscribed(topic)
    talk.connect("a", clean_start=False, will=Will(topic, b"gone"))
    talk.connect("a", clean_start=False)
    witness.take(topic, b"gone")
    witness.expect_silence()


@only_5
def test_a_delayed_will_is_forgotten_at_take_over(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.3-9]: the session goes on before the delay has passed."""
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=60))
    talk.connect("a", will=will, properties=Properties(session_expiry_s=60))
    talk.stay("a", expect_session=True).expect_silence()
    witness.expect_silence()


@only_5
@deviates("forgets it")
def test_a_delayed_will_is_due_when_the_session_ends_at_take_over(
    talk: Conversation, topic: str
) -> None:
    """3.1.3.2.2: at the end of the session, if that comes first."""
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=60))
    talk.connect("a", will=will, properties=Properties(session_expiry_s=60))
    talk.join("a")
    witness.take(topic, b"gone")


@only_5
@deviates("waits for the delay")
def test_a_delayed_will_is_due_when_the_session_ends_with_the_connection(
    talk: Conversation, topic: str
) -> None:
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=60))
    talk.connect("a", will=will)[0].drop()
    witness.take(topic, b"gone")


@only_5
@deviates("waits for the delay")
def test_a_delayed_will_is_due_when_disconnect_ends_the_session(
    talk: Conversation, topic: str
) -> None:
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=60))
    client, _ = talk.connect("a", will=will, properties=Properties(session_expiry_s=60))
    client.leave(Reason.DISCONNECT_WITH_WILL, Properties(session_expiry_s=0))
    witness.take(topic, b"gone")


@only_5
@deviates("forgets it")
def test_a_delayed_will_is_due_when_a_clean_start_ends_the_session(
    talk: Conversation, topic: str
) -> None:
    witness = talk.join("witness").subscribed(topic)
    will = Will(topic, b"gone", properties=Properties(will_delay_s=60))
    talk.connect("a", will=will, properties=Properties(session_expiry_s=60))[0].drop()
    witness.expect_silence()
    talk.join("a")
    witness.take(topic, b"gone")


@only_5
def test_a_will_bears_its_properties(talk: Conversation, topic: str) -> None:
    """3.1.3.2: all of them, but not its delay."""
    properties = Properties(
        payload_format=1,
        content_type="text/plain",
        response_topic=f"{topic}/answer",
        correlation_data=b"\x00\xff",
        user=(("a", "2"), ("c", "3"), ("a", "1")),
    )
    witness = talk.join("witness").subscribed(topic)
    talk.join("a", will=Will(topic, b"gone", properties=properties)).drop()
    assert witness.take(topic, b"gone").properties == properties


def test_a_will_reaches_one_s_own_waiting_session(talk: Conversation, topic: str) -> None:
    properties = Properties(session_expiry_s=60) if talk.version == V5 else NO_PROPERTIES
    will = Will(topic, b"gone", qos=1)
    client, _ = talk.connect("a", clean_start=False, will=will, properties=properties)
    client.subscribed(topic, qos=1)
    witness = talk.join("witness").subscribed(topic)
    client.drop()
    witness.take(topic, b"gone")
    client = talk.stay("a", expect_session=True)
    client.take(topic, b"gone", qos=1)


def test_a_will_is_that_of_the_last_connect(talk: Conversation, topic: str) -> None:
    """4.1: a will belongs to one connection; the next one may have none."""
    witness = talk.join("witness").subscribed(topic)
    talk.stay("a", expect_session=False).leave()
    properties = Properties(session_expiry_s=60) if talk.version == V5 else NO_PROPERTIES
    talk.connect("a", clean_start=False, will=Will(topic, b"1"), properties=properties)[0].leave()
    talk.connect("a", clean_start=False, properties=properties)[0].drop()
    talk.connect("a", clean_start=False, will=Will(topic, b"2"), properties=properties)[0].drop()
    witness.take(topic, b"2")
    witness.expect_silence()


@pytest.mark.parametrize("bad", ["a/+", "#", "a\0b"])
def test_a_will_needs_a_topic_without_wildcards(talk: Conversation, bad: str) -> None:
    """[MQTT-3.1.3-11], [MQTT-3.3.2-2]"""
    client = talk.open()
    text = bad.encode()
    body = b"\x00\x04MQTT" + bytes([talk.version, 0x06, 0, 0])
    empty = b"\x00" if talk.version == V5 else b""
    body += empty + b"\x00\x01w" + empty + len(text).to_bytes(2, "big") + text + b"\x00\x01x"
    client.send_bytes(bytes([0x10, len(body)]) + body)
    client.expect_refusal(
        None, Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR, Reason.TOPIC_NAME_INVALID
    )
