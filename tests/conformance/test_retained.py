"""Retained messages (3.3.1.3, 3.8.3.1)."""

from __future__ import annotations

import pytest

from accord.core.mqtt.packets import Publish, TopicFilter
from accord.core.mqtt.properties import Properties
from tests.brokers import deviates
from tests.conformance.conversation import Conversation, only_5


def test_a_retained_message_waits_for_subscribers(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-8]: flagged as retained, whether or not its publisher stayed."""
    pub = talk.join("pub")
    pub.publish(topic, b"x", retain=True)
    pub.leave()
    for part in ("early", "late"):
        talk.join(part).subscribed(topic).take(topic, b"x", retain=True, dup=False)


def test_only_the_last_is_retained(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-5]"""
    pub = talk.join("pub")
    for number in range(5):
        pub.publish(topic, b"%d" % number, qos=number % 3, retain=True)
    sub = talk.join("sub").subscribed(topic)
    sub.take(topic, b"4", retain=True)
    sub.expect_silence()


def test_what_is_not_retained_leaves_it(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-8] of 5.0: without the flag a message neither replaces nor removes it."""
    pub = talk.join("pub")
    pub.publish(topic, b"kept", retain=True)
    pub.publish(topic, b"passing")
    pub.publish(topic, b"")
    sub = talk.join("sub").subscribed(topic)
    sub.take(topic, b"kept", retain=True)
    sub.expect_silence()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_payload_removes_it(talk: Conversation, topic: str, qos: int) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]: subscribers there hear it, later ones hear nothing."""
    pub = talk.join("pub")
    pub.publish(topic, b"x", qos=qos, retain=True)
    here = talk.join("here").subscribed(topic)
    here.take(topic, b"x", retain=True)
    pub.publish(topic, b"", qos=qos, retain=True)
    here.take(topic, b"", retain=False)
    talk.join("late").subscribed(topic).expect_silence()


def test_subscribers_there_get_it_as_any_message(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-12]: the flag says that a message is old, here it is not."""
    sub = talk.join("sub").subscribed(topic, qos=1)
    talk.join("pub").publish(topic, b"x", retain=True)
    sub.take(topic, b"x", qos=1, retain=False)
    sub.expect_silence()


@pytest.mark.parametrize(("sent", "granted"), [(0, 2), (1, 0), (1, 2), (2, 1), (2, 2)])
def test_with_the_lower_of_both_qos(
    talk: Conversation, topic: str, sent: int, granted: int
) -> None:
    """[MQTT-3.3.1-5]: kept with its QoS."""
    talk.join("pub").publish(topic, b"x", qos=sent, retain=True)
    sub = talk.join("sub").subscribed(topic, qos=granted)
    sub.take(topic, b"x", qos=min(sent, granted), retain=True)


def test_a_wildcard_finds_all(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-9]"""
    pub = talk.join("pub")
    for each in ("", "/a", "/a/b", "/c"):
        pub.publish(topic + each, each.encode() or b"-", retain=True)
    sub = talk.join("sub").subscribed(f"{topic}/#")
    found = {sub.expect(Publish, retain=True).topic for _ in range(4)}
    assert found == {topic, f"{topic}/a", f"{topic}/a/b", f"{topic}/c"}
    sub.expect_silence()
    sub = talk.join("plus").subscribed(f"{topic}/+")
    found = {sub.expect(Publish, retain=True).topic for _ in range(2)}
    assert found == {f"{topic}/a", f"{topic}/c"}
    sub.expect_silence()


def test_many_retained_messages(talk: Conversation, topic: str) -> None:
    pub = talk.join("pub")
    for number in range(100):
        pub.send(Publish(f"{topic}/{number}", b"x" * 1000, retain=True))
    pub.expect_silence()
    sub = talk.join("sub").subscribed(f"{topic}/+")
    assert len({sub.expect(Publish, retain=True).topic for _ in range(100)}) == 100
    sub.expect_silence()


def test_subscribing_again_sends_it_again(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.4-3], [MQTT-3.3.1-9]"""
    talk.join("pub").publish(topic, b"x", retain=True)
    sub = talk.join("sub")
    for _ in range(3):
        sub.subscribed(topic).take(topic, b"x", retain=True)
    sub.expect_silence()


def test_it_outlives_its_publisher_s_session(talk: Conversation, topic: str) -> None:
    """4.1: retained messages are no part of session state."""
    pub = talk.stay("pub", expect_session=False)
    pub.publish(topic, b"x", retain=True)
    pub.drop()
    talk.join("pub").leave()
    talk.join("sub").subscribed(topic).take(topic, b"x", retain=True)


def test_a_retained_message_for_an_absent_session_is_not_old(
    talk: Conversation, topic: str
) -> None:
    """[MQTT-3.3.1-12]: queued for an existing subscription, so without the flag."""
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=1)
    sub.drop()
    talk.join("pub").publish(topic, b"x", retain=True)
    sub = talk.stay("sub", expect_session=True)
    sub.take(topic, b"x", qos=1, retain=False)
    sub.expect_silence()


HANDLING = {
    0: [True, True],
    1: [True, False],
    2: [False, False],
}


@only_5
@pytest.mark.parametrize("handling", HANDLING)
def test_retain_handling(talk: Conversation, topic: str, handling: int) -> None:
    """[MQTT-3.3.1-9] to [MQTT-3.3.1-11]: at a new subscription, and at one that was there."""
    talk.join("pub").publish(topic, b"x", retain=True)
    sub = talk.join("sub")
    for sends in HANDLING[handling]:
        sub.subscribed(TopicFilter(topic, 1, retain_handling=handling))
        if sends:
            sub.take(topic, b"x", qos=1, retain=True)
        sub.expect_silence()


@only_5
def test_handling_1_after_unsubscribing_is_new(talk: Conversation, topic: str) -> None:
    talk.join("pub").publish(topic, b"x", retain=True)
    sub = talk.join("sub")
    for _ in range(2):
        sub.subscribed(TopicFilter(topic, retain_handling=1)).take(topic, b"x", retain=True)
        sub.unsubscribe(topic)


@only_5
def test_handling_1_knows_subscriptions_of_a_resumed_session(
    talk: Conversation, topic: str
) -> None:
    talk.join("pub").publish(topic, b"x", retain=True)
    sub = talk.stay("sub", expect_session=False)
    sub.subscribed(TopicFilter(topic, 1, retain_handling=1)).take(topic, b"x", qos=1, retain=True)
    sub.drop()
    sub = talk.stay("sub", expect_session=True)
    sub.subscribed(TopicFilter(topic, 1, retain_handling=1)).expect_silence()


@only_5
def test_the_flag_is_set_whatever_retain_as_published_says(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-8]: at the moment of subscribing."""
    talk.join("pub").publish(topic, b"x", retain=True)
    for number, keep in enumerate((False, True)):
        sub = talk.join(f"sub{number}").subscribed(TopicFilter(topic, retain_as_published=keep))
        sub.take(topic, b"x", retain=True)


@only_5
def test_a_retained_message_bears_its_properties(talk: Conversation, topic: str) -> None:
    """3.3.2.3: and the identifier of the subscription that asks for it."""
    properties = Properties(
        payload_format=1,
        content_type="text/plain",
        response_topic=f"{topic}/answer",
        correlation_data=b"\x00\x01",
        user=(("a", "2"), ("c", "3"), ("a", "1")),
    )
    talk.join("pub").publish(topic, b"x", retain=True, properties=properties)
    sub = talk.join("sub").subscribed(topic)
    assert sub.take(topic, b"x", retain=True).properties == properties
    sub.subscribed(topic, properties=Properties(subscription_identifiers=(3,)))
    assert sub.take(topic, b"x", retain=True).properties.subscription_identifiers == (3,)


@only_5
@deviates("sends it back")
def test_no_local_and_one_s_own_retained_message(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.3-3]: it comes from a connection of that client id, so it is not sent back."""
    client = talk.join("a")
    client.publish(topic, b"x", retain=True)
    client.subscribed(TopicFilter(topic, no_local=True)).expect_silence()
    talk.join("b").subscribed(TopicFilter(topic, no_local=True)).take(topic, b"x", retain=True)
