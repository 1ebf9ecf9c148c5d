from __future__ import annotations

from typing import Any

import pytest

from accord.client.messages import Extras, Outcome, time_to_send_ms, to_message, to_received
from accord.core.model.errors import EventError
from accord.core.model.event import Event
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.properties import Properties


def test_everything_given_is_in_the_message() -> None:
    extras = Extras(
        qos=2,
        retain=True,
        key="k",
        deadline_ms=1_500,
        metadata="<a>1</a>",
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"c",
    )
    message = to_message("uav/imagery", "é", {"n": 1}, extras)
    assert message == Publish(
        "uav/imagery",
        "é".encode(),
        2,
        True,
        properties=Properties(
            payload_format=1,
            message_expiry_s=2,
            content_type="text/plain",
            response_topic="r",
            correlation_data=b"c",
            user=(("metadata", "<a>1</a>"), ("key", "k"), ("deadline-ms", "1500"), ("n", "1")),
        ),
    )
    assert time_to_send_ms(message, extras) == 1_500


def test_an_expiry_is_kept_apart_from_the_deadline() -> None:
    extras = Extras(deadline_ms=1_500, expiry_s=60)
    assert to_message("a", b"", {}, extras).properties.message_expiry_s == 60
    only = Extras(expiry_s=60)
    assert time_to_send_ms(to_message("a", b"", {}, only), only) == 60_000
    assert time_to_send_ms(to_message("a", b"", {}, {}), {}) is None


@pytest.mark.parametrize(
    ("channel", "attributes", "extras", "field"),
    [
        ("a/+", {}, Extras(), "channel"),
        ("a", {"x": float("nan")}, Extras(), "attributes.x"),
        ("a", {"key": "k"}, Extras(), "attributes.key"),
        ("a", {}, Extras(qos=3), "qos"),
        ("a", {}, Extras(expiry_s=0), "expiry_s"),
        ("a", {}, Extras(deadline_ms=-1), "deadline_ms"),
        ("a", {}, Extras(metadata="<a>"), "metadata"),
    ],
)
def test_what_can_not_be_published_is_named(
    channel: str, attributes: dict[str, str | float], extras: Extras, field: str
) -> None:
    with pytest.raises(EventError) as caught:
        to_message(channel, b"", {**attributes}, extras)
    assert caught.value.field == field


def test_a_payload_is_bytes_or_text() -> None:
    payload: Any = {"n": 1}
    with pytest.raises(TypeError, match="payload: expected bytes or str, got dict; encode it"):
        to_message("a", payload, {}, Extras())


def test_a_received_event_has_the_facts_of_mqtt() -> None:
    properties = Properties(user=(("n", "1"),), content_type="text/plain")
    event = to_received(Publish("a", b"hi", 1, True, packet_id=1, properties=properties), 7)
    assert isinstance(event, Event)
    assert (event.channel, event.attributes, event.text) == ("a", {"n": 1}, "hi")
    assert (event.qos, event.retain, event.properties, event.problem) == (1, True, properties, None)


def test_a_message_that_is_no_event_still_has_its_payload() -> None:
    message = Publish("a", b"hi", properties=Properties(user=(("deadline-ms", "soon"), ("n", "1"))))
    event = to_received(message, 7)
    assert event.payload == b"hi"
    assert event.attributes == {}
    assert event.problem is not None
    assert event.problem.startswith("deadline-ms:")


def test_an_outcome_says_whether_somebody_listens() -> None:
    assert Outcome().has_subscribers
    assert not Outcome(Reason.NO_MATCHING_SUBSCRIBERS).has_subscribers


def test_a_kept_event_says_where_it_is_from() -> None:
    user = (
        ("n", "1"),
        ("accord-channel", "uav/imagery"),
        ("accord-event", "7ZK"),
        ("accord-received-ms", "1700000000123"),
        ("accord-publisher", "camera"),
        ("accord-later", "unknown"),
    )
    message = Publish("reply/me", b"x", properties=Properties(user=user))
    event = to_received(message, 99)
    assert (event.channel, event.id, event.source) == ("uav/imagery", "7ZK", "camera")
    assert event.received_ms == event.published_ms == 1_700_000_000_123
    assert event.attributes == {"n": 1}
    assert event.is_kept


def test_nonsense_about_the_origin_is_no_crash() -> None:
    user = (("accord-received-ms", "9" * 40), ("accord-channel", "a/#"), ("accord-event", ""))
    event = to_received(Publish("a", b"x", properties=Properties(user=user)), 9)
    assert event.channel == "a"
    assert event.received_ms == 9
    assert event.problem is not None
