"""What version 5 adds to messages, and what becomes of it on the way (3.3.2.3)."""

from __future__ import annotations

import pytest

from accord.core.mqtt.codes import V5, V311, Reason
from accord.core.mqtt.packets import Puback, Publish, Pubrec, Unsuback, Unsubscribe
from accord.core.mqtt.properties import NO_PROPERTIES, Properties
from tests.brokers import accord_only
from tests.conformance.conversation import Conversation, only_5

CASES = {
    "nothing": NO_PROPERTIES,
    "payload format 0": Properties(payload_format=0),
    "payload format 1": Properties(payload_format=1),
    "content type": Properties(content_type="image/jpeg"),
    "empty content type": Properties(content_type=""),
    "response topic": Properties(response_topic="answers/here"),
    "correlation data": Properties(correlation_data=bytes(range(256))),
    "empty correlation data": Properties(correlation_data=b""),
    "user property": Properties(user=(("name", "value"),)),
    "user properties in order": Properties(
        user=(("b", "1"), ("a", "2"), ("b", "1"), ("", ""), ("ä", "💧"))
    ),
    "many user properties": Properties(user=tuple((f"name-{n}", "x" * n) for n in range(100))),
    "everything": Properties(
        payload_format=1,
        content_type="text/plain; charset=utf-8",
        response_topic="a/b/c",
        correlation_data=b"\x00\x01\x02",
        user=(("x", "1"), ("y", "2")),
    ),
}


@only_5
@pytest.mark.parametrize("properties", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("qos", [0, 2])
def test_properties_arrive_unchanged(
    talk: Conversation, topic: str, properties: Properties, qos: int
) -> None:
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-20]"""
    sub = talk.join("sub").subscribed(topic, qos=qos)
    talk.join("pub").publish(topic, b"x", qos=qos, properties=properties)
    assert sub.take(topic, b"x", qos=qos).properties == properties


@only_5
def test_properties_wait_with_their_message(talk: Conversation, topic: str) -> None:
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1).leave()
    talk.join("pub").publish(topic, b"x", properties=CASES["everything"])
    sub = talk.stay("sub", expect_session=True)
    assert sub.expect(Publish).properties == CASES["everything"]
    sub.drop()
    sub = talk.stay("sub", expect_session=True)
    assert sub.expect(Publish, dup=True).properties == CASES["everything"]


@only_5
def test_expiry_arrives_not_greater_than_it_was(talk: Conversation, topic: str) -> None:
    """[MQTT-3.3.2-6]"""
    sub = talk.join("sub").subscribed(topic, qos=1)
    for expiry_s in (100, 0xFFFFFFFF):
        properties = Properties(message_expiry_s=expiry_s)
        talk.join("pub").publish(topic, b"x", properties=properties)
        left_s = sub.take(topic, b"x", qos=1).properties.message_expiry_s
        assert left_s is not None
        assert 0 < left_s <= expiry_s


@only_5
def test_a_3_1_1_client_gets_the_message_bare(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub", version=V311).subscribed(topic, qos=2)
    pub = talk.join("pub")
    for qos in (0, 1, 2):
        properties = Properties(
            message_expiry_s=100, content_type="text/plain", user=(("a", "1"),), topic_alias=1
        )
        pub.publish(topic, b"payload", qos=qos, properties=properties)
        sub.take(topic, b"payload", qos=qos)


@only_5
def test_a_3_1_1_client_s_message_has_no_properties(talk: Conversation, topic: str) -> None:
    sub = talk.join("sub").subscribed(topic)
    talk.join("pub", version=V311).publish(topic, b"x")
    sub.take(topic, b"x", properties=NO_PROPERTIES)


@only_5
def test_request_and_response(talk: Conversation, topic: str) -> None:
    """4.10"""
    asker = talk.join("asker").subscribed(f"{topic}/answers")
    answerer = talk.join("answerer").subscribed(topic)
    question = Properties(response_topic=f"{topic}/answers", correlation_data=b"\x07")
    asker.publish(topic, b"6 * 7", properties=question)
    asked = answerer.take(topic, b"6 * 7").properties
    assert asked.response_topic is not None
    answer = Properties(correlation_data=asked.correlation_data)
    answerer.publish(asked.response_topic, b"42", properties=answer)
    assert asker.take(f"{topic}/answers", b"42").properties == answer


@only_5
def test_user_properties_are_allowed_wherever_they_are(talk: Conversation, topic: str) -> None:
    """2.2.2.2, 3.x.2: on acknowledgements, UNSUBSCRIBE and DISCONNECT, with reason strings."""
    said = Properties(reason_string="because", user=(("a", "1"), ("a", "2")))
    sub = talk.join("sub").subscribed(topic, qos=2)
    pub = talk.join("pub")
    pub.publish(topic, b"x", qos=1)
    sub.send(Puback(sub.expect(Publish).packet_id, Reason.SUCCESS, said))
    pub.publish(topic, b"x", qos=2)
    sub.send(Pubrec(sub.expect(Publish).packet_id, Reason.UNSPECIFIED_ERROR, said))
    sub.send(Unsubscribe(9, (topic,), Properties(user=said.user)))
    sub.expect(Unsuback, packet_id=9)
    sub.leave(Reason.SUCCESS, said)


@only_5
def test_no_explanations_for_a_client_that_wants_none(talk: Conversation, topic: str) -> None:
    """[MQTT-3.1.2-29]: no reason string or user property but on PUBLISH, CONNACK, DISCONNECT."""
    client = talk.join("a", properties=Properties(request_problem_information=False))
    bad = Properties(user=(("where", "a > > 1"),))
    client.send(Publish(f"{topic}/unheard", b"x", qos=1, packet_id=77))
    for each in (
        client.expect(Puback, packet_id=77).properties,
        client.subscribe(topic, qos=1, properties=bad).properties,
        client.unsubscribe(f"{topic}/never-subscribed").properties,
    ):
        assert each.reason_string is None
        assert each.user == ()


@only_5
@accord_only
def test_a_bad_predicate_is_explained(talk: Conversation, topic: str) -> None:
    """SUBACK fails, and its reason string points at the mistake."""
    client = talk.join("a")
    where = Properties(user=(("where", "altitude_m > > 300"),))
    answer = client.subscribe(topic, properties=where)
    assert all(reason >= 0x80 for reason in answer.reasons)
    assert answer.properties.reason_string
    assert "character 14" in answer.properties.reason_string
    talk.join("pub").publish(topic, b"x")
    client.expect_silence()


@only_5
@accord_only
@pytest.mark.parametrize("name", ["where", "xpath"])
def test_a_bad_predicate_leaves_the_old_subscription(
    talk: Conversation, topic: str, name: str
) -> None:
    client = talk.join("a").subscribed(topic)
    answer = client.subscribe(topic, properties=Properties(user=((name, "((("),)))
    assert answer.reasons[0] >= 0x80
    talk.join("pub").publish(topic, b"x")
    client.take(topic, b"x")


@only_5
@accord_only
def test_a_predicate_selects_by_user_properties(talk: Conversation, topic: str) -> None:
    where = Properties(user=(("where", "altitude_m > 300 AND platform = 'UAV'"),))
    sub = talk.join("sub").subscribed(topic, qos=1, properties=where)
    pub = talk.join("pub")
    for number, (altitude_m, platform) in enumerate(
        [("299", "UAV"), ("301", "UAV"), ("301", "car"), ("1e3", "UAV"), ("high", "UAV")]
    ):
        attributes = (("altitude_m", altitude_m), ("platform", platform))
        pub.publish(topic, b"%d" % number, properties=Properties(user=attributes))
    pub.publish(topic, b"without attributes")
    sub.take(topic, b"1", qos=1)
    sub.take(topic, b"3", qos=1)
    sub.expect_silence()


@only_5
@accord_only
def test_a_path_selects_by_metadata(talk: Conversation, topic: str) -> None:
    xpath = Properties(user=(("xpath", "/report[altitude > 300]"),))
    sub = talk.join("sub").subscribed(topic, properties=xpath)
    pub = talk.join("pub")
    for altitude in (100, 400):
        document = f"<report><altitude>{altitude}</altitude></report>"
        metadata = Properties(user=(("metadata", document),))
        pub.publish(topic, b"%d" % altitude, properties=metadata)
    sub.take(topic, b"400")
    sub.expect_silence()


@only_5
@accord_only
def test_a_predicate_holds_for_retained_messages(talk: Conversation, topic: str) -> None:
    pub = talk.join("pub")
    for size in (1, 10):
        attributes = Properties(user=(("size", str(size)),))
        pub.publish(f"{topic}/{size}", b"x", retain=True, properties=attributes)
    where = Properties(user=(("where", "size > 5"),))
    sub = talk.join("sub").subscribed(f"{topic}/+", properties=where)
    sub.take(f"{topic}/10", b"x", retain=True)
    sub.expect_silence()


@only_5
@accord_only
def test_a_predicate_stays_with_the_session(talk: Conversation, topic: str) -> None:
    where = Properties(user=(("where", "size > 5"),))
    talk.stay("sub", expect_session=False).subscribed(topic, qos=1, properties=where).leave()
    pub = talk.join("pub")
    for size in (1, 10):
        pub.publish(topic, b"%d" % size, properties=Properties(user=(("size", str(size)),)))
    sub = talk.stay("sub", expect_session=True)
    sub.take(topic, b"10", qos=1)
    sub.expect_silence()


@only_5
@accord_only
def test_a_predicate_holds_for_a_share(talk: Conversation, topic: str) -> None:
    """A message goes to a member whose predicate it fulfils, if there is one."""
    small = Properties(user=(("where", "size <= 5"),))
    large = Properties(user=(("where", "size > 5"),))
    first = talk.join("first").subscribed(f"$share/g/{topic}", properties=small)
    second = talk.join("second").subscribed(f"$share/g/{topic}", properties=large)
    pub = talk.join("pub")
    for size in (1, 10, 2, 20):
        pub.publish(topic, b"%d" % size, properties=Properties(user=(("size", str(size)),)))
    first.take(topic, b"1")
    first.take(topic, b"2")
    second.take(topic, b"10")
    second.take(topic, b"20")


def test_versions_agree_on_reasons(talk: Conversation, topic: str) -> None:
    """Puback of a message nobody wants: success, or in version 5 no matching subscribers."""
    pub = talk.join("pub")
    pub.send(Publish(topic, b"x", qos=1, packet_id=1))
    answer = pub.expect(Puback, packet_id=1)
    allowed = {Reason.SUCCESS}
    if talk.version == V5:
        allowed.add(Reason.NO_MATCHING_SUBSCRIBERS)
    assert answer.reason in allowed
