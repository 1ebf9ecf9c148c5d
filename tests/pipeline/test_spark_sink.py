from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from accord.pipeline.source_options import OptionError
from accord.pipeline.spark_sink import EventWriter, RowError, WriteOptions, to_event

NOON = datetime(2025, 11, 16, 12, tzinfo=UTC)


def attributes(**row: Any) -> dict[str, Any]:
    return dict(to_event({"channel": "a", **row}).attributes)


def test_a_row_is_an_event() -> None:
    event = to_event(
        {
            "channel": "uav/imagery",
            "payload": b"jpeg",
            "key": "k",
            "deadline_ms": 500,
            "content_type": "image/jpeg",
            "metadata": b"<m/>",
            "altitude_m": 300,
        }
    )
    assert (event.channel, event.payload, event.key) == ("uav/imagery", b"jpeg", "k")
    assert (event.deadline_ms, event.content_type) == (500, "image/jpeg")
    assert (event.metadata, event.attributes) == (b"<m/>", {"altitude_m": 300})


def test_other_columns_are_attributes() -> None:
    assert attributes(a=1, b=2.5, c="x", d=True, e=NOON) == {
        "a": 1,
        "b": 2.5,
        "c": "x",
        "d": True,
        "e": NOON,
    }
    assert attributes(a=None) == {}
    assert attributes(a=date(2025, 11, 16)) == {"a": "2025-11-16"}


def test_attributes_come_as_a_map_too() -> None:
    assert attributes(attributes=[("a", "1"), ("b", None)], c=3) == {"a": "1", "c": 3}
    assert attributes(attributes=None) == {}


def test_rows_of_the_archive_can_be_published_again() -> None:
    value = {"integer": None, "float": None, "string": None, "boolean": False, "timestamp": None}
    unset = dict.fromkeys(value)
    row = {"attributes": [("armed", value), ("x", unset)], "node": "a", "offset": 7, "qos": 1}
    assert attributes(**row, day=date(2025, 11, 16), group="uav", payload_bytes=3) == {
        "armed": False
    }


def test_what_can_not_be_published_is_told() -> None:
    with pytest.raises(RowError, match="channel: expected a name, got null"):
        to_event({"channel": None})
    with pytest.raises(RowError, match=r"place: expected a string, number.*, got list"):
        attributes(place=[1, 2])
    with pytest.raises(RowError, match="payload: is in a file of its own"):
        attributes(payload=None, payload_ref="payloads/x")


def test_rows_need_a_channel() -> None:
    options = WriteOptions(url="mqtt://localhost")
    with pytest.raises(RowError, match="expected a column channel of strings, got payload"):
        EventWriter(options, StructType([StructField("payload", BinaryType())]))
    channel, number = StructField("channel", StringType()), StructField("attributes", LongType())
    with pytest.raises(RowError, match="attributes: expected a map of values, got bigint"):
        EventWriter(options, StructType([channel, number]))
    texts = StructField("attributes", MapType(StringType(), StringType()))
    EventWriter(options, StructType([channel, texts]))


def test_options_are_checked() -> None:
    assert WriteOptions.of({"url": "mqtt://host", "qos": "2", "retain": "true"}) == WriteOptions(
        url="mqtt://host", qos=2, retain=True
    )
    assert WriteOptions.of({"path": "mqtt://host"}).url == "mqtt://host"
    for options, name in [
        ({}, "url"),
        ({"url": "http://host"}, "url"),
        ({"url": "mqtt://host", "qos": "3"}, "qos"),
        ({"url": "mqtt://host", "qos": "x"}, "qos"),
        ({"url": "mqtt://host", "retain": "x"}, "retain"),
    ]:
        with pytest.raises(OptionError) as caught:
            WriteOptions.of(options)
        assert caught.value.name == name
