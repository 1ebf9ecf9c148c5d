"""Delays have the distribution that they are named after."""

from __future__ import annotations

import statistics

import pytest

from accord.sim.clock import stream
from accord.sim.delays import Constant, Delay, Lognormal, Normal, Recorded, Uniform
from accord.sim.trace import SimulationError


def draws(delay: Delay, count: int = 4_000, now_us: int = 0) -> list[int]:
    random = stream(1, "test")
    return [delay.draw(random, now_us) for _ in range(count)]


def test_constant() -> None:
    assert set(draws(Constant(5_000), 10)) == {5_000}


def test_uniform_is_even_and_within_its_bounds() -> None:
    drawn = draws(Uniform(1_000, 3_000))
    assert 1_000 <= min(drawn) < 1_010
    assert 2_990 < max(drawn) <= 3_000
    assert abs(statistics.fmean(drawn) - 2_000) < 40


def test_normal_has_its_mean_and_deviation_and_is_never_negative() -> None:
    drawn = draws(Normal(10_000, 1_000))
    assert abs(statistics.fmean(drawn) - 10_000) < 100
    assert abs(statistics.stdev(drawn) - 1_000) < 100
    assert min(draws(Normal(1_000, 5_000))) == 100


def test_lognormal_has_its_median_and_a_long_tail() -> None:
    drawn = sorted(draws(Lognormal(10_000, 0.5)))
    assert abs(drawn[len(drawn) // 2] - 10_000) < 500
    assert statistics.fmean(drawn) > 10_800
    assert min(drawn) > 0


def test_recorded_delays_are_drawn_by_chance() -> None:
    drawn = draws(Recorded((100, 200, 700)), 300)
    assert set(drawn) == {100, 200, 700}
    assert 60 < drawn.count(700) < 140


def test_recorded_delays_are_replayed_in_their_order() -> None:
    delay = Recorded((100, 200, 700), step_us=1_000)
    random = stream(1, "test")
    seen = [delay.draw(random, now_us) for now_us in (0, 999, 1_000, 2_500, 3_000)]
    assert seen == [100, 100, 200, 700, 100]


@pytest.mark.parametrize(
    "make", [lambda: Uniform(2, 1), lambda: Recorded(()), lambda: Recorded((-1,))]
)
def test_impossible_delays_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(SimulationError, match="expected"):
        make()


@pytest.mark.parametrize(
    ("delay", "typical_us"),
    [
        (Constant(5), 5),
        (Uniform(2, 8), 5),
        (Normal(7, 3), 7),
        (Lognormal(9, 1.0), 9),
        (Recorded((9, 1, 4)), 4),
    ],
)
def test_each_has_a_typical_delay(delay: Delay, typical_us: int) -> None:
    assert delay.typical_us == typical_us
