from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping.attributes import Trimming
from accord.shaping.content import Content

PROPERTIES = (("platform", "UAV"), ("note", "n" * 500), ("key", "track-7"), ("raw", "r" * 200))
TRACK = Content(b"p" * 100, "text/plain", PROPERTIES)


def test_only_wanted_attributes_stay() -> None:
    trimmed = Trimming().shape(TRACK, ShapingTarget("trimming", argument="raw, platform"))
    assert trimmed.properties == (("platform", "UAV"), ("key", "track-7"), ("raw", "r" * 200))
    assert (trimmed.payload, trimmed.content_type) == (TRACK.payload, "text/plain")


def test_the_largest_go_first() -> None:
    trimmed = Trimming().shape(TRACK, ShapingTarget("trimming", TRACK.size - 1))
    assert [name for name, _ in trimmed.properties] == ["platform", "key", "raw"]


def test_what_the_system_needs_stays_however_small_the_target() -> None:
    trimmed = Trimming().shape(TRACK, ShapingTarget("trimming", 1))
    assert trimmed.properties == (("key", "track-7"),)
    assert trimmed.payload == TRACK.payload


def test_it_takes_any_content() -> None:
    assert Trimming().accepts("", b"")


@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=40))), st.integers(1, 600))
def test_no_more_is_dropped_than_has_to_be(
    properties: list[tuple[str, str]], max_bytes: int
) -> None:
    content = Content(b"", "", tuple(properties))
    trimmed = Trimming().shape(content, ShapingTarget("trimming", max_bytes))
    kept = [item for item in properties if item[0] in ("key", "deadline-ms")]
    assert trimmed.size <= max_bytes or list(trimmed.properties) == kept
    dropped = list(properties)
    for item in trimmed.properties:
        dropped.remove(item)
    if dropped:
        smallest = min(Content(b"", "", (item,)).size for item in dropped)
        assert trimmed.size + smallest > max_bytes
