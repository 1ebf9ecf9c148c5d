from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.channels import (
    ChannelMap,
    filter_selects,
    problem_with_channel,
    problem_with_filter,
)

LEVELS = st.sampled_from(["a", "b", "", "$s"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
PATTERNS = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(LEVELS | st.just("+"), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(bool) | st.just("#")


@pytest.mark.parametrize(
    ("pattern", "channel", "is_selected"),
    [
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("+", "a/", False),
        ("+/+", "/a", True),
        ("#", "$accord/status", False),
        ("+/status", "$accord/status", False),
        ("$accord/#", "$accord/status", True),
        ("a", "A", False),
    ],
)
def test_wildcards_select_as_in_mqtt(pattern: str, channel: str, is_selected: bool) -> None:
    assert filter_selects(pattern, channel) is is_selected


@pytest.mark.parametrize("name", ["", "a/+/b", "#", "a\0", "x" * 65_536, "\ud800"])
def test_names_that_are_no_channels(name: str) -> None:
    assert problem_with_channel(name)


@pytest.mark.parametrize("pattern", ["", "a/#/b", "a#", "a+/b", "#/", "a\0"])
def test_patterns_that_are_no_filters(pattern: str) -> None:
    assert problem_with_filter(pattern)


@given(st.lists(PATTERNS), NAMES, st.data())
def test_a_map_finds_what_each_filter_selects(
    patterns: list[str], channel: str, data: st.DataObject
) -> None:
    channels: ChannelMap[str] = ChannelMap()
    for pattern in patterns:
        assert problem_with_filter(pattern) is None
        channels.set(pattern, pattern)
    kept = set(patterns)
    for pattern in data.draw(
        st.lists(st.sampled_from(sorted(kept)), unique=True) if kept else st.just([])
    ):
        channels.remove(pattern)
        kept.remove(pattern)
    assert sorted(channels.select(channel)) == sorted(
        pattern for pattern in kept if filter_selects(pattern, channel)
    )
    assert all(
        channels.get(pattern) == (pattern if pattern in kept else None) for pattern in patterns
    )
