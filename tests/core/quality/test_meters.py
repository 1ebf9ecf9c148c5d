from __future__ import annotations

import pytest

from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.quality.mechanisms import RateFilter
from accord.core.quality.meters import ORDERED, UNORDERED, ChannelMeter, RateMeter, differs

S = 1_000_000


def test_a_rate_takes_some_time_and_some_events() -> None:
    meter = RateMeter(0)
    assert meter.rate_hz(60 * S) is None  # nothing was ever published
    meter.restart(0)
    meter.count = 3
    assert meter.rate_hz(3 * S) is None
    meter.count = 6
    assert meter.rate_hz(2 * S) is None
    assert meter.rate_hz(3 * S) == 2
    assert meter.rate_hz(4 * S) is None  # it begins anew
    meter.count = 1
    assert meter.rate_hz(33 * S) == pytest.approx(1 / 30)
    assert meter.rate_hz(63 * S) == 0


def test_small_differences_are_none() -> None:
    assert not differs(10, 11.9)
    assert not differs(10, 8.1)
    assert differs(10, 12.1)
    assert differs(10, 0)


def test_what_becomes_of_events_is_smoothed() -> None:
    counts = ChannelCounts("c")
    meter = ChannelMeter("c", counts)
    first = {each.property: (each.value, each.best) for each in meter.initial(ORDERED, None)}
    assert first == {"latency": (0, 0), "reliability": (100, None), "order": (ORDERED, None)}
    assert meter.sample(ORDERED, None) == []
    counts.count_delivered(3, 10, 100)
    counts.count_dropped(1, is_expired=False)
    latency, reliability = meter.sample(ORDERED, 100.0)
    assert (latency.value, latency.best) == (100, 1)
    assert (reliability.value, reliability.best) == (75, 100)
    counts.count_delivered(1, 10, 0)
    assert [each.value for each in meter.sample(ORDERED, None)] == [50, 87.5]
    counts.count_dropped(1, is_expired=True)
    assert [each.value for each in meter.sample(ORDERED, None)] == [50, 43.75]


def test_an_order_that_changes_is_measured_again() -> None:
    meter = ChannelMeter("c", ChannelCounts("c"))
    meter.initial(ORDERED, None)
    (order,) = meter.sample(UNORDERED, None)
    assert (order.property, order.value) == ("order", UNORDERED)
    assert meter.sample(UNORDERED, None) == []


def test_a_filter_keeps_its_rate() -> None:
    filter_ = RateFilter(4)
    passed = [at for at in range(0, 10_000_000, 90_000) if filter_.passes(at + 5 * S)]
    assert len(passed) == 40
    late = RateFilter(4)
    assert [late.passes(at) for at in (S, 9 * S, 9 * S + 1, 9 * S + 250_000)] == [
        True, True, False, True,
    ]  # fmt: skip
