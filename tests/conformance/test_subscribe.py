"""Subscriptions: SUBSCRIBE, UNSUBSCRIBE and the options of version 5 (3.8 to 3.11)."""

from __future__ import annotations

import pytest

from accord.core.mqtt.codes import V5, Reason
from accord.core.mqtt.packets import Publish, Suback, Subscribe, TopicFilter, Unsuback, Unsubscribe
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from tests.conformance.conversation import Conversation, only_5, only_311


def test_suback_bears_the_packet_id(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.4-1], [MQTT-3.8.4-2]"""
    sub = talk.join("sub")
    for packet_id in (1, 256, 65_535):
        sub.send(Subscribe(packet_id, (TopicFilter(topic),), NO_PROPERTIES))
        sub.expect(Suback, packet_id=packet_id, reasons=(0,))


def test_each_filter_is_answered_in_its_place(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.4-6], [MQTT-3.9.3-1]"""
    sub = talk.join("sub")
    wanted = (2, 0, 1, 1, 2, 0)
    filters = [TopicFilter(f"{topic}/{n}", qos) for n, qos in enumerate(wanted)]
    assert sub.subscribe(*filters).reasons == wanted
    pub = talk.join("pub")
    for number, qos in enumerate(wanted):
        pub.publish(f"{topic}/{number}", b"x", qos=2)
        sub.take(f"{topic}/{number}", b"x", qos=qos)


def test_many_filters_in_one_packet(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(*(f"{topic}/{n}" for n in range(200)))
    talk.join("pub").publish(f"{topic}/199", b"x")
    sub.take(f"{topic}/199", b"x")


def test_the_same_filter_again_replaces_the_subscription(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.4-3]: with its new QoS, and without a second copy."""
    sub = talk.join("sub").subscribed(topic, qos=2)
    pub = talk.join("pub")
    for qos in (0, 1, 2, 1):
        sub.subscribed(topic, qos=qos)
        pub.publish(topic, b"x", qos=2)
        sub.take(topic, b"x", qos=qos)
        sub.expect_silence()


def test_the_same_filter_twice_in_one_packet(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.4-5]: as if in two packets, so the later one counts."""
    sub = talk.join("sub").subscribed(TopicFilter(topic, 2), TopicFilter(topic, 0))
    talk.join("pub").publish(topic, b"x", qos=2)
    sub.take(topic, b"x", qos=0)
    sub.expect_silence()


def test_unsubscribing_ends_delivery(talk: Conversation, topic: str) -> None:
    """[MQTT-3.10.4-1], [MQTT-3.10.4-4], [MQTT-3.11.3-1]"""
    sub = talk.join("sub").subscribed(topic, f"{topic}/more")
    pub = talk.join("pub")
    sub.send(Unsubscribe(300, (topic,), NO_PROPERTIES))
    answer = sub.expect(Unsuback, packet_id=300)
    if talk.version == V5:
        assert answer.reasons == (Reason.SUCCESS,)
    pub.publish(topic, b"x")
    pub.publish(f"{topic}/more", b"y")
    sub.take(f"{topic}/more", b"y")
    sub.expect_silence()


def test_unsubscribing_from_what_was_not_subscribed(talk: Conversation, topic: str) -> None:
    """[MQTT-3.10.4-5], 3.11.3: answered all the same."""
    answer = talk.join("sub").unsubscribe(topic)
    if talk.version == V5:
        assert answer.reasons == (Reason.NO_SUBSCRIPTION_EXISTED,)


def test_unsubscribing_takes_filters_literally(talk: Conversation, topic: str) -> None:
    """[MQTT-3.10.4-1]: character by character; a wildcard removes only itself."""
    sub = talk.join("sub").subscribed(f"{topic}/a", f"{topic}/+")
    answer = sub.unsubscribe(f"{topic}/#", f"{topic}/+", f"{topic}/A")
    if talk.version == V5:
        none, done = Reason.NO_SUBSCRIPTION_EXISTED, Reason.SUCCESS
        assert answer.reasons == (none, done, none)
    pub = talk.join("pub")
    pub.publish(f"{topic}/b", b"x")
    pub.publish(f"{topic}/a", b"x")
    sub.take(f"{topic}/a", b"x")
    sub.expect_silence()


def test_unsubscribing_lets_flows_finish(talk: Conversation, topic: str) -> None:
    """[MQTT-3.10.4-3]"""
    sub = talk.join("sub").subscribed(topic, qos=2)
    talk.join("pub").publish(topic, b"x", qos=2)
    message = sub.expect(Publish, qos=2)
    sub.unsubscribe(topic)
    sub.settle(message)
    sub.expect_silence()


def test_subscribing_again_after_unsubscribing(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(topic)
    sub.unsubscribe(topic)
    sub.subscribed(topic)
    talk.join("pub").publish(topic, b"x")
    sub.take(topic, b"x")
    sub.expect_silence()


@only_5
def test_no_local_keeps_one_s_own_messages_away(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.3-3]"""
    client = talk.join("a").subscribed(TopicFilter(topic, 1, no_local=True))
    other = talk.join("b").subscribed(TopicFilter(topic, 1, no_local=True))
    client.publish(topic, b"x")
    client.expect_silence()
    other.take(topic, b"x", qos=1)
    other.publish(topic, b"y")
    client.take(topic, b"y", qos=1)
    other.expect_silence()


@only_5
def test_no_local_is_a_matter_of_each_subscription(talk: Conversation, topic: str) -> None:
    client = talk.join("a").subscribed(TopicFilter(topic, no_local=True), TopicFilter(f"{topic}/#"))
    client.send(Publish(topic, b"x"))
    client.take(topic, b"x")
    client.expect_silence()


@only_311
@pytest.mark.parametrize("option", [0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x03])
def test_options_are_unknown_in_3_1_1(talk: Conversation, option: int) -> None:
    """[MQTT-3.8.3-4] of 3.1.1: the upper bits are reserved, and QoS 3 isn't one."""
    sub = talk.join("sub")
    sub.send_bytes(b"\x82\x06\x00\x01\x00\x01a" + bytes([option]))
    sub.expect_closed()


@only_5
def test_a_subscription_identifier_comes_back(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.4-3]"""
    sub = talk.join("sub")
    for number in (1, 127, 128, 16_383, 16_384, 268_435_455):
        properties = Properties(subscription_identifiers=(number,))
        sub.subscribed(f"{topic}/{number}", properties=properties)
    pub = talk.join("pub")
    for number in (268_435_455, 1, 16_384, 127, 128, 16_383):
        pub.publish(f"{topic}/{number}", b"x")
        message = sub.take(f"{topic}/{number}", b"x")
        assert message.properties.subscription_identifiers == (number,)


@only_5
def test_a_subscription_without_identifier_adds_none(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(topic)
    sub.subscribed(f"{topic}/other", properties=Properties(subscription_identifiers=(5,)))
    talk.join("pub").publish(topic, b"x")
    assert sub.take(topic, b"x").properties.subscription_identifiers == ()


@only_5
def test_one_identifier_for_all_filters_of_a_packet(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub")
    identifiers = Properties(subscription_identifiers=(42,))
    sub.subscribed(f"{topic}/a", f"{topic}/b", properties=identifiers)
    pub = talk.join("pub")
    for each in ("a", "b"):
        pub.publish(f"{topic}/{each}", b"x")
        message = sub.take(f"{topic}/{each}", b"x")
        assert message.properties.subscription_identifiers == (42,)


@only_5
def test_a_replaced_subscription_has_the_new_identifier(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.4-3]"""
    sub, pub = talk.join("sub"), talk.join("pub")
    for identifiers in ((1,), (2,), ()):
        sub.subscribed(topic, properties=Properties(subscription_identifiers=identifiers))
        pub.publish(topic, b"x")
        assert sub.take(topic, b"x").properties.subscription_identifiers == identifiers
        sub.expect_silence()


@only_5
def test_overlapping_subscriptions_tell_all_identifiers(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.4-4], [MQTT-3.3.4-5]: together in one copy, or each in its own."""
    sub = talk.join("sub")
    for number, pattern in enumerate((f"{topic}/a", f"{topic}/+", f"{topic}/#"), start=1):
        sub.subscribed(pattern, properties=Properties(subscription_identifiers=(number,)))
    sub.subscribed("+/topic/a/#")
    talk.join("pub").publish(f"{topic}/a", b"x")
    told: list[int] = []
    copies = 0
    sub.send(Subscribe(99, (TopicFilter("unrelated"),), NO_PROPERTIES))
    while isinstance(packet := sub.receive(), Publish):
        told += packet.properties.subscription_identifiers
        copies += 1
    assert sorted(told) == [1, 2, 3]
    assert copies in (1, 4)


@only_5
def test_the_same_identifier_on_several_subscriptions(talk: Conversation, topic: str) -> None:
    """3.3.4: allowed; it then may be told several times."""
    sub = talk.join("sub")
    same = Properties(subscription_identifiers=(7,))
    sub.subscribed(f"{topic}/a", properties=same)
    sub.subscribed(f"{topic}/+", properties=same)
    talk.join("pub").publish(f"{topic}/a", b"x")
    assert set(sub.expect(Publish).properties.subscription_identifiers) == {7}


@only_5
def test_identifiers_survive_with_the_session(talk: Conversation, topic: str) -> None:
    sub = talk.stay("sub", expect_session=False)
    sub.subscribed(topic, qos=1, properties=Properties(subscription_identifiers=(12,)))
    sub.drop()
    talk.join("pub").publish(topic, b"while away")
    sub = talk.stay("sub", expect_session=True)
    message = sub.take(topic, b"while away", qos=1)
    assert message.properties.subscription_identifiers == (12,)


@only_5
def test_user_properties_and_reason_of_subscribe_are_taken(talk: Conversation, topic: str) -> None:
    """3.8.2.1.3: their meaning is not defined by the standard."""
    properties = Properties(user=(("colour", "blue"), ("colour", "green")))
    talk.join("sub").subscribed(topic, properties=properties)


@only_5
def test_retain_as_published(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]"""
    keeps = talk.join("keeps").subscribed(TopicFilter(topic, retain_as_published=True))
    clears = talk.join("clears").subscribed(TopicFilter(topic, retain_as_published=False))
    pub = talk.join("pub")
    for retain in (True, False):
        pub.publish(topic, b"x", retain=retain)
        keeps.take(topic, b"x", retain=retain)
        clears.take(topic, b"x", retain=False)
