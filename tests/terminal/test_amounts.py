from __future__ import annotations

import pytest

from accord.cli.arguments import read_duration_s, read_size
from accord.core.model.errors import InputError
from accord.terminal.amounts import count_text, duration_text, latency_text, rate_text, size_text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10),
        ("1.5 s", 1.5),
        ("3", 3),
        ("2min", 120),
        ("2m", 120),
        ("1h", 3600),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert read_duration_s(text, "--for") == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "10 parsecs", "-1s", "0s", "1e9s", "31d", "999h", "1,5s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_duration_s(text, "--for")
    assert caught.value.where == "--for"
    assert repr(text) in caught.value.problem


def test_sizes() -> None:
    shown = [size_text(size) for size in (0, 999, 1_000, 42_100, 1_500_000, 2_000_000_000)]
    assert shown == ["0 B", "999 B", "1.0 KB", "42.1 KB", "1.5 MB", "2.0 GB"]


def test_rates() -> None:
    assert [rate_text(rate) for rate in (0, 0.25, 5, 9.96, 1_234.5)] == [
        "0",
        "0.2",
        "5",
        "10.0",
        "1,234",
    ]


def test_counts() -> None:
    assert [count_text(count, "event") for count in (0, 1, 2_000)] == [
        "0 events",
        "1 event",
        "2,000 events",
    ]


def test_durations_for_people() -> None:
    shown = [duration_text(seconds) for seconds in (0.24, 42.9, 61, 3_600 * 3 + 720, 90_000)]
    assert shown == ["0.2 s", "42 s", "1 min 1 s", "3 h 12 min", "1 d 1 h"]


def test_latencies() -> None:
    shown = [latency_text(seconds) for seconds in (0.000_148_4, 0.003_83, 0.0421, 0.25, 1.5)]
    assert shown == ["148 µs", "3.83 ms", "42.1 ms", "250 ms", "1.50 s"]


def test_sizes_that_are_given() -> None:
    read = {"100": 100, "8 B": 8, "10KB": 10_000, "1.5 mb": 1_500_000}
    assert {text: read_size(text, "--size") for text in read} == read
    with pytest.raises(InputError, match="--size: expected a size such as"):
        read_size("many", "--size")
