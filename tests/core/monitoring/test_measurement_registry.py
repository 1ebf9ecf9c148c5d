from __future__ import annotations

import math

import pytest

from accord.core.monitoring.measurement_registry import (
    MeasuredValue,
    MeasurementRegistry,
    parts_of,
    subject_of,
)


def test_the_newest_value_counts() -> None:
    registry = MeasurementRegistry()
    registry.put("channel", "uav/imagery", "rate_hz", 2.0, at_ms=1_000)
    registry.put("channel", "uav/imagery", "rate_hz", 3.0, at_ms=2_000)
    registry.put("channel", "uav/imagery", "rate_hz", 9.0, at_ms=1_500)
    assert registry.get("channel", "uav/imagery", "rate_hz", now_ms=2_000) == 3.0
    assert registry.get("channel", "uav/imagery", "bytes_per_s", now_ms=2_000) is None
    assert registry.get("node", "uav/imagery", "rate_hz", now_ms=2_000) is None


def test_a_stale_value_says_nothing_and_is_forgotten() -> None:
    registry = MeasurementRegistry(expire_after_ms=100)
    registry.put("link", "a-b", "availability", 0.9, at_ms=1_000)
    registry.put("link", "a-c", "availability", 0.8, at_ms=1_050)
    assert registry.get("link", "a-b", "availability", now_ms=1_100) == 0.9
    assert registry.get("link", "a-b", "availability", now_ms=1_101) is None
    assert [known.subject for known in registry.select("link", now_ms=1_101)] == ["a-c"]
    assert registry.expire(now_ms=1_101) == 1
    assert len(registry) == 1


def test_values_of_a_kind_are_selected_by_a_channel_filter() -> None:
    registry = MeasurementRegistry()
    for channel in ("uav/imagery", "uav/tasking", "patrol"):
        registry.put("channel", channel, "rate_hz", 1.0, at_ms=5)
    registry.put("publisher", "uav/1", "rate_hz", 1.0, at_ms=5)
    assert len(registry.select("channel", now_ms=5)) == 3
    assert registry.select("channel", "uav/imagery", now_ms=5) == [
        MeasuredValue(kind="channel", subject="uav/imagery", name="rate_hz", value=1.0, at_ms=5)
    ]
    found = registry.select("channel", "uav/#", now_ms=5)
    assert [known.subject for known in found] == ["uav/imagery", "uav/tasking"]


def test_for_one_more_than_fit_the_one_not_put_for_longest_goes() -> None:
    registry = MeasurementRegistry(limit=2)
    registry.put("channel", "a", "rate_hz", 1.0, at_ms=1)
    registry.put("channel", "b", "rate_hz", 1.0, at_ms=2)
    registry.put("channel", "a", "rate_hz", 1.5, at_ms=3)
    registry.put("channel", "c", "rate_hz", 1.0, at_ms=4)
    assert {known.subject for known in registry.select("channel", now_ms=4)} == {"a", "c"}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_finite_number_is_left_out(value: float) -> None:
    registry = MeasurementRegistry()
    registry.put("channel", "a", "rate_hz", value, at_ms=1)
    assert len(registry) == 0


def test_a_registry_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value, got 0"):
        MeasurementRegistry(limit=0)


def test_a_subject_of_several_parts_tells_them_apart() -> None:
    assert subject_of("uav/imagery") == "uav/imagery"
    assert subject_of("uav/#", "a > 1", "") == '["uav/#","a > 1",""]'
    assert subject_of("a", "b c") != subject_of("a b", "c")
    assert parts_of(subject_of("uav/#", 'name = "x"', "")) == ["uav/#", 'name = "x"', ""]
