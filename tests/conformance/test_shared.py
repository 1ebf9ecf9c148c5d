"""Shared subscriptions: one message to one member of each group (4.8.2)."""

from __future__ import annotations

import itertools

import pytest

from accord.core.mqtt.codes import Reason
from accord.core.mqtt.packets import (
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Pubrec,
    Suback,
    Subscribe,
    TopicFilter,
)
from accord.core.mqtt.properties import Properties
from tests.brokers import deviates
from tests.conformance.conversation import ClosedError, Conversation, Peer, only_5

pytestmark = only_5


def _arrived(peer: Peer) -> list[bytes]:
    """Payloads of the messages that are there, up to the answer to a subscription."""
    peer.send(Subscribe(60_000, (TopicFilter("unrelated"),)))
    found = []
    while isinstance(packet := peer.receive(), Publish):
        found.append(packet.payload)
        if packet.qos:
            peer.send(Puback(packet.packet_id))
    assert isinstance(packet, Suback)
    return found


@pytest.mark.parametrize("qos", [0, 1])
def test_each_message_reaches_one_member(talk: Conversation, topic: str, qos: int) -> None:
    """4.8.2: and with several members each has some of the work."""
    members = [talk.join(f"m{n}").subscribed(f"$share/g/{topic}", qos=qos) for n in range(3)]
    pub = talk.join("pub")
    sent = [b"%d" % number for number in range(30)]
    for payload in sent:
        pub.publish(topic, payload, qos=qos)
    shares = [_arrived(member) for member in members]
    assert sorted(itertools.chain(*shares)) == sorted(sent)
    assert all(shares)


def test_each_member_hears_its_share_in_order(talk: Conversation, topic: str) -> None:
    members = [talk.join(f"m{n}").subscribed(f"$share/g/{topic}") for n in range(2)]
    pub = talk.join("pub")
    for number in range(20):
        pub.publish(topic, b"%d" % number)
    for member in members:
        share = [int(payload) for payload in _arrived(member)]
        assert share == sorted(share)


def test_groups_are_independent(talk: Conversation, topic: str) -> None:
    first = talk.join("first").subscribed(f"$share/one/{topic}")
    second = talk.join("second").subscribed(f"$share/two/{topic}")
    plain = talk.join("plain").subscribed(topic)
    talk.join("pub").publish(topic, b"x")
    for each in (first, second, plain):
        each.take(topic, b"x")
        each.expect_silence()


def test_shared_and_plain_of_one_client_are_two_subscriptions(
    talk: Conversation, topic: str
) -> None:
    """4.8.2: not overlapping ones, so there are two copies."""
    client = talk.join("a")
    client.subscribed(topic, properties=Properties(subscription_identifiers=(1,)))
    client.subscribed(f"$share/g/{topic}", properties=Properties(subscription_identifiers=(2,)))
    talk.join("pub").publish(topic, b"x")
    told = [client.take(topic, b"x").properties.subscription_identifiers for _ in range(2)]
    assert sorted(told) == [(1,), (2,)]
    client.expect_silence()


def test_a_shared_wildcard(talk: Conversation, topic: str) -> None:
    members = [talk.join(f"m{n}").subscribed(f"$share/g/{topic}/+/#") for n in range(2)]
    pub = talk.join("pub")
    pub.publish(f"{topic}/a", b"1")
    pub.publish(f"{topic}/a/b", b"2")
    pub.publish(topic, b"3")
    shares = [_arrived(member) for member in members]
    assert sorted(itertools.chain(*shares)) == [b"1", b"2"]


def test_topics_of_the_system_are_no_shares(talk: Conversation, topic: str) -> None:
    """4.7.2: the filter is what follows the group's name."""
    member = talk.join("m").subscribed("$share/g/#")
    pub = talk.join("pub")
    pub.publish(topic, b"x")
    while (message := member.expect(Publish)).topic != topic:
        pass
    assert message.payload == b"x"


def test_members_have_their_own_qos(talk: Conversation, topic: str) -> None:
    """4.8.2: as granted to each of them."""
    members = [talk.join(f"m{n}").subscribed(f"$share/g/{topic}", qos=n) for n in range(2)]
    pub = talk.join("pub")
    for _ in range(6):
        pub.publish(topic, b"x", qos=1)
    for number, member in enumerate(members):
        member.expect(Publish, qos=number)


def test_a_member_that_leaves_gets_no_more(talk: Conversation, topic: str) -> None:
    stays = talk.join("stays").subscribed(f"$share/g/{topic}", qos=1)
    talk.join("leaves").subscribed(f"$share/g/{topic}", qos=1).leave()
    quits = talk.join("quits").subscribed(f"$share/g/{topic}", qos=1)
    assert quits.unsubscribe(f"$share/g/{topic}").reasons == (Reason.SUCCESS,)
    pub = talk.join("pub")
    for number in range(6):
        pub.publish(topic, b"%d" % number)
    assert _arrived(stays) == [b"%d" % number for number in range(6)]
    quits.expect_silence()


def test_unsubscribing_needs_the_group(talk: Conversation, topic: str) -> None:
    """4.8.2: group and filter together name the subscription."""
    member = talk.join("m").subscribed(f"$share/g/{topic}")
    answer = member.unsubscribe(topic, f"$share/h/{topic}")
    assert answer.reasons == (Reason.NO_SUBSCRIPTION_EXISTED,) * 2
    talk.join("pub").publish(topic, b"x")
    member.take(topic, b"x")


@deviates("sends it")
def test_retained_messages_are_not_for_shares(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-9], 4.8.2: no retained message at a shared subscription."""
    pub = talk.join("pub")
    pub.publish(topic, b"old", retain=True)
    member = talk.join("m").subscribed(f"$share/g/{topic}")
    member.expect_silence()
    pub.publish(topic, b"new")
    member.take(topic, b"new", retain=False)


def test_subscribing_again_replaces(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.4-3]"""
    member = talk.join("m")
    for number in (1, 2):
        identifiers = Properties(subscription_identifiers=(number,))
        member.subscribed(f"$share/g/{topic}", properties=identifiers)
    talk.join("pub").publish(topic, b"x")
    assert member.take(topic, b"x").properties.subscription_identifiers == (2,)
    member.expect_silence()


def test_a_refused_message_is_not_offered_to_others(talk: Conversation, topic: str) -> None:
    """[MQTT-4.8.2-6]"""
    members = [talk.join(f"m{n}").subscribed(f"$share/g/{topic}", qos=2) for n in range(2)]
    pub = talk.join("pub")
    for qos in (1, 2, 1, 2):
        pub.publish(topic, b"x", qos=qos)
    refused = 0
    for member in members:
        member.send(Pingreq())
        while isinstance(packet := member.receive(), Publish):
            refuse = Puback if packet.qos == 1 else Pubrec
            member.send(refuse(packet.packet_id, Reason.UNSPECIFIED_ERROR))
            refused += 1
    assert refused == 4
    for member in members:
        member.expect_silence()


def test_qos_2_under_way_stays_with_its_member(talk: Conversation, topic: str) -> None:
    """[MQTT-4.8.2-4]: completed with that client when it comes back, not given to another."""
    lost = talk.stay("lost", expect_session=False).subscribed(f"$share/g/{topic}", qos=2)
    pub = talk.join("pub")
    pub.publish(topic, b"x", qos=2)
    message = lost.expect(Publish, qos=2)
    other = talk.join("other").subscribed(f"$share/g/{topic}", qos=2)
    lost.drop()
    other.expect_silence()
    lost = talk.stay("lost", expect_session=True)
    lost.take(topic, b"x", qos=2, dup=True, packet_id=message.packet_id)
    other.expect_silence()


def test_qos_2_under_way_ends_with_the_session(talk: Conversation, topic: str) -> None:
    """[MQTT-4.8.2-5]"""
    lost = talk.join("lost").subscribed(f"$share/g/{topic}", qos=2)
    talk.join("pub").publish(topic, b"x", qos=2)
    lost.expect(Publish, qos=2)
    other = talk.join("other").subscribed(f"$share/g/{topic}", qos=2)
    lost.leave()
    other.expect_silence()


@deviates("allows it")
def test_no_local_is_a_protocol_error(talk: Conversation, topic: str) -> None:
    """[MQTT-3.8.3-4]"""
    member = talk.join("m")
    member.send(Subscribe(1, (TopicFilter(f"$share/g/{topic}", no_local=True),)))
    member.expect_end(Reason.PROTOCOL_ERROR)


BAD_SHARES = ["$share/g", "$share//a", "$share/g/", "$share/+/a", "$share/#"]


@pytest.mark.parametrize(
    "pattern",
    [*(pytest.param(each, marks=deviates("allows it")) for each in BAD_SHARES), "$share/g+/a"],
)
def test_a_bad_share_is_refused(talk: Conversation, pattern: str) -> None:
    """[MQTT-4.8.2-1], [MQTT-4.8.2-2]: by SUBACK or by the end of the connection."""
    member = talk.join("m")
    member.send(Subscribe(1, (TopicFilter(pattern),)))
    try:
        answer = member.receive()
    except ClosedError:
        return
    if isinstance(answer, Suback):
        assert answer.reasons[0] >= 0x80
    else:
        assert isinstance(answer, Disconnect)
        assert answer.reason in (
            Reason.MALFORMED_PACKET,
            Reason.PROTOCOL_ERROR,
            Reason.TOPIC_FILTER_INVALID,
        )
