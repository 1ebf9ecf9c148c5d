"""Events from JSON lines: what is read, and how mistakes are reported."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from accord.apps.event_files.json_lines import parse_event, read_events, read_lines
from accord.core.model.document import Document
from accord.core.model.errors import EventError, InputError
from accord.predicates import Event
from accord.terminal.stdin import MAX_LINE_BYTES


def read(path: Path, content: str | bytes) -> list[Event]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return [read.event for read in read_events(str(path))]


def test_all_fields() -> None:
    line = """{
        "channel": "uav/imagery",
        "attributes": {"altitude_m": 420, "cloud_cover": 0.1, "urgent": true, "platform": "UAV",
                       "taken": {"timestamp": "2026-03-14T07:12:30+01:00"}},
        "metadata": "<image><target>2</target></image>", "payload_base64": "AP8=",
        "key": "raven-7", "deadline_ms": 5000, "published_ms": 7, "source": "raven", "sequence": 3
    }"""
    assert parse_event(line) == Event(
        channel="uav/imagery",
        attributes={
            "altitude_m": 420,
            "cloud_cover": 0.1,
            "urgent": True,
            "platform": "UAV",
            "taken": datetime(2026, 3, 14, 6, 12, 30, tzinfo=UTC),
        },
        metadata=Document(b"<image><target>2</target></image>"),
        payload=b"\x00\xff",
        key="raven-7",
        deadline_ms=5000,
        published_ms=7,
        source="raven",
        sequence=3,
    )


def test_a_channel_is_enough() -> None:
    assert parse_event('{"channel": "a"}') == Event(channel="a")


def test_strings_stay_strings() -> None:
    event = parse_event('{"channel": "a", "attributes": {"t": "2026-03-14T06:12:30Z", "n": "4"}}')
    assert event.attributes == {"t": "2026-03-14T06:12:30Z", "n": "4"}


def test_payload_is_text_in_utf8() -> None:
    assert parse_event('{"channel": "a", "payload": "día"}').payload == "día".encode()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1]", "expected an object, got a list"),
        ('{"channel": "a"', "not JSON at character 16"),
        ("{}", "channel: expected, but missing"),
        ('{"channel": 3}', "channel: expected a string, got an integer"),
        ('{"channel": "a/#"}', "channel: expected a channel without wildcards"),
        ('{"channel": "a", "chanel": "b"}', "chanel: unknown field, expected one of channel,"),
        ('{"channel": "a", "channel": "b"}', "channel: expected once, given twice"),
        ('{"channel": "a", "sequence": true}', "sequence: expected an integer, got a boolean"),
        ('{"channel": "a", "sequence": -1}', "sequence: expected 0 to"),
        ('{"channel": "a", "deadline_ms": 1.5}', "deadline_ms: expected an integer, got a float"),
        ('{"channel": "a", "metadata": "<a>"}', "metadata: not well-formed XML"),
        ('{"channel": "a", "payload_base64": "?"}', "payload_base64: expected base64"),
        ('{"channel": "a", "payload": "", "payload_base64": ""}', "payload: expected once"),
        ('{"channel": "a", "payload": "\\ud800"}', "payload: expected Unicode text"),
        ('{"channel": "a", "attributes": {"x": null}}', "attributes.x: expected a string, a numb"),
        ('{"channel": "a", "attributes": {"x": [1]}}', "got a list"),
        ('{"channel": "a", "attributes": {"x": NaN}}', "expected a finite number, got NaN"),
        ('{"channel": "a", "attributes": {"x": 1e999}}', "attributes.x: expected a finite number"),
        ('{"channel": "a", "attributes": {"x": 9223372036854775808}}', "integer of 64 bits"),
        ('{"channel": "a", "attributes": {"t": {"timestamp": "noon"}}}', "expected ISO 8601"),
        ('{"channel": "a", "attributes": {"t": {"timestamp": 5}}}', "attributes.t.timestamp"),
        ('{"channel": "a", "sequence": ' + "9" * 5000 + "}", "not acceptable JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_mistakes_say_what_was_expected(line: str, problem: str) -> None:
    with pytest.raises(EventError) as mistake:
        parse_event(line)
    assert problem in str(mistake.value)


def test_mistakes_say_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with pytest.raises(InputError) as mistake:
        read(path, '{"channel": "a"}\n\n{"channel": 3}\n')
    assert str(mistake.value) == f"{path}:3: channel: expected a string, got an integer"


def test_blank_lines_and_foreign_line_ends_are_fine(tmp_path: Path) -> None:
    content = '\ufeff{"channel": "a"}\r\n  \r\n{"channel": "b"}'
    assert [event.channel for event in read(tmp_path / "e", content)] == ["a", "b"]


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r":2: expected UTF-8 text, byte 3 of the line is not"):
        read(tmp_path / "e", b'{"channel": "a"}\n{"\xff"}\n')


def test_a_line_has_a_greatest_length() -> None:
    longest = b"x" * (MAX_LINE_BYTES - 1) + b"\n"
    assert len(list(read_lines(io.BytesIO(longest * 2), "e"))) == 2
    with pytest.raises(InputError, match=r"e:2: expected at most 1048576 bytes in a line"):
        list(read_lines(io.BytesIO(longest + b"x" + longest), "e"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [("", "is a directory; expected a file"), ("missing", "no such file or directory; check")],
)
def test_files_that_can_not_be_read(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        list(read_events(str(tmp_path / name)))


def test_the_sample_has_every_type_and_kind_of_metadata() -> None:
    events = [read.event for read in read_events(None)]
    assert len(events) == 12
    types = {type(value) for event in events for value in event.attributes.values()}
    assert types == {str, int, float, bool, datetime}
    paths = [event.metadata.paths for event in events if event.metadata]
    assert any(len(texts) > 1 for each in paths for texts in each.values())
    assert any("{urn:example:imagery}" in path for each in paths for path in each)
