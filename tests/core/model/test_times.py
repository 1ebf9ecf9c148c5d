from __future__ import annotations

import pytest

from accord.core.model.units import parse_time

NOW_MS = 1_763_278_200_000


@pytest.mark.parametrize(
    ("text", "before_ms"),
    [
        ("now", 0),
        ("-24h", 86_400_000),
        ("-1.5 s", 1_500),
        ("- 2d", 172_800_000),
        ("-30min", 1_800_000),
    ],
)
def test_moments_relative_to_now(text: str, before_ms: int) -> None:
    assert parse_time(text, now_ms=NOW_MS) == NOW_MS - before_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.5Z", 1_500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01 00:00:02", 2_000),
        ("1969-12-31", 0),
    ],
)
def test_moments_by_the_calendar(text: str, ms: int) -> None:
    assert parse_time(text, now_ms=NOW_MS) == ms


@pytest.mark.parametrize(
    "text", ["", "24h", "-24", "-1x", "yesterday", "2026-13-01", "-" + "9" * 99 + "h", "9" * 99]
)
def test_what_is_no_moment_says_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as"):
        parse_time(text, now_ms=NOW_MS)


def test_a_moment_before_the_beginning_is_the_beginning() -> None:
    assert parse_time("-999999999w", now_ms=NOW_MS) == 0
