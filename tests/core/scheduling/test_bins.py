from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.units import IMPORTANCES
from accord.core.scheduling.lanes import BINS, CostEstimate, bin_of


def test_more_important_is_better_and_light_before_heavy() -> None:
    order = [bin_of(importance, mean, 8) for importance in range(IMPORTANCES) for mean in (9, 7)]
    assert order == list(range(BINS))
    assert bin_of(3, 8, 8) == 6, "light is below the limit"


def test_nothing_known_is_light_and_the_first_value_decides() -> None:
    learned = CostEstimate(1_000)
    assert (learned.is_light, learned.is_known, learned.bin(3)) == (True, False, 7)
    learned.add(4_000)
    assert (learned.mean, learned.is_light, learned.bin(3)) == (4_000, False, 6)


def test_near_the_limit_nothing_changes() -> None:
    light, heavy = CostEstimate(1_000), CostEstimate(1_000)
    light.add(900)
    heavy.add(1_100)
    for _ in range(50):
        for value in (800, 1_200):
            light.add(value)
            heavy.add(value)
    assert light.is_light
    assert not heavy.is_light


def test_what_has_clearly_changed_changes_its_bin() -> None:
    learned = CostEstimate(1_000)
    learned.add(100)
    for _ in range(30):
        learned.add(5_000)
    assert not learned.is_light
    for _ in range(30):
        learned.add(100)
    assert learned.is_light


@given(values=st.lists(st.integers(0, 10**9), min_size=1))
def test_a_mean_lies_between_the_extremes(values: list[int]) -> None:
    learned = CostEstimate(1_000)
    for value in values:
        learned.add(value)
    slack = 1e-6 * max(values)
    assert min(values) - slack <= learned.mean <= max(values) + slack
