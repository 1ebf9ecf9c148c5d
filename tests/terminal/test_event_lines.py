"""Events on a screen, and as JSON."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from accord.apps.event_files.json_lines import parse_event
from accord.client.event_json import to_fields
from accord.client.messages import ReceivedEvent
from accord.core.model.document import Document
from accord.core.model.event import Event
from accord.core.mqtt.properties import Properties
from accord.terminal.event_lines import MAX_LINES, MAX_PAIRS, MAX_TEXT, EventPrinter
from accord.terminal.screen import PIPE_WIDTH
from tests.strategies import attribute_maps


class Screen:
    """A terminal of that width, or a pipe; what is on it, without header and time of day."""

    def __init__(self, width: int = 100, *, is_kept: bool = False) -> None:
        self._output = io.StringIO()
        console = Console(
            file=self._output,
            width=width,
            force_terminal=width < PIPE_WIDTH,
            color_system=None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._pretty = EventPrinter(console, is_kept=is_kept)
        self._header = int(width < PIPE_WIDTH)

    def show(self, *events: ReceivedEvent) -> list[str]:
        for event in events:
            self._pretty.show(event)
        text = self._output.getvalue()
        self._output.truncate(self._output.seek(0))
        lines, self._header = text.splitlines()[self._header :], 0
        return [line[14:] for line in lines]


def test_columns_line_up_over_time() -> None:
    shown = Screen().show(
        ReceivedEvent(channel="uav/a", attributes={"altitude_m": 1_420, "platform": "UAV"}),
        ReceivedEvent(channel="uav/imagery/north", attributes={"altitude_m": 7, "platform": "UAV"}),
        ReceivedEvent(channel="uav/a", attributes={"altitude_m": 12, "platform": "UAV"}),
    )
    assert shown == [
        "uav/a             altitude_m=1420  platform='UAV'",
        "uav/imagery/north  altitude_m=7     platform='UAV'",
        "uav/a              altitude_m=12    platform='UAV'",
    ]


def test_a_payload_stands_beside_if_it_fits_and_else_below() -> None:
    event = ReceivedEvent(channel="a", attributes={"n": 1}, payload=b"x" * 70)
    assert Screen(107).show(event) == [f"{'a':16}  n=1  {'x' * 70}"]
    beside, below = Screen(106).show(event)
    assert beside == f"{'a':16}  n=1"
    assert below == " " * 16 + "  " + "x" * 70


@pytest.mark.parametrize("width", [80, 140])
def test_what_was_kept_is_a_line_each_and_cut(width: int) -> None:
    event = ReceivedEvent(
        channel="demo/uav",
        attributes={"platform": "UAV", "altitude_m": 420},
        payload=b"x" * 200,
    )
    screen = Screen(width, is_kept=True)
    for _ in range(2):
        (shown,) = screen.show(event)
        assert 14 + len(shown) == width
        assert "demo/uav" in shown
        assert "platform='UAV'  altitude_m=" in shown
        assert shown.endswith("…")


def test_attributes_wrap_between_each_other() -> None:
    attributes = {f"name_{number}": number for number in range(12)}
    shown = Screen(110).show(ReceivedEvent(channel="a", attributes=attributes))
    assert len(shown) > 1
    assert all(len(line) <= 110 - 14 for line in shown)
    pairs = [pair for line in shown for pair in line.split()]
    assert pairs == ["a", *(f"name_{number}={number}" for number in range(12))]


def test_a_narrow_terminal_indents_less() -> None:
    event = ReceivedEvent(channel="a", attributes={"n": 1}, payload=b"x" * 40)
    screen = Screen(50)
    assert screen.show(event)[1] == "x" * 32  # the first eight stand where the time would


def test_a_pipe_gets_one_line() -> None:
    event = ReceivedEvent(channel="a", attributes={"n": 1}, payload=b"two\nlines" + b"x" * 100)
    (shown,) = Screen(PIPE_WIDTH).show(event)
    assert shown == f"{'a':16}  n=1  two\\nlines{'x' * 100}"


def test_lines_of_a_payload() -> None:
    few = ReceivedEvent(channel="a", payload=b"one\ntwo")
    assert [line.strip() for line in Screen().show(few)] == ["a", "one", "two"]
    many = ReceivedEvent(channel="a", payload=b"\n".join(b"x" for _ in range(10)))
    shown = Screen().show(many)
    assert len(shown) == 1 + MAX_LINES
    assert shown[-1].endswith("x … (19 B)")


def test_a_long_payload_is_cut() -> None:
    (shown,) = Screen(400).show(ReceivedEvent(channel="a", payload=b"x" * 5_000))
    assert shown.endswith(f"{'x' * MAX_TEXT} … (5.0 KB)")


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"\xff\xd8\xff\xe0" + bytes(42_096), "(JPEG image, 42.1 KB)"),
        (b"\x89PNG\r\n\x1a\n", "(PNG image, 8 B)"),
        (b"RIFF\0\0\0\0WEBP", "(WebP image, 12 B)"),
        (b"\x00\x01", "(binary, 2 B)"),
        (b"\x1b[31m", "(binary, 5 B)"),
    ],
)
def test_what_is_no_text(payload: bytes, shown: str) -> None:
    (line,) = Screen().show(ReceivedEvent(channel="a", payload=payload))
    assert line.endswith(f"  {shown}")


def test_the_publisher_knows_best_what_it_is() -> None:
    properties = Properties(content_type="image/avif")
    event = ReceivedEvent(channel="a", payload=b"\xff", properties=properties)
    assert Screen().show(event)[0].endswith("(image/avif, 1 B)")


def test_nothing_from_outside_is_obeyed() -> None:
    event = ReceivedEvent(channel="a\x1b[2J", attributes={"x": "[red]\x1b[31m"}, problem="\x07")
    (shown,) = Screen().show(event)
    assert r"a\x1b[2J" in shown
    assert r"x='[red]\x1b[31m'" in shown
    assert r"not an event: \x07" in shown


def test_attributes_from_xml_come_last_and_many_are_cut() -> None:
    metadata = Document(b"<report><seen>3</seen><n>4</n></report>")
    event = ReceivedEvent(channel="a", attributes={"n": 1}, metadata=metadata, retain=True)
    assert Screen().show(event)[0].split() == ["a", "n=1", "seen=3", "retained"]
    attributes = {f"a{number}": number for number in range(MAX_PAIRS + 7)}
    assert "… and 7 more" in " ".join(
        Screen().show(ReceivedEvent(channel="a", attributes=attributes))
    )


@given(
    attributes=attribute_maps(),
    payload=st.one_of(st.binary(), st.text().map(str.encode)),
    key=st.none() | st.just("raven-7"),
    deadline_ms=st.none() | st.integers(0, 10**9),
    metadata=st.none() | st.just(Document("<a>é</a>".encode())),
)
def test_json_is_read_as_the_same_event(
    attributes: dict[str, str | int | float | bool | datetime],
    payload: bytes,
    key: str | None,
    deadline_ms: int | None,
    metadata: Document | None,
) -> None:
    event = ReceivedEvent(
        channel="a/b",
        attributes=attributes,
        payload=payload,
        key=key,
        deadline_ms=deadline_ms,
        metadata=metadata,
        published_ms=7,
    )
    assert parse_event(json.dumps(to_fields(event), ensure_ascii=False)) == Event(
        channel="a/b",
        attributes=event.attributes,
        payload=payload,
        key=key,
        deadline_ms=deadline_ms,
        metadata=metadata,
        published_ms=7,
    )


def test_times_are_marked_in_json() -> None:
    moment = datetime(2026, 3, 14, 6, 12, 30, tzinfo=UTC)
    fields = to_fields(ReceivedEvent(channel="a", attributes={"taken": moment}))
    assert fields["attributes"] == {"taken": {"timestamp": "2026-03-14T06:12:30Z"}}
