from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import attribute_maps

from accord.core.model.document import Document
from accord.core.model.errors import EventError
from accord.core.model.event import Event
from accord.core.model.values import Value, infer
from accord.core.mqtt.event_mapping import RESERVED, attributes_to_user, from_event, to_event
from accord.core.mqtt.properties import NO_PROPERTIES, Properties


def event_of(*user: tuple[str, str], expiry_s: int | None = None) -> Event:
    properties = Properties(user=user, message_expiry_s=expiry_s)
    return to_event("uav/imagery", b"jpeg", properties, received_ms=7, source="denver")


def test_a_plain_message_is_an_event_without_attributes() -> None:
    event = to_event("uav/imagery", b"jpeg", NO_PROPERTIES, received_ms=7)
    assert event == Event(channel="uav/imagery", payload=b"jpeg", published_ms=7, received_ms=7)


def test_user_properties_are_typed_attributes() -> None:
    event = event_of(
        ("platform", "UAV"),
        ("altitude_m", "420"),
        ("speed", "2.5"),
        ("armed", "false"),
        ("seen", "2026-03-14T06:12:30Z"),
    )
    assert event.attributes == {
        "platform": "UAV",
        "altitude_m": 420,
        "speed": 2.5,
        "armed": False,
        "seen": datetime(2026, 3, 14, 6, 12, 30, tzinfo=UTC),
    }
    assert (event.received_ms, event.source) == (7, "denver")


def test_reserved_names_are_fields_of_the_event() -> None:
    event = event_of(("metadata", "<m><a>1</a></m>"), ("key", "track-7"), ("deadline-ms", "250"))
    assert event.attributes == {}
    assert event.metadata == Document(b"<m><a>1</a></m>")
    assert event.values == {"a": 1}
    assert (event.key, event.deadline_ms) == ("track-7", 250)


def test_the_expiry_interval_is_the_deadline_unless_there_is_a_finer_one() -> None:
    assert event_of(expiry_s=5).deadline_ms == 5_000
    assert event_of(("deadline-ms", "250"), expiry_s=5).deadline_ms == 250


def test_the_first_of_repeated_attributes_counts() -> None:
    assert event_of(("a", "1"), ("a", "2")).attributes == {"a": 1}


@pytest.mark.parametrize(
    ("user", "field"),
    [
        ((("deadline-ms", "soon"),), "deadline-ms"),
        ((("deadline-ms", "-1"),), "deadline-ms"),
        ((("deadline-ms", "9999999999999999999"),), "deadline-ms"),
        ((("deadline-ms", "٣"),), "deadline-ms"),
        ((("key", "a"), ("key", "b")), "key"),
        ((("metadata", "<a>"),), "metadata"),
        ((("key", "k" * 300),), "key"),
        ((("", "x"),), "attributes"),
    ],
)
def test_a_bad_value_is_named(user: tuple[tuple[str, str], ...], field: str) -> None:
    with pytest.raises(EventError) as caught:
        event_of(*user)
    assert caught.value.field == field


def test_an_event_says_its_deadline_twice() -> None:
    event = Event(channel="a", payload=b"x", key="k", deadline_ms=1_001, attributes={"n": 1})
    topic, payload, properties = from_event(event)
    assert (topic, payload) == ("a", b"x")
    assert properties == Properties(
        message_expiry_s=2, user=(("key", "k"), ("deadline-ms", "1001"), ("n", "1"))
    )


def test_a_deadline_beyond_the_expiry_interval_is_in_milliseconds_only() -> None:
    _, _, properties = from_event(Event(channel="a", deadline_ms=2**62))
    assert properties.message_expiry_s is None
    assert to_event("a", b"", properties, received_ms=0).deadline_ms == 2**62


def is_distinct(value: Value) -> bool:
    return not isinstance(value, str) or infer(value) == value


@given(
    attribute_maps(),
    st.sampled_from([None, Document("<a>é</a>".encode())]),
    st.sampled_from([None, "", "k"]),
    st.integers(0, 2**63 - 1) | st.none(),
)
def test_events_come_back_as_they_were(
    attributes: dict[str, Value],
    metadata: Document | None,
    key: str | None,
    deadline_ms: int | None,
) -> None:
    event = Event(
        channel="a/b",
        payload=b"x",
        attributes={name: value for name, value in attributes.items() if is_distinct(value)},
        metadata=metadata,
        key=key,
        deadline_ms=deadline_ms,
        published_ms=3,
        received_ms=3,
    )
    again = to_event(*from_event(event), received_ms=3)
    assert again == event
    for name, value in again.attributes.items():
        assert type(value) is type(event.attributes[name])


def test_text_in_the_form_of_a_number_arrives_as_one() -> None:
    assert attributes_to_user({"a": "42"}) == attributes_to_user({"a": 42}) == (("a", "42"),)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_reserved_name_is_no_attribute(name: str) -> None:
    with pytest.raises(EventError, match="reserved"):
        attributes_to_user({name: 1})


def test_what_mqtt_cannot_carry_is_refused() -> None:
    with pytest.raises(EventError, match="null character"):
        attributes_to_user({"a": "\0"})
    with pytest.raises(EventError, match="at most 65535"):
        attributes_to_user({"a": "é" * 40_000})
    latin = Document("<?xml version='1.0' encoding='iso-8859-1'?><a>é</a>".encode("latin-1"))
    with pytest.raises(EventError, match="UTF-8"):
        from_event(Event(channel="a", metadata=latin))
