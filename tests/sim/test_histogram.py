from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.sim.delivery_oracle import Histogram


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_quantiles_are_right_to_one_in_a_hundred(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    found = histogram.quantile(share)
    assert found is not None
    assert abs(found - exact) <= exact / 64
    assert histogram.mean == pytest.approx(sum(values) / len(values))


def test_small_values_are_exact() -> None:
    histogram = Histogram()
    for value in range(1, 101):
        histogram.add(value)
    assert histogram.quantile(0.5) == 50
    assert histogram.quantile(0.99) == 99
    assert (histogram.least, histogram.most) == (1, 100)


def test_of_nothing_there_is_nothing() -> None:
    assert Histogram().quantile(0.5) is None
    assert Histogram().mean is None
