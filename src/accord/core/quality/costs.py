"""Cost functions: what it costs a publisher to operate at a value, as data.

A cost is a constant, a line, or a table of (value, cost) pairs, interpolated between them and
constant beyond the ends. `at` of a line is the value itself, or the number of a level, from 0. All
forms are piecewise linear, so the cheapest value of a range is at one of its ends or at a value of
the table.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

from accord.core.quality.properties import MAX_NUMBER, Property, QualityError, Value, shown

MAX_POINTS: Final = 256


class ConstantCost(msgspec.Struct, frozen=True, array_like=True, tag="constant"):
    cost: float = 0.0


class LinearCost(msgspec.Struct, frozen=True, array_like=True, tag="linear"):
    base: float
    slope: float


class TableCost(msgspec.Struct, frozen=True, array_like=True, tag="table"):
    points: tuple[tuple[Value, float], ...]


Cost = ConstantCost | LinearCost | TableCost
FREE: Final = ConstantCost()


def check_cost(cost: Cost, property_: Property, place: str) -> None:
    """Raises QualityError if `cost` is undefined or not a number for some value."""
    if isinstance(cost, TableCost):
        _check_table(cost, property_, place)
        return
    numbers = (cost.cost,) if isinstance(cost, ConstantCost) else (cost.base, cost.slope)
    for number in numbers:
        if not abs(number) <= MAX_NUMBER:
            problem = f"cost: expected numbers up to {shown(MAX_NUMBER)}, got {shown(number)}"
            raise QualityError(place, problem)


def table_positions(cost: Cost, property_: Property) -> list[float]:
    """Positions of a table's values in the property's domain."""
    if not isinstance(cost, TableCost):
        return []
    return [property_.position(value) for value, _ in cost.points]


def cost_at(cost: Cost, position: float, positions: list[float]) -> float:
    """Cost of operating at `position` in the property's domain; never infinite.

    `positions` are the positions of the table's values.
    """
    if isinstance(cost, ConstantCost):
        return cost.cost
    position = min(max(position, -MAX_NUMBER), MAX_NUMBER)
    if isinstance(cost, LinearCost):
        return cost.base + cost.slope * position
    after = bisect_right(positions, position)
    if after == 0:
        return cost.points[0][1]
    if after == len(positions):
        return cost.points[-1][1]
    (_, low), (_, high) = cost.points[after - 1 : after + 1]
    share = (position - positions[after - 1]) / (positions[after] - positions[after - 1])
    return low + share * (high - low)


def cheapest(
    cost: Cost, low: float, high: float, positions: list[float], *, preferred: float
) -> tuple[float, float]:
    """The cheapest position from `low` to `high` and its cost; ties go to `preferred`."""
    if isinstance(cost, ConstantCost):
        return preferred, cost.cost
    candidates = [preferred, high if preferred == low else low]
    if preferred not in (low, high):
        candidates.append(high)
    candidates += positions[bisect_left(positions, low) : bisect_right(positions, high)]
    finite = [each for each in candidates if math.isfinite(each)] or [preferred]
    costs = [(cost_at(cost, each, positions), number) for number, each in enumerate(finite)]
    least, number = min(costs)
    return finite[number], least


def _check_table(table: TableCost, property_: Property, place: str) -> None:
    if not 1 <= len(table.points) <= MAX_POINTS:
        count = len(table.points)
        raise QualityError(place, f"cost: expected 1 to {MAX_POINTS} points, got {count}")
    last = -math.inf
    for value, cost in table.points:
        position = property_.position(value)
        if not position > last or not math.isfinite(position):
            problem = f"cost: expected ascending values, got {shown(value)} out of order"
            raise QualityError(place, problem)
        if not abs(cost) <= MAX_NUMBER:
            problem = f"cost: expected numbers up to {shown(MAX_NUMBER)}, got {shown(cost)}"
            raise QualityError(place, problem)
        last = position
