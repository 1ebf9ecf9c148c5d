"""Flow control, packet sizes and topic aliases, in both directions (3.1.2.11, 3.3.2.3.4, 4.9)."""

from __future__ import annotations

import pytest

from accord.core.mqtt.codes import V311, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    TopicFilter,
)
from accord.core.mqtt.properties import Properties
from tests.brokers import accord_only, deviates
from tests.conformance.conversation import Conversation, Peer, only_5, only_311


@only_5
@pytest.mark.parametrize(
    "quota", [1, *(pytest.param(each, marks=deviates("miscounts")) for each in (2, 5))]
)
def test_the_client_s_receive_maximum_holds(talk: Conversation, topic: str, quota: int) -> None:
    """[MQTT-3.3.4-9], [MQTT-4.9.0-2]: no more unacknowledged messages than it can take."""
    sub = talk.join("sub", properties=Properties(receive_maximum=quota)).subscribed(topic, qos=1)
    pub = talk.join("pub")
    for number in range(10):
        pub.publish(topic, b"%d" % number)
    waiting = [sub.expect(Publish, payload=b"%d" % number).packet_id for number in range(quota)]
    for number in range(quota, 10):
        sub.expect_silence()
        sub.send(Puback(waiting.pop(0)))
        waiting.append(sub.expect(Publish, payload=b"%d" % number).packet_id)


@only_5
def test_qos_2_counts_until_it_is_complete(talk: Conversation, topic: str) -> None:
    """[MQTT-4.9.0-1], [MQTT-4.9.0-2]: PUBREC does not yet free its place, PUBCOMP does."""
    sub = talk.join("sub", properties=Properties(receive_maximum=1)).subscribed(topic, qos=2)
    pub = talk.join("pub")
    pub.publish(topic, b"1", qos=2)
    pub.publish(topic, b"2", qos=2)
    packet_id = sub.expect(Publish, payload=b"1").packet_id
    sub.expect_silence()
    sub.send(Pubrec(packet_id))
    sub.expect(Pubrel, packet_id=packet_id)
    sub.expect_silence()
    sub.send(Pubcomp(packet_id))
    sub.take(topic, b"2", qos=2)


@only_5
def test_qos_0_passes_a_full_quota(talk: Conversation, topic: str) -> None:
    """3.3.4: the quota is for QoS 1 and 2 only; other packets pass too."""
    sub = talk.join("sub", properties=Properties(receive_maximum=1)).subscribed(topic, qos=1)
    pub = talk.join("pub")
    pub.publish(topic, b"1", qos=1)
    sub.expect(Publish, payload=b"1")
    pub.publish(topic, b"0", qos=0)
    sub.take(topic, b"0", qos=0)
    sub.subscribed(f"{topic}/other")


@only_5
@deviates("miscounts")
def test_the_quota_holds_for_a_resumed_session(talk: Conversation, topic: str) -> None:
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).leave()
    pub = talk.join("pub")
    for number in range(6):
        pub.publish(topic, b"%d" % number)
    properties = Properties(session_expiry_s=60, receive_maximum=2)
    sub, answer = talk.connect("sub", clean_start=False, properties=properties)
    assert answer.session_present
    waiting = [sub.expect(Publish, payload=b"%d" % number).packet_id for number in range(2)]
    sub.expect_silence()
    sub.send(*(Puback(packet_id) for packet_id in waiting))
    for number in range(2, 4):
        sub.expect(Publish, payload=b"%d" % number)
    sub.expect_silence()


@only_5
@deviates("sends them all")
def test_a_quota_smaller_than_what_is_under_way(talk: Conversation, topic: str) -> None:
    """4.4, 3.1.2.11.3: also repeated messages respect the new connection's quota."""
    sub = talk.stay("sub", expect_session=False).subscribed(topic, qos=1)
    pub = talk.join("pub")
    for number in range(4):
        pub.publish(topic, b"%d" % number)
    for number in range(4):
        sub.expect(Publish, payload=b"%d" % number)
    sub.drop()
    properties = Properties(session_expiry_s=60, receive_maximum=1)
    sub, _ = talk.connect("sub", clean_start=False, properties=properties)
    for number in range(4):
        message = sub.expect(Publish, payload=b"%d" % number, dup=True)
        sub.expect_silence()
        sub.send(Puback(message.packet_id))


@only_5
@deviates("refuses the message instead")
def test_the_broker_s_receive_maximum_is_enforced(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.4-7], 3.3.4: one message more than allowed ends the connection."""
    pub, answer = talk.connect("pub")
    quota = answer.properties.receive_maximum or 65_535
    if quota == 65_535:
        pytest.skip("as many messages as there are packet ids are allowed")
    pub.send(*(Publish(topic, b"x", qos=2, packet_id=n) for n in range(1, quota + 1)))
    for number in range(1, quota + 1):
        pub.expect(Pubrec, packet_id=number)
    pub.expect_silence()
    pub.send(Publish(topic, b"x", qos=2, packet_id=quota + 1))
    pub.expect_end(Reason.RECEIVE_MAXIMUM_EXCEEDED)


@only_5
def test_completed_messages_free_the_broker_s_quota(talk: Conversation, topic: str) -> None:
    pub, answer = talk.connect("pub")
    quota = min(answer.properties.receive_maximum or 65_535, 100)
    for packet_id in range(1, 2 * quota + 2):
        pub.send(Publish(topic, b"x", qos=2, packet_id=packet_id))
        pub.expect(Pubrec, packet_id=packet_id)
        pub.send(Pubrel(packet_id))
        pub.expect(Pubcomp, packet_id=packet_id)
    pub.send(*(Publish(topic, b"x", qos=1, packet_id=n) for n in range(1, 2 * quota)))
    for number in range(1, 2 * quota):
        pub.expect(Puback, packet_id=number)


@only_5
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_too_large_for_a_client_are_left_out(
    talk: Conversation, topic: str, qos: int
) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: the others come, and others get it."""
    limit = 100
    small = talk.join("small", properties=Properties(maximum_packet_size=limit))
    small.subscribed(topic, qos=qos)
    large = talk.join("large").subscribed(topic, qos=qos)
    pub = talk.join("pub")
    pub.publish(topic, b"x" * 200, qos=qos)
    large.take(topic, b"x" * 200, qos=qos)
    pub.publish(topic, b"y", qos=qos)
    small.take(topic, b"y", qos=qos)
    small.expect_silence()


@only_5
@deviates("counts without the header")
def test_a_message_of_just_the_limit_comes(talk: Conversation, topic: str) -> None:
    """3.1.2.11.4: the whole packet counts, with its header."""
    pub = talk.join("pub")
    probe = talk.join("probe").subscribed(topic)
    pub.publish(topic, b"x" * 50)
    probe.take(topic, b"x" * 50)
    size = len(probe.frame)
    exact = talk.join("exact", properties=Properties(maximum_packet_size=size)).subscribed(topic)
    short = talk.join("short", properties=Properties(maximum_packet_size=size - 1))
    short.subscribed(topic)
    pub.publish(topic, b"x" * 50)
    exact.take(topic, b"x" * 50)
    short.expect_silence()


@only_5
@deviates("keeps it")
def test_a_large_message_does_not_keep_the_quota(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-25]: it counts as sent, or those after it would wait for ever."""
    properties = Properties(maximum_packet_size=100, receive_maximum=1)
    sub = talk.join("sub", properties=properties).subscribed(topic, qos=1)
    pub = talk.join("pub")
    for _ in range(3):
        pub.publish(topic, b"x" * 200)
    pub.publish(topic, b"y")
    sub.take(topic, b"y", qos=1)


@only_5
def test_large_retained_messages_are_left_out(talk: Conversation, topic: str) -> None:
    pub = talk.join("pub")
    pub.publish(f"{topic}/large", b"x" * 200, retain=True)
    pub.publish(f"{topic}/small", b"y", retain=True)
    sub = talk.join("sub", properties=Properties(maximum_packet_size=100))
    sub.subscribed(f"{topic}/+").take(f"{topic}/small", b"y", retain=True)
    sub.expect_silence()


def test_a_packet_beyond_the_broker_s_limit(talk: Conversation) -> None:
    """3.2.2.3.6, 4.13: the header is enough to see it; nobody waits for 256 MB."""
    client, answer = talk.connect("a")
    limit = answer.properties.maximum_packet_size or 268_435_455
    assert limit < 268_435_455 or talk.version == V311
    client.send_bytes(b"\x30\xff\xff\xff\x7f\x00\x01a")
    client.expect_end(Reason.PACKET_TOO_LARGE)


def test_a_connect_beyond_the_broker_s_limit(talk: Conversation) -> None:
    """Before anybody is known, there is even less reason to wait for that much."""
    client = talk.open()
    client.send_bytes(b"\x10\xff\xff\xff\x7f\x00\x04MQTT" + bytes([talk.version, 2, 0, 0]))
    answer = client.receive_rest()
    assert answer == b"" or answer[3] == Reason.PACKET_TOO_LARGE


@only_5
def test_an_alias_stands_for_its_topic(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.2-12], 3.3.2.3.4"""
    pub, answer = talk.connect("pub")
    limit = answer.properties.topic_alias_maximum or 0
    assert limit > 0, "the broker takes no aliases"
    sub = talk.join("sub").subscribed(f"{topic}/#", qos=2)
    for alias in {1, limit}:
        name = f"{topic}/{alias}"
        pub.publish(name, b"1", qos=1, properties=Properties(topic_alias=alias))
        sub.take(name, b"1", qos=1)
        for qos in (0, 1, 2):
            pub.publish("", b"2", qos=qos, properties=Properties(topic_alias=alias))
            message = sub.take(name, b"2", qos=qos)
            assert message.properties.topic_alias is None


@only_5
def test_an_alias_may_get_another_topic(talk: Conversation, topic: str) -> None:
    """3.3.2.3.4"""
    pub = talk.join("pub")
    sub = talk.join("sub").subscribed(f"{topic}/#")
    alias = Properties(topic_alias=1)
    for each in ("a", "b", "a"):
        pub.publish(f"{topic}/{each}", b"1", properties=alias)
        sub.take(f"{topic}/{each}", b"1")
        pub.publish("", b"2", properties=alias)
        sub.take(f"{topic}/{each}", b"2")


@only_5
def test_aliases_belong_to_a_connection(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.2-7]: not to another client's, nor to the session's next one."""
    alias = Properties(topic_alias=1)
    pub = talk.stay("pub", expect_session=False)
    pub.publish(topic, b"x", properties=alias)
    other = talk.join("other")
    other.send(Publish("", b"x", properties=alias))
    other.expect_end(Reason.PROTOCOL_ERROR, Reason.TOPIC_ALIAS_INVALID)
    pub.publish("", b"x", properties=alias)
    pub.drop()
    pub = talk.stay("pub", expect_session=True)
    pub.send(Publish("", b"x", properties=alias))
    pub.expect_end(Reason.PROTOCOL_ERROR, Reason.TOPIC_ALIAS_INVALID)


@only_5
def test_a_repeated_qos_2_message_by_alias(talk: Conversation, topic: str) -> None:
    """4.3.3: the topic was known when it came first."""
    pub = talk.join("pub")
    sub = talk.join("sub").subscribed(topic)
    pub.send(Publish(topic, b"x", 2, packet_id=1, properties=Properties(topic_alias=1)))
    pub.expect(Pubrec)
    pub.send(Publish("", b"x", 2, dup=True, packet_id=1, properties=Properties(topic_alias=1)))
    pub.expect(Pubrec)
    pub.send(Pubrel(1))
    pub.expect(Pubcomp)
    sub.take(topic, b"x")
    sub.expect_silence()


@only_5
@pytest.mark.parametrize("alias", ["0", "one too many", "65535"])
def test_an_alias_out_of_range(talk: Conversation, topic: str, alias: str) -> None:
    """[MQTT-3.3.2-8], [MQTT-3.3.2-9]"""
    pub, answer = talk.connect("pub")
    limit = answer.properties.topic_alias_maximum or 0
    number = limit + 1 if alias == "one too many" else int(alias)
    if number > 65_535 or limit == number:
        pytest.skip("there is no greater alias than allowed")
    text = topic.encode()
    body = len(text).to_bytes(2, "big") + text + b"\x03\x23" + number.to_bytes(2, "big")
    pub.send_bytes(bytes([0x30, len(body)]) + body)
    reasons = [Reason.TOPIC_ALIAS_INVALID]
    if number == 0:
        reasons += [Reason.PROTOCOL_ERROR, Reason.MALFORMED_PACKET]
    pub.expect_end(*reasons)


@only_5
def test_a_topic_or_an_alias_is_needed(talk: Conversation) -> None:
    """3.3.2.1"""
    pub = talk.join("pub")
    pub.send_bytes(b"\x30\x03\x00\x00\x00")
    pub.expect_end(Reason.PROTOCOL_ERROR, Reason.MALFORMED_PACKET, Reason.TOPIC_NAME_INVALID)


@only_311
def test_a_topic_is_needed(talk: Conversation) -> None:
    """[MQTT-4.7.3-1] of 3.1.1"""
    pub = talk.join("pub")
    pub.send_bytes(b"\x30\x02\x00\x00")
    pub.expect_closed()


def _resolved(peer: Peer, aliases: dict[int, str], limit: int) -> tuple[str, bytes]:
    """A received message's topic, by its alias where there is one."""
    message = peer.expect(Publish)
    peer.settle(message)
    alias = message.properties.topic_alias
    if alias is None:
        assert message.topic
        return message.topic, message.payload
    assert 1 <= alias <= limit
    if message.topic:
        aliases[alias] = message.topic
    return aliases[alias], message.payload


@only_5
@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("qos", [0, 1])
def test_aliases_of_the_broker(talk: Conversation, topic: str, limit: int, qos: int) -> None:
    """[MQTT-3.1.2-26]: at most as many as allowed, and always of the right topic."""
    sub = talk.join("sub", properties=Properties(topic_alias_maximum=limit))
    sub.subscribed(f"{topic}/+", qos=qos)
    pub = talk.join("pub")
    aliases: dict[int, str] = {}
    for number in (0, 0, 1, 1, 2, 3, 4, 0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 0):
        name = f"{topic}/{number}"
        pub.publish(name, b"%d" % number, qos=qos)
        assert _resolved(sub, aliases, limit) == (name, b"%d" % number)


@only_5
@accord_only
def test_aliases_of_the_broker_are_used(talk: Conversation, topic: str) -> None:
    """A client that allows them gets shorter packets for a topic that comes again."""
    sub = talk.join("sub", properties=Properties(topic_alias_maximum=10)).subscribed(topic)
    pub = talk.join("pub")
    aliases: dict[int, str] = {}
    for _ in range(3):
        pub.publish(topic, b"x")
        assert _resolved(sub, aliases, 10) == (topic, b"x")
    assert aliases


@only_5
@pytest.mark.parametrize("limit", [None, 0])
def test_no_alias_for_a_client_that_allows_none(
    talk: Conversation, topic: str, limit: int | None
) -> None:
    """[MQTT-3.1.2-27]"""
    sub = talk.join("sub", properties=Properties(topic_alias_maximum=limit)).subscribed(topic)
    pub = talk.join("pub")
    for _ in range(5):
        pub.publish(topic, b"x", properties=Properties(topic_alias=1))
        assert sub.take(topic, b"x").properties.topic_alias is None


@only_5
def test_aliases_of_the_broker_begin_anew_with_a_connection(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.2-7]: also for messages that are sent again."""
    properties = Properties(session_expiry_s=60, topic_alias_maximum=10)
    sub, _ = talk.connect("sub", properties=properties)
    sub.subscribed(topic, qos=1)
    pub = talk.join("pub")
    pub.publish(topic, b"1")
    pub.publish(topic, b"2")
    sub.expect(Publish, payload=b"1")
    sub.expect(Publish, payload=b"2")
    sub.drop()
    sub, _ = talk.connect("sub", clean_start=False, properties=properties)
    aliases: dict[int, str] = {}
    for payload in (b"1", b"2"):
        assert _resolved(sub, aliases, 10) == (topic, payload)


@only_5
def test_answers_keep_to_the_client_s_packet_size(talk: Conversation, topic: str) -> None:
    """[MQTT-3.2.2-19], [MQTT-3.9.2-2], …: too long a reason string is left out."""
    client = talk.open()
    properties = Properties(maximum_packet_size=60)
    client.send(Connect(talk.client_id("a"), properties=properties))
    client.expect(Connack)
    assert len(client.frame) <= 60
    client.subscribe(topic, f"{topic}/b")
    assert len(client.frame) <= 60
    where = Properties(user=(("where", "altitude_m >" + " " * 40),))
    client.send(Subscribe(9, (TopicFilter(topic),), where))
    client.expect(Suback)
    assert len(client.frame) <= 60
    client.send_bytes(b"\x00\x00")
    client.expect_end(Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR)
    assert len(client.frame) <= 60


@only_5
@pytest.mark.parametrize("limit", [1, 2, 4, 5, 10])
def test_a_client_that_takes_next_to_nothing(talk: Conversation, limit: int) -> None:
    """[MQTT-3.1.2-24]: a CONNACK that fits, or none."""
    client = talk.open()
    client.send(Connect(talk.client_id("a"), properties=Properties(maximum_packet_size=limit)))
    client.send_bytes(b"\x00\x00")
    for size in _sizes(client.receive_rest()):
        assert size <= limit


def _sizes(data: bytes) -> list[int]:
    """The sizes of packets shorter than 128 bytes."""
    sizes = []
    while data:
        sizes.append(2 + data[1])
        data = data[sizes[-1] :]
    return sizes


@only_5
@deviates("refuses the message instead")
def test_the_end_is_heard_by_a_client_that_goes_on(talk: Conversation, topic: str) -> None:
    """4.13: it answers all that came before, and so gets to the reason; nothing is reset."""
    pub, answer = talk.connect("pub")
    quota = answer.properties.receive_maximum or 65_535
    if quota == 65_535:
        pytest.skip("as many messages as there are packet ids are allowed")
    pub.send(*(Publish(topic, b"x", qos=2, packet_id=n) for n in range(1, quota + 2)))
    while isinstance(packet := pub.receive(), Pubrec):
        pub.send(Pubrel(packet.packet_id))
    assert isinstance(packet, Disconnect)
    assert packet.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
