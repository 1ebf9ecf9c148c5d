"""Which filters select which topics, and which of both are names at all (4.7, 1.5.4)."""

from __future__ import annotations

import pytest

from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import Puback, Publish, Suback, Subscribe, TopicFilter
from accord.core.mqtt.properties import NO_PROPERTIES
from tests.brokers import deviates
from tests.conformance.conversation import ClosedError, Conversation, Peer

SELECTS = [
    ("a", "a"),
    ("a/b/c", "a/b/c"),
    ("a/+/c", "a/b/c"),
    ("a/+/c", "a//c"),
    ("+/+/+", "a/b/c"),
    ("a/#", "a"),
    ("a/#", "a/b"),
    ("a/#", "a/b/c/d"),
    ("a/#", "a/"),
    ("a/+", "a/"),
    ("a/+/#", "a/b"),
    ("a/+/#", "a/b/c"),
    ("#", "a/b"),
    ("+", "a"),
    ("+/b", "a/b"),
    ("a/b c/d", "a/b c/d"),
    ("a/\u00e9", "a/\u00e9"),
    ("a/💧/+", "a/💧/💧"),
    ("\ufeffa", "\ufeffa"),
    ("a/$b/+", "a/$b/c"),
    ("a/+", "a/$b"),
]
SELECTS_NOT = [
    ("a", "A"),
    ("a", "a/"),
    ("a", "/a"),
    ("a/+", "a"),
    ("a/+", "a/b/c"),
    ("a/+/c", "a/c"),
    ("a/+/c", "a/b/d"),
    ("+", "a/b"),
    ("a/b/#", "a"),
    ("a/b/#", "a/bb"),
    ("a/#", "b"),
    ("a/\u00e9", "a/e\u0301"),
    ("a", "\ufeffa"),
    ("a//c", "a/c"),
]


def _placed(name: str, text: str) -> str:
    """Below a root of the test's own, so that tests don't hear each other."""
    return f"{name}/{text}"


@pytest.mark.parametrize(("pattern", "channel"), SELECTS)
def test_a_filter_selects(talk: Conversation, pattern: str, channel: str) -> None:
    """[MQTT-4.7.1-1] to [MQTT-4.7.1-3]"""
    sub = talk.join("sub").subscribed(_placed(talk.name, pattern))
    talk.join("pub").publish(_placed(talk.name, channel), b"x")
    sub.take(_placed(talk.name, channel), b"x")


@pytest.mark.parametrize(("pattern", "channel"), SELECTS_NOT)
def test_a_filter_does_not_select(talk: Conversation, pattern: str, channel: str) -> None:
    """[MQTT-4.7.3-4]: character by character, no normalisation."""
    sub = talk.join("sub").subscribed(_placed(talk.name, pattern))
    talk.join("pub").publish(_placed(talk.name, channel), b"x")
    sub.expect_silence()


@pytest.mark.parametrize("pattern", ["#", "+/topic", "+/#", "+/+"])
def test_a_wildcard_in_the_first_level(talk: Conversation, topic: str, pattern: str) -> None:
    sub = talk.join("sub").subscribed(pattern)
    talk.join("pub").publish(topic, b"x")
    sub.take(topic, b"x")


@pytest.mark.parametrize("pattern", ["/+", "+/+", "/#", "#"])
def test_a_leading_separator_makes_an_empty_level(talk: Conversation, pattern: str) -> None:
    sub = talk.join("sub").subscribed(pattern)
    talk.join("pub").publish(f"/{talk.name}", b"x")
    sub.take(f"/{talk.name}", b"x")


@pytest.mark.parametrize("pattern", ["#", "+/news", "+/#", "+/+"])
def test_system_topics_are_not_selected_by_wildcards(talk: Conversation, pattern: str) -> None:
    """[MQTT-4.7.2-1]: whether a client may publish there is the broker's choice.

    Version 3.1.1 allows to hang up on who may not, but clients of all sorts try: acknowledge.
    """
    sub = talk.join("sub").subscribed(pattern)
    pub = talk.join("pub")
    pub.send(Publish(f"${talk.name}/news", b"x", qos=1, packet_id=1))
    pub.expect(Puback, packet_id=1)
    pub.expect_silence()
    sub.expect_silence()


@pytest.mark.parametrize("channel", ["$SYS/#", "$SYS/+/x", "$accord/#"])
def test_system_topics_can_be_subscribed_to(talk: Conversation, channel: str) -> None:
    talk.join("sub").subscribed(channel)


def test_a_topic_of_the_greatest_length(talk: Conversation) -> None:
    """[MQTT-4.7.3-3]: 65,535 bytes."""
    channel = talk.name + "x" * (65_535 - len(talk.name))
    sub = talk.join("sub").subscribed(channel)
    talk.join("pub").publish(channel, b"x")
    sub.take(channel, b"x")


BAD_FILTERS = ["", "a#", "#/a", "a/#/b", "a+", "+a", "a/b+/c", "a/b#", "a\0b"]


@pytest.mark.parametrize("pattern", BAD_FILTERS)
def test_a_bad_filter_is_refused(talk: Conversation, pattern: str) -> None:
    """[MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.3-1], [MQTT-4.7.3-2]: by SUBACK or by the end."""
    sub = talk.join("sub")
    sub.send_bytes(_subscribe(pattern, sub.version))
    _expect_filter_refused(sub)
    talk.join("other").expect_silence()


def _subscribe(pattern: str, version: int) -> bytes:
    text = pattern.encode()
    properties = b"" if version == V311 else b"\x00"
    body = b"\x00\x01" + properties + len(text).to_bytes(2, "big") + text + b"\x00"
    return bytes([0x82, len(body)]) + body


def _expect_filter_refused(sub: Peer) -> None:
    try:
        answer = sub.receive()
    except ClosedError:
        return
    if isinstance(answer, Suback):
        assert answer.reasons in ((Reason.TOPIC_FILTER_INVALID,), (Reason.UNSPECIFIED_ERROR,))
        return
    assert getattr(answer, "reason", None) in (
        Reason.MALFORMED_PACKET,
        Reason.PROTOCOL_ERROR,
        Reason.TOPIC_FILTER_INVALID,
    )
    sub.expect_closed()


@pytest.mark.parametrize("channel", ["a/+", "#", "a/#", "+", "a/b+"])
def test_a_topic_with_a_wildcard_ends_the_connection(talk: Conversation, channel: str) -> None:
    """[MQTT-3.3.2-2]"""
    witness = talk.join("witness").subscribed("#")
    pub = talk.join("pub")
    text = channel.encode()
    properties = b"" if talk.version == V311 else b"\x00"
    body = len(text).to_bytes(2, "big") + text + properties + b"x"
    pub.send_bytes(bytes([0x30, len(body)]) + body)
    pub.expect_end(Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR, Reason.TOPIC_NAME_INVALID)
    witness.expect_silence()


BAD_UTF8 = {
    "cut off": b"a\xc3",
    "stray continuation": b"a\x80b",
    "overlong": b"a\xc0\xaf",
    "surrogate": b"a\xed\xa0\x80",
    "surrogate pair": b"\xed\xa0\x81\xed\xb0\x81",
    "beyond U+10FFFF": b"\xf4\x90\x80\x80",
    "not UTF-8": b"\xff\xfe",
    "null character": b"a\x00b",
}


@pytest.mark.parametrize("text", BAD_UTF8.values(), ids=BAD_UTF8.keys())
def test_ill_formed_utf_8_in_a_topic(talk: Conversation, text: bytes) -> None:
    """[MQTT-1.5.4-1], [MQTT-1.5.4-2]"""
    pub = talk.join("pub")
    properties = b"" if talk.version == V311 else b"\x00"
    body = len(text).to_bytes(2, "big") + text + properties
    pub.send_bytes(bytes([0x30, len(body)]) + body)
    pub.expect_end(Reason.MALFORMED_PACKET)


@pytest.mark.parametrize("text", BAD_UTF8.values(), ids=BAD_UTF8.keys())
def test_ill_formed_utf_8_in_a_client_id(talk: Conversation, text: bytes) -> None:
    client = talk.open()
    properties = b"" if talk.version == V311 else b"\x00"
    body = b"\x00\x04MQTT" + bytes([talk.version, 2, 0, 0]) + properties
    body += len(text).to_bytes(2, "big") + text
    client.send_bytes(bytes([0x10, len(body)]) + body)
    if talk.version == V311:
        assert client.receive_rest() in (b"", b"\x20\x02\x00\x02")
    else:
        client.expect_refusal(None, Reason.MALFORMED_PACKET, Reason.CLIENT_IDENTIFIER_NOT_VALID)


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(V311, marks=deviates("takes the first match"), id="3.1.1"),
        pytest.param(V5, id="5.0"),
    ],
)
def test_overlapping_filters_of_one_client(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.4-2]: one copy with the highest QoS, or one for each subscription."""
    sub = talk.join("sub").subscribed(TopicFilter(f"{topic}/#", 2), TopicFilter(f"{topic}/+", 1))
    talk.join("pub").publish(f"{topic}/x", b"x", qos=2)
    first = sub.expect(Publish, topic=f"{topic}/x", payload=b"x")
    sub.send(Subscribe(9, (TopicFilter("unrelated"),), NO_PROPERTIES))
    second = sub.receive()
    if isinstance(second, Publish):
        assert {first.qos, second.qos} == {1, 2}
    else:
        assert first.qos == 2
