from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.series import (
    Series,
    SeriesRegistry,
    Summary,
    channel_of_series,
    unit_of_series,
)


def series_of(*values: float, every_ms: int = 1_000, capacity: int = 300) -> Series:
    series = Series(capacity)
    for number, value in enumerate(values):
        series.add(number * every_ms, value)
    return series


def test_a_straight_line() -> None:
    summary = series_of(10, 12, 14, 16).summary("x", now_ms=3_000)
    assert summary == Summary(
        name="x", last=16, last_ms=3_000, count=4, mean=13, deviation=math.sqrt(5), trend=2
    )


def test_only_the_window_counts() -> None:
    series = series_of(*[100] * 20, *[7] * 10)
    summary = series.summary("x", now_ms=29_000)
    assert summary is not None
    assert (summary.count, summary.mean, summary.deviation, summary.trend) == (10, 7, 0, 0)
    wider = series.summary("x", now_ms=29_000, window_ms=20_000)
    assert wider is not None
    assert wider.mean == 53.5


def test_what_is_not_measured_any_more_keeps_its_last_value() -> None:
    assert series_of(5).summary("x", now_ms=60_000) == Summary(name="x", last=5, last_ms=0)
    assert Series().summary("x", now_ms=0) is None
    assert Series().last() is None


def test_one_point_has_no_trend() -> None:
    summary = series_of(5).summary("x", now_ms=0)
    assert summary is not None
    assert (summary.mean, summary.deviation, summary.trend) == (5, 0, None)
    same_time = series_of(5, 7, every_ms=0).summary("x", now_ms=0)
    assert same_time is not None
    assert (same_time.mean, same_time.trend) == (6, None)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40),
    st.integers(1, 12),
)
def test_agrees_with_the_books(values: list[float], capacity: int) -> None:
    series = series_of(*values, capacity=capacity)
    kept = values[-capacity:]
    first = len(values) - len(kept)
    points = [((first + number) * 1_000, value) for number, value in enumerate(kept)]
    assert series.points() == points
    assert len(series) == len(kept)
    summary = series.summary("x", now_ms=points[-1][0])
    assert summary is not None
    window = kept[-10:]
    assert summary.last == series.last() == values[-1]
    assert summary.mean == pytest.approx(statistics.fmean(window), abs=1e-6)
    assert summary.deviation == pytest.approx(statistics.pstdev(window), abs=1e-6)
    if len(window) > 1:
        slope, _ = statistics.linear_regression(range(len(window)), window)
        assert summary.trend == pytest.approx(slope, abs=1e-6)
    else:
        assert summary.trend is None


def test_what_is_no_number_is_left_out() -> None:
    assert series_of(1, math.nan, math.inf, 2).points() == [(0, 1), (3_000, 2)]


def test_a_series_without_room_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one point"):
        Series(0)


def test_of_too_many_series_the_stalest_goes() -> None:
    registry = SeriesRegistry(limit=2, capacity=5)
    registry.add("b", 0, 1)
    registry.add("a", 0, 1)
    assert registry.names() == ["a", "b"]
    registry.add("b", 1, 2)
    registry.add("c", 1, 1)
    assert registry.names() == ["b", "c"]
    assert registry.names("c") == ["c"]
    assert len(registry) == 2
    assert registry.get("a") is None
    series = registry.get("b")
    assert series is not None
    assert series.points() == [(0, 1), (1, 2)]


def test_all_series_together_are_bounded() -> None:
    registry = SeriesRegistry(capacity=4, max_points=8)
    for number in range(6):
        for name in "abc":
            registry.add(name, number, number)
    assert registry.points <= 8
    assert registry.points == sum(
        len(series) for name in registry.names() if (series := registry.get(name)) is not None
    )
    newest = registry.get("c")
    assert newest is not None
    assert newest.last() == 5


@given(
    st.lists(st.tuples(st.integers(0, 1 << 42), st.integers(0, 9)), max_size=20), st.integers(1, 6)
)
def test_times_are_kept_however_far_apart(steps: list[tuple[int, int]], capacity: int) -> None:
    """Points that the ring keeps are true; those that are weeks older may be dropped."""
    series = Series(capacity)
    points = []
    time_ms = 0
    for step_ms, value in steps:
        time_ms += step_ms
        series.add(time_ms, value)
        points.append((time_ms, float(value)))
    kept = series.points()
    assert kept == points[len(points) - len(kept) :]
    assert kept[-1:] == points[-1:]


def test_a_clock_that_steps_back_is_no_trouble() -> None:
    series = Series(3)
    for time_ms in (5_000, 6_000, 1_000, 2_000):
        series.add(time_ms, time_ms)
    assert series.points() == [(6_000, 6_000), (1_000, 1_000), (2_000, 2_000)]


@pytest.mark.parametrize(
    ("name", "unit", "channel"),
    [
        ("cpu_percent", "%", None),
        ("sent_hz", "1/s", None),
        ("shed_hz/queue full", "1/s", None),
        ("connections", None, None),
        ("client/link_kbps/raven/7", "kbit/s", None),
        ("channel/latency_p95_ms/uav/1_hz", "ms", "uav/1_hz"),
        ("importance/messages/3", None, None),
    ],
)
def test_units_and_channels(name: str, unit: str | None, channel: str | None) -> None:
    assert (unit_of_series(name), channel_of_series(name)) == (unit, channel)
