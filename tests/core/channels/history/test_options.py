from __future__ import annotations

import pytest

from accord.core.channels.history.messages import PERSISTENT, is_persistent, problem_with, span_ms
from accord.core.overlay.channel_directory import ChannelDefinition


def defined(text: str) -> ChannelDefinition:
    return ChannelDefinition(name="chat", options={PERSISTENT: text})


@pytest.mark.parametrize(
    ("text", "is_so", "span"),
    [
        ("true", True, None),
        ("7d", True, 7 * 86_400_000),
        ("90 min", True, 5_400_000),
        ("", False, None),
        ("false", False, None),
    ],
)
def test_all_or_so_far_back(text: str, is_so: bool, span: int | None) -> None:
    assert is_persistent(defined(text)) is is_so
    assert span_ms(defined(text)) == span
    assert not problem_with(text)


def test_what_can_not_be_read_keeps_everything() -> None:
    assert is_persistent(defined("often"))
    assert span_ms(defined("often")) is None
    assert "expected true" in problem_with("often")
    assert "expected true" in problem_with("-7d")
    assert not is_persistent(None)
    assert not is_persistent(ChannelDefinition(name="chat"))
