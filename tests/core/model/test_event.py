from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from accord.core.model.document import Document
from accord.core.model.errors import EventError
from accord.core.model.event import Event
from accord.core.model.values import Value


def test_an_event_needs_no_more_than_a_channel() -> None:
    event = Event(channel="uav/imagery")
    assert (event.values, event.payload, event.metadata) == ({}, b"", None)


def test_selectors_see_metadata_below_the_publishers_own_attributes() -> None:
    metadata = Document(b"<r><altitude>420</altitude><unit>m</unit></r>")
    event = Event(channel="c", attributes={"altitude": 1}, metadata=metadata)
    assert event.values == {"altitude": 1, "unit": "m"}


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"": 1}, "attributes: expected a name, got ''"),
        ({"a\0": 1}, "attributes: expected no null character, got 'a\\\\x00'"),
        ({"n" * 257: 1}, "expected at most 256 characters"),
        ({"a": float("inf")}, "attributes.a: expected a finite number"),
        ({"a": "x" * 65_536}, "attributes.a: 65536 characters, at most 65535"),
        ({f"a{n}": n for n in range(1_001)}, "1001 attributes, at most 1000"),
    ],
)
def test_bad_attributes_are_refused_by_name(attributes: dict[str, Value], problem: str) -> None:
    with pytest.raises(EventError, match=problem):
        Event(channel="c", attributes=attributes)


@pytest.mark.parametrize(
    ("field", "value"),
    [("channel", "a/+"), ("channel", ""), ("key", "\ud800"), ("source", "a\0"), ("sequence", -1)],
)
def test_other_bad_fields_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(EventError) as refused:
        Event(**{"channel": "c", field: value})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_timestamps_are_kept_in_utc() -> None:
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    event = Event(channel="c", attributes={"seen": twice})
    assert event.attributes == {"seen": datetime(2026, 10, 25, 1, 30, tzinfo=UTC)}
    with pytest.raises(EventError, match="year 1 to 9999"):
        Event(channel="c", attributes={"seen": datetime.max.replace(tzinfo=ZoneInfo("US/Eastern"))})
