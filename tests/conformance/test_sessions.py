"""Sessions that outlive connections, and connections that replace each other (4.1, 4.4, 3.1.2)."""

from __future__ import annotations

import pytest

from accord.core.mqtt.codec import encode
from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from accord.core.mqtt.properties import Properties
from tests.conformance.conversation import NEVER_EXPIRES, Conversation, only_5, only_311


def test_a_session_is_resumed(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-5], [MQTT-3.2.2-3]: with its subscriptions, and CONNACK says so."""
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).leave()
    sub = talk.stay("sub", expect_session=True)
    talk.join("pub").publish(topic, b"x")
    sub.take(topic, b"x", qos=1)


def test_a_session_is_resumed_after_a_lost_connection(talk: Conversation, topic: str) -> None:
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).drop()
    sub = talk.stay("sub", expect_session=True)
    talk.join("pub").publish(topic, b"x")
    sub.take(topic, b"x", qos=1)


def test_messages_wait_for_an_absent_client(talk: Conversation, topic: str) -> None:
    """4.1: QoS 1 and 2 wait, in order; QoS 0 may."""
    talk.stay("sub", expect_session=False).subscribed(topic, qos=2).leave()
    pub = talk.join("pub")
    for number in range(10):
        pub.publish(topic, b"%d" % number, qos=1 + number % 2)
    sub = talk.stay("sub", expect_session=True)
    messages = [sub.expect(Publish, topic=topic, dup=False) for _ in range(10)]
    assert [(each.payload, each.qos) for each in messages] == [
        (b"%d" % number, 1 + number % 2) for number in range(10)
    ]


def test_each_waiting_message_is_sent_once(talk: Conversation, topic: str) -> None:
    talk.stay("sub", expect_session=False).subscribed(topic, qos=2).leave()
    pub = talk.join("pub")
    for qos in (1, 2):
        pub.publish(topic, b"x", qos=qos)
    sub = talk.stay("sub", expect_session=True)
    for qos in (1, 2):
        sub.take(topic, b"x", qos=qos)
    sub.leave()
    talk.stay("sub", expect_session=True).expect_silence()


def test_a_clean_start_forgets_the_session(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-4], [MQTT-3.2.2-2]"""
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=1)
    sub.drop()
    pub = talk.join("pub")
    pub.publish(topic, b"lost")
    sub, answer = talk.connect("sub", clean_start=True)
    assert not answer.session_present
    pub.publish(topic, b"unheard")
    sub.expect_silence()
    sub.leave()
    talk.stay("sub", expect_session=False).expect_silence()


@only_311
def test_a_clean_session_ends_with_its_connection(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-6] of 3.1.1"""
    talk.join("sub").subscribed(topic, qos=1).drop()
    talk.join("pub").publish(topic, b"x")
    talk.stay("sub", expect_session=False).expect_silence()


@only_5
@pytest.mark.parametrize("expiry_s", [None, 0])
def test_a_session_without_expiry_ends_with_its_connection(
    talk: Conversation, topic: str, expiry_s: int | None
) -> None:
    """3.1.2.11.2: absent means 0."""
    properties = Properties(session_expiry_s=expiry_s)
    sub, _ = talk.connect("sub", clean_start=False, properties=properties)
    sub.subscribed(topic, qos=1).drop()
    talk.stay("sub", expect_session=False).expect_silence()


@only_5
def test_a_clean_start_may_begin_a_session_that_stays(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub", properties=Properties(session_expiry_s=NEVER_EXPIRES))
    sub.subscribed(topic, qos=1).leave()
    talk.join("pub").publish(topic, b"x")
    talk.stay("sub", expect_session=True).take(topic, b"x", qos=1)


@only_5
def test_disconnect_can_end_the_session(talk: Conversation, topic: str) -> None:
    """3.14.2.2.2: the new expiry counts."""
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=1)
    sub.leave(properties=Properties(session_expiry_s=0))
    talk.stay("sub", expect_session=False)


@only_5
def test_disconnect_can_prolong_the_session(talk: Conversation, topic: str) -> None:
    sub = talk.stay("sub", expect_session=False, expiry_s=1).subscribed(topic, qos=1)
    sub.leave(properties=Properties(session_expiry_s=NEVER_EXPIRES))
    talk.stay("sub", expect_session=True)


@only_5
def test_disconnect_cannot_invent_an_expiry(talk: Conversation) -> None:
    """3.14.2.2.2: not when CONNECT said 0."""
    client = talk.join("a")
    client.send(Disconnect(Reason.SUCCESS, Properties(session_expiry_s=5)))
    client.expect_end(Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_are_sent_again(talk: Conversation, topic: str, qos: int) -> None:
    """[MQTT-4.4.0-1], [MQTT-3.3.1-1]: with their packet ids, in order, marked DUP."""
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=qos)
    pub = talk.join("pub")
    for number in range(5):
        pub.publish(topic, b"%d" % number, qos=qos)
    first = [sub.expect(Publish, payload=b"%d" % n, dup=False) for n in range(5)]
    sub.drop()
    sub = talk.stay("sub", expect_session=True)
    for message in first:
        sub.expect(Publish, payload=message.payload, packet_id=message.packet_id, dup=True)
    sub.expect_silence()


def test_what_was_acknowledged_is_not_sent_again(talk: Conversation, topic: str) -> None:
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=1)
    pub = talk.join("pub")
    for number in range(3):
        pub.publish(topic, b"%d" % number)
    messages = [sub.expect(Publish) for _ in range(3)]
    sub.send(Puback(messages[1].packet_id))
    sub.expect_silence()
    sub.drop()
    sub = talk.stay("sub", expect_session=True)
    sub.take(topic, b"0", qos=1, dup=True)
    sub.take(topic, b"2", qos=1, dup=True)
    sub.expect_silence()


def test_a_released_message_is_only_released_again(talk: Conversation, topic: str) -> None:
    """[MQTT-4.4.0-1], [MQTT-4.3.3-6]: after PUBREC it is PUBREL that is repeated."""
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=2)
    talk.join("pub").publish(topic, b"x", qos=2)
    packet_id = sub.expect(Publish, qos=2).packet_id
    sub.send(Pubrec(packet_id))
    sub.expect(Pubrel, packet_id=packet_id)
    sub.drop()
    sub = talk.stay("sub", expect_session=True)
    sub.expect(Pubrel, packet_id=packet_id)
    sub.send(Pubcomp(packet_id))
    sub.expect_silence()
    sub.drop()
    talk.stay("sub", expect_session=True).expect_silence()


def test_a_publisher_continues_where_it_was(talk: Conversation, topic: str) -> None:
    """[MQTT-4.3.3-10]: what was received by QoS 2 is known across connections."""
    sub = talk.join("sub").subscribed(topic, qos=2)
    pub = talk.stay("pub", expect_session=False)
    pub.send(Publish(topic, b"x", qos=2, packet_id=9))
    pub.expect(Pubrec, packet_id=9)
    pub.drop()
    pub = talk.stay("pub", expect_session=True)
    pub.send(Publish(topic, b"x", qos=2, dup=True, packet_id=9))
    pub.expect(Pubrec, packet_id=9)
    pub.send(Pubrel(9))
    pub.expect(Pubcomp, packet_id=9)
    sub.take(topic, b"x", qos=2)
    sub.expect_silence()


def test_a_publisher_only_has_to_release(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(topic, qos=2)
    pub = talk.stay("pub", expect_session=False)
    pub.send(Publish(topic, b"x", qos=2, packet_id=9))
    pub.expect(Pubrec, packet_id=9)
    pub.drop()
    pub = talk.stay("pub", expect_session=True)
    pub.send(Pubrel(9))
    pub.expect(Pubcomp, packet_id=9, reason=0)
    sub.take(topic, b"x", qos=2)
    sub.expect_silence()


def test_unsubscribing_holds_across_connections(talk: Conversation, topic: str) -> None:
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=1)
    sub.unsubscribe(topic)
    sub.leave()
    talk.join("pub").publish(topic, b"x")
    talk.stay("sub", expect_session=True).expect_silence()


def test_a_new_connection_takes_over(talk: Conversation) -> None:
    """[MQTT-3.1.4-3]: the first one is closed, in version 5 with the reason."""
    first = talk.join("a")
    second = talk.join("a")
    first.expect_end(Reason.SESSION_TAKEN_OVER)
    second.expect_silence()


def test_taking_over_resumes_the_session(talk: Conversation, topic: str) -> None:
    first = talk.stay("a", expect_session=False).subscribed(topic, qos=1)
    pub = talk.join("pub")
    pub.publish(topic, b"unacknowledged")
    message = first.expect(Publish, dup=False)
    second = talk.stay("a", expect_session=True)
    first.expect_end(Reason.SESSION_TAKEN_OVER)
    second.take(topic, b"unacknowledged", qos=1, dup=True, packet_id=message.packet_id)
    pub.publish(topic, b"new")
    second.take(topic, b"new", qos=1)


def test_taking_over_with_a_clean_start_forgets(talk: Conversation, topic: str) -> None:
    first = talk.stay("a", expect_session=False).subscribed(topic, qos=1)
    second, answer = talk.connect("a")
    assert not answer.session_present
    first.expect_end(Reason.SESSION_TAKEN_OVER)
    talk.join("pub").publish(topic, b"x")
    second.expect_silence()


def test_taking_over_again_and_again(talk: Conversation, topic: str) -> None:
    client = talk.stay("a", expect_session=False).subscribed(topic, qos=1)
    for _ in range(10):
        last, client = client, talk.stay("a", expect_session=True)
        last.expect_end(Reason.SESSION_TAKEN_OVER)
    talk.join("pub").publish(topic, b"x")
    client.take(topic, b"x", qos=1)


def test_the_old_connection_says_no_more(talk: Conversation, topic: str) -> None:
    """What it sends after being taken over is not heard."""
    witness = talk.join("witness").subscribed(topic)
    first = talk.join("a")
    second = talk.join("a")
    first.expect_end(Reason.SESSION_TAKEN_OVER)
    second.send(Publish(topic, b"second"))
    witness.take(topic, b"second")
    witness.expect_silence()


def test_a_session_may_change_its_version(talk: Conversation, topic: str) -> None:
    """4.1: a session belongs to the client id."""
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).leave()
    other = V5 if talk.version == V311 else V311
    sub, answer = talk.connect("sub", version=other, clean_start=False)
    assert answer.session_present
    talk.join("pub").publish(topic, b"x")
    sub.take(topic, b"x", qos=1)


def test_a_refused_connect_leaves_the_session(talk: Conversation, topic: str) -> None:
    """A malformed CONNECT of the same client id takes nothing over."""
    client = talk.stay("a", expect_session=False).subscribed(topic)
    intruder = talk.open()
    packet = Connect(talk.client_id("a"), version=talk.version)
    frame = bytearray(encode(packet, talk.version))
    frame[9] |= 1
    intruder.send_bytes(bytes(frame))
    intruder.expect_refusal(None, Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR)
    talk.join("pub").publish(topic, b"x")
    client.take(topic, b"x")


def test_connack_comes_before_what_waited(talk: Conversation, topic: str) -> None:
    """[MQTT-3.2.0-1]"""
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).leave()
    talk.join("pub").publish(topic, b"x")
    sub = talk.open()
    properties = Properties(session_expiry_s=60) if talk.version == V5 else Properties()
    sub.send(Connect(talk.client_id("sub"), talk.version, clean_start=False, properties=properties))
    sub.expect(Connack, session_present=True)
    sub.take(topic, b"x", qos=1)
