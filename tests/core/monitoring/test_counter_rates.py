from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.monitoring.series import SAMPLES, CounterRates, wait_quantile_ms


def test_rates_are_those_of_the_last_looks() -> None:
    meter = CounterRates(0, (0, 100))
    assert meter.rates() == [0, 0]
    meter.add(1_000, (10, 100))
    assert meter.rates() == [10, 0]
    for second in range(2, 6):
        meter.add(second * 1_000, (10, 100 + second))
    assert meter.rates() == [0, 1]
    assert meter.last == (10, 105)


def test_what_was_begun_anew_has_no_rate() -> None:
    meter = CounterRates(0, (50,))
    meter.add(1_000, (3,))
    assert meter.rates() == [0]


def test_a_clock_that_stands_gives_no_rate() -> None:
    meter = CounterRates(5, (0,))
    meter.add(5, (3,))
    assert meter.rates() == [0]


def test_idle_is_what_has_not_changed_for_a_while() -> None:
    meter = CounterRates(0, (1,))
    meter.add(1, (2,))
    for look in range(SAMPLES - 1):
        assert not meter.is_idle
        meter.add(2 + look, (2,))
    assert not meter.is_idle
    meter.add(9, (2,))
    assert meter.is_idle


def test_no_waits_have_no_quantile() -> None:
    assert wait_quantile_ms([0] * 18, 0.5) is None


@given(st.lists(st.integers(0, 500_000), min_size=1), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(waits: list[int], share: float) -> None:
    counts = ChannelCounts("a")
    for wait_ms in waits:
        counts.count_wait(wait_ms)
    true_ms = sorted(waits)[max(-int(-share * len(waits) // 1) - 1, 0)]
    found = wait_quantile_ms(counts.wait_counts, share)
    assert found is not None
    low = 1 << (min(true_ms.bit_length(), 17) - 1) if true_ms else 0
    assert low <= found <= max(2 * low, 0)


@pytest.mark.parametrize(
    ("counts", "expected"), [([0, 4], 1.5), ([4], 0), ([0, 0, 10], 3), ([9, 0, 1], 0)]
)
def test_between_the_bounds(counts: list[int], expected: float) -> None:
    assert wait_quantile_ms(counts, 0.5) == expected
