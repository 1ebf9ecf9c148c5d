"""Messages on their way: PUBLISH and the flows of QoS 0, 1 and 2 (3.3 to 3.7, 4.3, 4.6)."""

from __future__ import annotations

from contextlib import suppress

import pytest

from accord.core.mqtt.codes import V5, Reason
from accord.core.mqtt.packets import (
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    TopicFilter,
)
from accord.core.mqtt.properties import Properties
from tests.brokers import deviates
from tests.conformance.conversation import ClosedError, Conversation, Peer, only_5, only_311

QOS_PAIRS = [(sent, granted) for sent in (0, 1, 2) for granted in (0, 1, 2)]


@pytest.mark.parametrize(("sent", "granted"), QOS_PAIRS)
def test_delivered_with_the_lower_of_both_qos(
    talk: Conversation, topic: str, sent: int, granted: int
) -> None:
    """[MQTT-3.8.4-8], 4.3: never more than was granted, nor than was published."""
    sub = talk.join("sub").subscribed(topic, qos=granted)
    talk.join("pub").publish(topic, b"x", qos=sent)
    sub.take(topic, b"x", qos=min(sent, granted), dup=False, retain=False)
    sub.expect_silence()


def test_publisher_and_subscriber_may_be_one(talk: Conversation, topic: str) -> None:
    client = talk.join("a").subscribed(topic)
    client.send(Publish(topic, b"x"))
    client.take(topic, b"x")


def test_an_empty_payload_is_a_message(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(topic)
    talk.join("pub").publish(topic, b"")
    sub.take(topic, b"")


@pytest.mark.parametrize("size", [1, 100, 119, 120, 127, 128, 16_250, 16_384, 70_000, 1_000_000])
def test_payloads_of_all_sizes(talk: Conversation, topic: str, size: int) -> None:
    """1.5.5, 2.1.4: across the steps at which the length takes another byte."""
    payload = bytes(range(256)) * (size // 256 + 1)
    sub = talk.join("sub").subscribed(topic, qos=1)
    talk.join("pub").publish(topic, payload[:size])
    sub.take(topic, payload[:size], qos=1)


def test_qos_1_is_acknowledged_by_its_packet_id(talk: Conversation, topic: str) -> None:
    """[MQTT-4.3.2-4], [MQTT-2.2.1-5]"""
    pub = talk.join("pub")
    for packet_id in (1, 2, 255, 256, 65_535):
        pub.send(Publish(topic, b"x", qos=1, packet_id=packet_id))
        assert pub.expect(Puback, packet_id=packet_id).reason in (0, 0x10)


def test_qos_2_in_four_steps(talk: Conversation, topic: str) -> None:
    """[MQTT-4.3.3-8], [MQTT-4.3.3-11]"""
    pub = talk.join("pub")
    for packet_id in (1, 256, 65_535):
        pub.send(Publish(topic, b"x", qos=2, packet_id=packet_id))
        assert pub.expect(Pubrec, packet_id=packet_id).reason in (0, 0x10)
        pub.send(Pubrel(packet_id))
        pub.expect(Pubcomp, packet_id=packet_id, reason=0)


def test_the_packet_id_is_free_again_after_puback(talk: Conversation, topic: str) -> None:
    """[MQTT-4.3.2-5]: the same packet, even marked DUP, is then a new message."""
    sub = talk.join("sub").subscribed(topic)
    pub = talk.join("pub")
    for dup in (False, True, True):
        pub.send(Publish(topic, b"x", qos=1, dup=dup, packet_id=7))
        pub.expect(Puback, packet_id=7)
        sub.take(topic, b"x")


def test_a_repeated_qos_2_publish_is_delivered_once(talk: Conversation, topic: str) -> None:
    """[MQTT-4.3.3-10]: until PUBREL the packet id stands for the same message."""
    sub = talk.join("sub").subscribed(topic)
    pub = talk.join("pub")
    pub.send(Publish(topic, b"x", qos=2, packet_id=7))
    pub.expect(Pubrec, packet_id=7)
    pub.send(Publish(topic, b"x", qos=2, dup=True, packet_id=7))
    pub.expect(Pubrec, packet_id=7)
    pub.send(Pubrel(7))
    pub.expect(Pubcomp, packet_id=7)
    sub.take(topic, b"x")
    sub.expect_silence()


def test_after_pubrel_a_qos_2_packet_id_is_a_new_message(talk: Conversation, topic: str) -> None:
    """[MQTT-4.3.3-12]"""
    sub = talk.join("sub").subscribed(topic)
    pub = talk.join("pub")
    for number in range(3):
        payload = str(number).encode()
        pub.send(Publish(topic, payload, qos=2, packet_id=7))
        pub.expect(Pubrec, packet_id=7)
        pub.send(Pubrel(7))
        pub.expect(Pubcomp, packet_id=7)
        sub.take(topic, payload)
    sub.expect_silence()


def test_qos_2_flows_may_be_finished_in_any_order(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(topic, qos=2)
    pub = talk.join("pub")
    pub.send(*(Publish(topic, bytes([n]), qos=2, packet_id=n) for n in (3, 1, 2)))
    for packet_id in (3, 1, 2):
        pub.expect(Pubrec, packet_id=packet_id)
    for packet_id in (2, 3, 1):
        pub.send(Pubrel(packet_id))
        pub.expect(Pubcomp, packet_id=packet_id)
    arrived = {sub.expect(Publish, qos=2).payload for _ in range(3)}
    assert arrived == {b"\x01", b"\x02", b"\x03"}


def test_a_repeated_pubrel_is_answered_again(talk: Conversation, topic: str) -> None:
    """4.3.3: the sender may not have seen PUBCOMP; in version 5 it hears that all is done."""
    pub = talk.join("pub")
    pub.publish(topic, b"x", qos=2)
    pub.send(Pubrel(1))
    answer = pub.expect(Pubcomp, packet_id=1)
    if talk.version == V5:
        assert answer.reason in (Reason.SUCCESS, Reason.PACKET_IDENTIFIER_NOT_FOUND)


@only_5
@deviates("says success where no such message is known")
def test_pubrel_of_an_unknown_packet_id(talk: Conversation) -> None:
    """3.7.2.1"""
    pub = talk.join("pub")
    pub.send(Pubrel(4711))
    pub.expect(Pubcomp, packet_id=4711, reason=Reason.PACKET_IDENTIFIER_NOT_FOUND)
    pub.expect_silence()


@only_311
def test_pubrel_of_an_unknown_packet_id_in_3_1_1(talk: Conversation) -> None:
    """[MQTT-4.3.3-2] of 3.1.1: PUBREL is answered by PUBCOMP whatever was before."""
    pub = talk.join("pub")
    pub.send(Pubrel(4711))
    pub.expect(Pubcomp, packet_id=4711)
    pub.expect_silence()


def test_acknowledgements_of_nothing_do_no_harm(talk: Conversation) -> None:
    """4.13.1: they can be left over from before; a broker need not hang up for them."""
    client = talk.join("a")
    client.send(Puback(99))
    client.expect_silence()
    client.send(Pubcomp(99))
    client.expect_silence()


@pytest.mark.parametrize(("qos", "wrong"), [(1, Pubrec), (1, Pubcomp), (2, Puback), (2, Pubcomp)])
def test_a_wrong_acknowledgement_acknowledges_nothing(
    talk: Conversation,
    topic: str,
    qos: int,
    wrong: type[Puback] | type[Pubrec] | type[Pubcomp],
) -> None:
    """4.3: such a client may be dropped or not, but it gets its message again."""
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=qos)
    talk.join("pub").publish(topic, b"x", qos=qos)
    packet_id = sub.expect(Publish, dup=False).packet_id
    sub.send(wrong(packet_id), Pingreq())
    with suppress(ClosedError):
        while not isinstance(sub.receive(), Pingresp | Disconnect):
            pass
    sub.drop()
    sub = talk.stay("sub", expect_session=True)
    sub.take(topic, b"x", qos=qos, dup=True, packet_id=packet_id)


@only_5
@deviates("ignores it")
def test_pubrec_of_nothing_is_answered_so(talk: Conversation) -> None:
    """3.6.2.1"""
    client = talk.join("a")
    client.send(Pubrec(99))
    client.expect(Pubrel, packet_id=99, reason=Reason.PACKET_IDENTIFIER_NOT_FOUND)
    client.expect_silence()


def test_both_directions_number_packets_on_their_own(talk: Conversation, topic: str) -> None:
    """2.2.1: the same packet id may be under way each way at the same time."""
    client = talk.join("a").subscribed(topic, qos=2)
    client.send(Publish(topic, b"x", qos=2, packet_id=1))
    client.expect(Pubrec, packet_id=1)
    client.send(Pubrel(1))
    kinds = []
    for _ in range(2):
        packet = client.receive()
        kinds.append(type(packet).__name__)
        if isinstance(packet, Publish):
            message = packet
    assert sorted(kinds) == ["Pubcomp", "Publish"]
    client.settle(message)
    client.expect_silence()


def test_packet_ids_under_way_are_distinct_and_not_0(talk: Conversation, topic: str) -> None:
    """[MQTT-2.2.1-3], [MQTT-2.2.1-4]"""
    sub = talk.join("sub").subscribed(TopicFilter(f"{topic}/+", 2))
    pub = talk.join("pub")
    for number in range(15):
        pub.publish(f"{topic}/{number}", b"x", qos=1 + number % 2)
    packet_ids = [sub.expect(Publish).packet_id for _ in range(15)]
    assert 0 not in packet_ids
    assert len(set(packet_ids)) == 15


def test_no_second_copy_without_a_new_connection(talk: Conversation, topic: str) -> None:
    """[MQTT-4.4.0-1]: unacknowledged messages wait; nothing is sent again meanwhile."""
    sub = talk.join("sub").subscribed(topic, qos=1)
    pub = talk.join("pub")
    pub.publish(topic, b"1")
    sub.expect(Publish, payload=b"1", dup=False)
    pub.publish(topic, b"2")
    sub.expect(Publish, payload=b"2", dup=False)
    sub.expect_silence()


def test_dup_is_not_passed_on(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.1-3]: the flag belongs to one hop."""
    sub = talk.join("sub").subscribed(topic, qos=2)
    pub = talk.join("pub")
    pub.send(Publish(topic, b"1", qos=1, dup=True, packet_id=1))
    pub.expect(Puback)
    sub.take(topic, b"1", qos=1, dup=False)
    pub.send(Publish(topic, b"2", qos=2, dup=True, packet_id=2))
    pub.expect(Pubrec)
    pub.send(Pubrel(2))
    pub.expect(Pubcomp)
    sub.take(topic, b"2", qos=2, dup=False)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_publisher_is_heard_in_order(talk: Conversation, topic: str, qos: int) -> None:
    """[MQTT-4.6.0-5], [MQTT-4.6.0-6]"""
    count = 15
    sub = talk.join("sub").subscribed(topic, qos=qos)
    pub = talk.join("pub")
    pub.send(
        *(
            Publish(topic, b"%d" % n, qos=qos, packet_id=n if qos else 0)
            for n in range(1, 1 + count)
        )
    )
    if qos == 2:
        _expect_in_order(pub, Pubrec, count)
        pub.send(*(Pubrel(n) for n in range(1, 1 + count)))
        _expect_in_order(pub, Pubcomp, count)
    for number in range(1, 1 + count):
        message = sub.expect(Publish, payload=b"%d" % number, qos=qos)
        if qos == 1:
            sub.send(Puback(message.packet_id))


def _expect_in_order(peer: Peer, kind: type[Pubrec] | type[Pubcomp], count: int) -> None:
    """[MQTT-4.6.0-3], [MQTT-4.6.0-4]: acknowledgements come in the order of what they answer."""
    for number in range(1, 1 + count):
        peer.expect(kind, packet_id=number)


def test_qos_1_is_acknowledged_in_order(talk: Conversation, topic: str) -> None:
    """[MQTT-4.6.0-2]"""
    pub = talk.join("pub")
    pub.send(*(Publish(topic, b"x", qos=1, packet_id=n) for n in (5, 3, 9, 1)))
    for packet_id in (5, 3, 9, 1):
        pub.expect(Puback, packet_id=packet_id)


def test_pubrels_are_sent_in_the_order_of_pubrecs(talk: Conversation, topic: str) -> None:
    """[MQTT-4.6.0-4]"""
    sub = talk.join("sub").subscribed(topic, qos=2)
    pub = talk.join("pub")
    for _ in range(3):
        pub.publish(topic, b"x", qos=2)
    packet_ids = [sub.expect(Publish, qos=2).packet_id for _ in range(3)]
    turned = [packet_ids[1], packet_ids[2], packet_ids[0]]
    sub.send(*(Pubrec(packet_id) for packet_id in turned))
    for packet_id in turned:
        sub.expect(Pubrel, packet_id=packet_id)
    sub.send(*(Pubcomp(packet_id) for packet_id in packet_ids))
    sub.expect_silence()


@only_5
def test_a_refused_qos_2_message_is_done_with(talk: Conversation, topic: str) -> None:
    """[MQTT-4.3.3-4]: no PUBREL after PUBREC with an error; the message is not sent again."""
    sub = talk.join("sub", properties=Properties(receive_maximum=1, session_expiry_s=60))
    sub.subscribed(topic, qos=2)
    pub = talk.join("pub")
    pub.publish(topic, b"1", qos=2)
    pub.publish(topic, b"2", qos=2)
    message = sub.expect(Publish, payload=b"1", qos=2)
    sub.send(Pubrec(message.packet_id, Reason.IMPLEMENTATION_SPECIFIC_ERROR))
    sub.take(topic, b"2", qos=2)
    sub.drop()
    sub, answer = talk.connect("sub", clean_start=False)
    assert answer.session_present
    sub.expect_silence()


@only_5
def test_a_refused_qos_1_message_is_done_with(talk: Conversation, topic: str) -> None:
    """3.4.2.1: any PUBACK ends the flow."""
    sub = talk.join("sub", properties=Properties(receive_maximum=1, session_expiry_s=60))
    sub.subscribed(topic, qos=1)
    pub = talk.join("pub")
    pub.publish(topic, b"1")
    pub.publish(topic, b"2")
    message = sub.expect(Publish, payload=b"1", qos=1)
    sub.send(Puback(message.packet_id, Reason.QUOTA_EXCEEDED, Properties(reason_string="full")))
    sub.take(topic, b"2", qos=1)
    sub.drop()
    sub, answer = talk.connect("sub", clean_start=False)
    assert answer.session_present
    sub.expect_silence()


@only_5
def test_acknowledgements_in_their_short_and_long_forms(talk: Conversation, topic: str) -> None:
    """3.4.2.1, 3.5.2.1, …: reason code and properties may be left out when there is no news."""
    sub = talk.join("sub").subscribed(topic, qos=2)
    pub = talk.join("pub")
    for tail in ("", "00", "0000"):
        size = 2 + len(tail) // 2
        pub.publish(topic, b"x", qos=1)
        packet_id = sub.expect(Publish, qos=1).packet_id
        sub.send_bytes(bytes.fromhex(f"40{size:02x}{packet_id:04x}{tail}"))
        pub.publish(topic, b"x", qos=2)
        packet_id = sub.expect(Publish, qos=2).packet_id
        sub.send_bytes(bytes.fromhex(f"50{size:02x}{packet_id:04x}{tail}"))
        sub.expect(Pubrel, packet_id=packet_id)
        sub.send_bytes(bytes.fromhex(f"70{size:02x}{packet_id:04x}{tail}"))
    sub.expect_silence()


def test_a_subscriber_that_left_is_not_missed(talk: Conversation, topic: str) -> None:
    talk.join("gone").subscribed(topic, qos=1).leave()
    stays = talk.join("stays").subscribed(topic, qos=1)
    talk.join("pub").publish(topic, b"x")
    stays.take(topic, b"x", qos=1)


def test_many_subscribers_each_get_it(talk: Conversation, topic: str) -> None:
    subs = [talk.join(f"sub{n}").subscribed(topic, qos=n % 3) for n in range(9)]
    talk.join("pub").publish(topic, b"x", qos=2)
    for number, sub in enumerate(subs):
        sub.take(topic, b"x", qos=number % 3)
        sub.expect_silence()
