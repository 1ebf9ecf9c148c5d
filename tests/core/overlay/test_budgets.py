from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.overlay.budgets import (
    Budget,
    Budgets,
    Hop,
    differentiated_shares,
    equal_shares,
    margin_us,
    rank_shares,
)

ROUTE = [Hop(20_000, 1_000), Hop(30_000, 3_000), Hop(10_000, 0)]


def test_the_margin_is_what_hops_leave_of_the_maximum_delay() -> None:
    assert margin_us(100_000, ROUTE) == 40_000
    assert margin_us(50_000, ROUTE) == -10_000


def test_an_event_that_was_held_up_has_less_for_the_hops_ahead() -> None:
    assert margin_us(100_000, ROUTE[1:], age_us=20_000) == 40_000
    assert margin_us(100_000, ROUTE[1:], age_us=45_000) == 15_000


def test_each_hop_has_the_same_share() -> None:
    assert equal_shares(30_000, 3) == [10_000, 10_000, 10_000]
    assert equal_shares(10, 4) == [3, 3, 2, 2]
    assert equal_shares(-10, 4) == [-2, -2, -3, -3]


def test_or_more_where_delays_vary_more() -> None:
    assert differentiated_shares(40_000, ROUTE) == [10_000, 30_000, 0]


def test_where_nothing_varies_and_where_nothing_is_left_shares_are_equal() -> None:
    assert differentiated_shares(30, [Hop(5), Hop(6), Hop(7)]) == [10, 10, 10]
    assert differentiated_shares(-30, ROUTE) == [-10, -10, -10]


def test_a_route_has_hops() -> None:
    with pytest.raises(ValueError, match="expected at least one hop, got 0"):
        equal_shares(10, 0)
    with pytest.raises(ValueError, match="expected at least one hop, got 0"):
        differentiated_shares(10, [])


def test_at_a_node_the_least_share_goes_first() -> None:
    shares_us = {("seattle", 2): 9_000, ("orlando", 1): 4_000, ("seattle", 1): 4_000}
    budgets = rank_shares(shares_us, step_us=500)
    assert list(budgets.items()) == [
        (("orlando", 1), Budget(1, 4_000, 4_500)),
        (("seattle", 1), Budget(2, 4_000, 5_000)),
        (("seattle", 2), Budget(3, 9_000, 5_500)),
    ]
    assert rank_shares({}) == {}


def test_budgets_follow_what_changes() -> None:
    budgets = Budgets(step_us=100)
    assert budgets.get(("a", 1)) is None
    budgets.set(("a", 1), 5_000)
    budgets.set(("b", 1), 3_000)
    assert budgets.get(("a", 1)) == Budget(2, 5_000, 3_200)
    budgets.set(("a", 1), -2_000)
    assert budgets.get(("a", 1)) == Budget(1, -2_000, -1_900)
    assert budgets.get(("b", 1)) == Budget(2, 3_000, -1_800)
    budgets.drop(("a", 1))
    budgets.drop(("a", 7))
    assert budgets.get(("b", 1)) == Budget(1, 3_000, 3_100)
    budgets.check_invariants()


def test_steps_go_forward() -> None:
    with pytest.raises(ValueError, match="step_us: expected at least 0, got -1"):
        Budgets(-1)


@given(
    st.integers(-1_000_000, 1_000_000),
    st.lists(st.builds(Hop, st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1),
)
def test_shares_add_up_to_the_margin(margin: int, hops: list[Hop]) -> None:
    equal = equal_shares(margin, len(hops))
    assert sum(equal) == margin
    assert max(equal) - min(equal) <= 1
    differentiated = differentiated_shares(margin, hops)
    assert sum(differentiated) == margin
    total_us = sum(hop.deviation_us for hop in hops)
    if margin > 0 and total_us:
        for hop, share_us in zip(hops, differentiated, strict=True):
            assert abs(share_us - margin * hop.deviation_us / total_us) <= 1


@given(
    st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), st.integers(-99, 99)),
    st.integers(0, 50),
)
def test_less_share_means_less_budget(shares_us: dict[tuple[str, int], int], step_us: int) -> None:
    budgets = Budgets(step_us)
    for key, share_us in shares_us.items():
        budgets.set(key, share_us)
    budgets.check_invariants()
    everything = list(budgets.all().items())
    assert all(budgets.get(key) == budget for key, budget in everything)
    for (key, earlier), (other, later) in pairwise(everything):
        assert (shares_us[key], key) < (shares_us[other], other)
        assert later.budget_us - earlier.budget_us == step_us
    if everything:
        assert everything[0][1].budget_us == min(shares_us.values()) + step_us
