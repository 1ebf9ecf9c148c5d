"""What it costs a publisher to operate at a value: one of three forms, as data.

A constant, a line, or a table of (value, cost) between which costs are interpolated and beyond
which they stay as at its ends. `at` of a line is the value itself, for levels their number from 0.
All are linear piece by piece, so the cheapest value of a range is at one of its ends or at a value
of the table.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

from accord.core.quality.errors import QualityError
from accord.core.quality.properties import MAX_NUMBER, Property, Value, shown

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
    """Raises QualityError where `cost` says nothing, or is no number, for some value."""
    if isinstance(cost, TableCost):
        _check_table(cost, property_, place)
        return
    numbers = (cost.cost,) if isinstance(cost, ConstantCost) else (cost.base, cost.slope)
    for number in numbers:
        if not abs(number) <= MAX_NUMBER:
            problem = f"cost: expected numbers up to {shown(MAX_NUMBER)}, got {shown(number)}"
            raise QualityError(place, problem)


def places_of(cost: Cost, property_: Property) -> list[float]:
    """Where the values of a table are in the property's domain."""
    if not isinstance(cost, TableCost):
        return []
    return [property_.position(value) for value, _ in cost.points]


def cost_at(cost: Cost, position: float, places: list[float]) -> float:
    """Of operating where `position` is in the property's domain; never infinite.

    `places` are those of the table.
    """
    if isinstance(cost, ConstantCost):
        return cost.cost
    position = min(max(position, -MAX_NUMBER), MAX_NUMBER)
    if isinstance(cost, LinearCost):
        return cost.base + cost.slope * position
    after = bisect_right(places, position)
    if after == 0:
        return cost.points[0][1]
    if after == len(places):
        return cost.points[-1][1]
    (_, low), (_, high) = cost.points[after - 1 : after + 1]
    share = (position - places[after - 1]) / (places[after] - places[after - 1])
    return low + share * (high - low)


def cheapest(
    cost: Cost, low: float, high: float, places: list[float], *, preferred: float
) -> tuple[float, float]:
    """The position from `low` to `high` that costs least, and what: at a tie the preferred one."""
    if isinstance(cost, ConstantCost):
        return preferred, cost.cost
    candidates = [preferred, high if preferred == low else low]
    if preferred not in (low, high):
        candidates.append(high)
    candidates += places[bisect_left(places, low) : bisect_right(places, high)]
    finite = [each for each in candidates if math.isfinite(each)] or [preferred]
    costs = [(cost_at(cost, each, places), number) for number, each in enumerate(finite)]
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
