from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.estimator import HORIZON_MS, SILENT, Rate, RateEstimator

BATCH_MS = 500


class Traffic:
    """Batches at a rate that may change; `jitter` gives the events of a batch."""

    def __init__(self) -> None:
        self.now_ms = 1_763_300_000_000
        self.estimator = RateEstimator()
        self._owed = 0.0

    def run(self, rate_hz: float, seconds: float) -> Rate:
        for _ in range(round(seconds * 1_000 / BATCH_MS)):
            self.now_ms += BATCH_MS
            self._owed += rate_hz * BATCH_MS / 1_000
            events = int(self._owed)
            self._owed -= events
            if events:
                since_ms = self.now_ms - BATCH_MS
                self.estimator.add(since_ms, self.now_ms, events, 100 * events)
            self.estimator.check_invariants()
        return self.estimator.rate(self.now_ms)


def test_young_traffic_is_not_divided_by_the_time_before_it() -> None:
    traffic = Traffic()
    assert traffic.estimator.rate(traffic.now_ms) == SILENT
    rate = traffic.run(60, 5)
    assert rate.hz == pytest.approx(60, rel=0.15)
    assert rate.bytes_per_s == pytest.approx(6_000, rel=0.15)
    assert 60 <= rate.bound_hz < 90


@pytest.mark.parametrize(("before_hz", "after_hz"), [(0.1, 60), (5, 60), (1_000, 10_000)])
def test_a_step_is_followed_within_seconds(before_hz: float, after_hz: float) -> None:
    traffic = Traffic()
    traffic.run(before_hz, 600)
    rate = traffic.run(after_hz, 4)
    assert rate.hz == pytest.approx(after_hz, rel=0.2)
    assert rate.bound_hz >= 0.95 * after_hz
    rate = traffic.run(after_hz, 60)
    assert rate.hz == pytest.approx(after_hz, rel=0.05)
    assert after_hz <= rate.bound_hz <= 1.2 * after_hz


def test_a_drop_is_followed_within_seconds_and_the_bound_half_a_minute_later() -> None:
    traffic = Traffic()
    traffic.run(60, 600)
    rate = traffic.run(1, 8)
    assert rate.hz < 6
    assert rate.bound_hz > 30
    assert traffic.run(1, 40).bound_hz < 5


def test_silence_decays_until_nothing_is_left() -> None:
    traffic = Traffic()
    traffic.run(60, 60)
    assert traffic.run(0, 5).hz < 6
    assert traffic.run(0, 60).hz < 0.5
    assert traffic.run(0, HORIZON_MS / 1_000) == SILENT


def test_rare_events_have_a_steady_rate() -> None:
    traffic = Traffic()
    traffic.run(0.05, 900)
    rates = [traffic.run(0.05, 1).hz for _ in range(60)]
    assert max(rates) < 0.1
    assert min(rates) > 0.02


def test_random_events_seldom_exceed_the_bound() -> None:
    random, traffic = Random(7), Traffic()  # noqa: S311
    exceeded = looked = 0
    for second in range(1_200):
        count = sum(random.expovariate(1) < 0.2 for _ in range(100))  # about 18
        traffic.now_ms += 1_000
        traffic.estimator.add(traffic.now_ms - 1_000, traffic.now_ms, count, 0)
        if second > 10:
            looked += 1
            rate = traffic.estimator.rate(traffic.now_ms)
            exceeded += rate.bound_hz < 18.1
            assert rate.hz == pytest.approx(18.1, rel=0.5)
    assert exceeded < 0.05 * looked


@given(st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 1_000)), max_size=80))
def test_a_rate_is_within_its_bound_and_what_came(turns: list[tuple[int, int]]) -> None:
    estimator, now_ms = RateEstimator(), 1_000_000
    came: list[int] = []
    for after_ms, events in turns:
        now_ms += after_ms
        estimator.add(now_ms - min(after_ms, 500), now_ms, events, events)
        came.append(events)
        estimator.check_invariants()
        rate = estimator.rate(now_ms)
        assert rate.hz == rate.bytes_per_s <= rate.bound_hz
        assert rate.hz <= sum(came)
