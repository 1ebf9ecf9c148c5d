from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.config.errors import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0 B", 0),
        ("16 MB", 16_000_000),
        ("16MB", 16_000_000),
        (" 64 MiB ", 67_108_864),
        ("1.5 GB", 1_500_000_000),
        ("0.5 KiB", 512),
        ("1.5 B", None),
        ("16", None),
        ("16 mb", None),
        ("16 Mbit", None),
        ("-1 MB", None),
        ("1e3 B", None),
        ("٣ MB", None),
        ("MB", None),
        ("", None),
        ("9999999999999999 B", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("90s", 90),
        ("15 min", 900),
        ("24h", 86_400),
        ("1.5h", 5_400),
        ("7d", 604_800),
        ("0.5s", None),
        ("5m", None),
        ("24 hours", None),
    ],
)
def test_durations(text: str, duration_s: int | None) -> None:
    assert parse_duration(text) == duration_s


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (16_000_000, "16 MB"),
        (67_108_864, "64 MiB"),
        (1_000_001, "1000001 B"),
    ],
)
def test_sizes_are_written_short(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 1 << 49))
def test_what_is_written_is_read_again(value: int) -> None:
    assert parse_size(format_size(value)) == value
    assert parse_duration(format_duration(value)) == value
