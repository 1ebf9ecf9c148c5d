from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.quality.costs import (
    ConstantCost,
    Cost,
    LinearCost,
    TableCost,
    cheapest,
    check_cost,
    cost_at,
    table_positions,
)
from accord.core.quality.properties import PropertyRegistry, QualityError

RATE = PropertyRegistry().get("rate")
TRUST = PropertyRegistry().get("trust")
TABLE = TableCost(((1.0, 10.0), (5.0, 2.0), (9.0, 6.0)))
PLACES = [1.0, 5.0, 9.0]


def test_the_forms() -> None:
    assert cost_at(ConstantCost(3.0), 7.0, []) == 3.0
    assert cost_at(LinearCost(1.0, 0.5), 4.0, []) == 3.0
    assert [cost_at(TABLE, at, PLACES) for at in (0.0, 1.0, 3.0, 5.0, 7.0, 9.0, 99.0)] == [
        10.0,
        10.0,
        6.0,
        2.0,
        4.0,
        6.0,
        6.0,
    ]
    levels = TableCost((("low", 1.0), ("high", 5.0)))
    assert cost_at(levels, TRUST.position("medium"), table_positions(levels, TRUST)) == 3.0
    assert math.isfinite(cost_at(LinearCost(0.0, 1.0), math.inf, []))


def test_the_cheapest_value_of_a_range() -> None:
    assert cheapest(TABLE, 2.0, 8.0, PLACES, preferred=2.0) == (5.0, 2.0)
    assert cheapest(LinearCost(0.0, 1.0), 2.0, math.inf, [], preferred=2.0) == (2.0, 2.0)
    assert cheapest(LinearCost(9.0, -1.0), 2.0, 8.0, [], preferred=2.0) == (8.0, 1.0)
    assert cheapest(ConstantCost(4.0), 2.0, 8.0, [], preferred=3.0) == (3.0, 4.0)
    assert cheapest(LinearCost(0.0, 1.0), 2.0, 8.0, [], preferred=3.0) == (2.0, 2.0)
    assert cheapest(LinearCost(8.0, -1.0), 2.0, 8.0, [], preferred=3.0) == (8.0, 0.0)
    endless, cost = cheapest(LinearCost(0.0, 1.0), math.inf, math.inf, [], preferred=math.inf)
    assert math.isinf(endless)
    assert math.isfinite(cost)


@given(
    st.sampled_from((ConstantCost(1.0), LinearCost(3.0, -0.25), LinearCost(0.0, 2.0), TABLE)),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_nothing_in_the_range_is_cheaper(cost: Cost, one: int, other: int) -> None:
    low, high = sorted((float(one), float(other)))
    places = table_positions(cost, RATE)
    position, least = cheapest(cost, low, high, places, preferred=low)
    assert low <= position <= high
    assert least == cost_at(cost, position, places)
    steps = [low + (high - low) * share / 48 for share in range(49)]
    assert all(cost_at(cost, each, places) >= least - 1e-9 for each in steps)


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        (ConstantCost(math.nan), "p: cost: expected numbers up to"),
        (LinearCost(0.0, math.inf), "p: cost: expected numbers up to"),
        (TableCost(()), "p: cost: expected 1 to 256 points, got 0"),
        (
            TableCost(((2.0, 1.0), (2.0, 1.0))),
            "p: cost: expected ascending values, got 2 out of order",
        ),
        (TableCost(((2.0, math.nan),)), "p: cost: expected numbers"),
        (TableCost((("low", 1.0),)), "rate: expected a number"),
    ],
)
def test_costs_that_say_nothing(cost: Cost, problem: str) -> None:
    with pytest.raises(QualityError, match=problem):
        check_cost(cost, RATE, "p")
