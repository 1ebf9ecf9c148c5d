"""Constraints of filters on one attribute as numbers in columns, and tests on such columns.

A constraint is stored as `low` and `high`. For a range of numbers, or of times in microseconds,
these are its bounds (`low <= value < high`) if floats represent them exactly; for any other set,
both are its code (`dictionary`). The kinds of constraints on one attribute use different slots, so
one is never taken for another.

A test on a constraint requires both numbers to lie between two bounds. Whole groups of constraints
are therefore decided by the minimum and maximum of their numbers, as with zone maps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accord.core.admission.filter_index.filters import EPOCH, MICROSECOND, microseconds
from accord.core.admission.filter_index.patterns import Relation
from accord.core.model.values import Kind
from accord.core.predicates import value_sets
from accord.core.predicates.value_sets import Bound, Range, ValueSet

NUMBERS: Final = "number"
TIMES: Final = "time"
CODED: Final = "set"
SLOTS: Final = (NUMBERS, TIMES, CODED)

_KINDS: Final = {NUMBERS: Kind.NUMBER, TIMES: Kind.TIMESTAMP}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Slot = tuple[str, str]  # an attribute and a kind of constraints


class NumericSpan(NamedTuple):
    """A range of numbers or times that floats represent exactly."""

    kind: str
    low: float
    high: float


def span_of(allowed: ValueSet) -> NumericSpan | None:
    """Return the span; None if the set is of another form and is stored by its code."""
    for name, kind in _KINDS.items():
        ranges = allowed.ranges[kind]
        if len(ranges) == 1 and allowed.only_kind() is kind:
            low, high = map(exactly, ranges[0])
            return None if low is None or high is None else NumericSpan(name, low, high)
    return None


def set_of(span: NumericSpan) -> ValueSet:
    """Return the value set of a span."""
    kind = _KINDS[span.kind]
    low, high = (_bound(kind, value) for value in (span.low, span.high))
    return value_sets.of_kind(kind, (low, high))


@dataclass(slots=True)
class ConstraintTest:
    """Tests that both numbers lie between inclusive bounds, and `check` if given."""

    low_from: float = -math.inf
    low_to: float = math.inf
    high_from: float = -math.inf
    high_to: float = math.inf
    check: Callable[[Floats, Floats], Mask] | None = None

    def holds(self, low: Floats, high: Floats) -> Mask:
        found = self._between((low, low), (high, high))
        return found if self.check is None else found & self.check(low, high)

    def may_hold(self, low: tuple[Floats, Floats], high: tuple[Floats, Floats]) -> Mask:
        """Check whether it can hold for some of a group, given the group's minima and maxima."""
        return self._between((low[1], low[0]), (high[1], high[0]))

    def must_hold(self, low: tuple[Floats, Floats], high: tuple[Floats, Floats]) -> Mask:
        """Check whether it holds for all of a group."""
        if self.check is not None:
            return np.zeros(low[0].shape, dtype=np.bool_)
        return self._between(low, high)

    def _between(self, low: tuple[Floats, Floats], high: tuple[Floats, Floats]) -> Mask:
        """Compare the first of each pair with the lower bound, the second with the upper."""
        found: Mask | None = None
        for (first, second), least, most in (
            (low, self.low_from, self.low_to),
            (high, self.high_from, self.high_to),
        ):
            if least > -math.inf:
                above = first >= least
                found = above if found is None else found & above
            if most < math.inf:
                below = second <= most
                found = below if found is None else found & below
        return np.ones(low[0].shape, dtype=np.bool_) if found is None else found


NEVER: Final = ConstraintTest(low_from=math.inf, low_to=-math.inf)


def ask_codes(codes: Ints) -> ConstraintTest:
    """Test whether a constraint's code is one of `codes`, ascending."""
    if not len(codes):
        return NEVER
    first, last = int(codes[0]), int(codes[-1])
    if last - first + 1 == len(codes):
        return ConstraintTest(first, last)
    table = np.zeros(last + 1, dtype=np.bool_)
    table[codes] = True

    def check(low: Floats, _: Floats) -> Mask:
        places = np.clip(low, 0, last).astype(np.int64)  # includes constraints of other slots
        return table.take(places)

    return ConstraintTest(first, last, check=check)


def ask_spans(relation: Relation, asking: ValueSet, kind: str) -> ConstraintTest:
    """Test whether a span of this kind is related to `asking`."""
    ranges = asking.ranges[_KINDS[kind]]
    if not ranges:
        return NEVER
    first, last = ranges[0][0], ranges[-1][1]
    if relation is Relation.COVERING:
        if asking.only_kind() is not _KINDS[kind]:
            return NEVER
        return ConstraintTest(low_to=_down(first), high_from=_up(last))
    if relation is Relation.COVERED:
        test = ConstraintTest(low_from=_up(first), high_to=_down(last))
        test.check = None if len(ranges) == 1 else _within(ranges)
    else:
        test = ConstraintTest(low_to=_below(last), high_from=_above(first))
        test.check = None if len(ranges) == 1 else _meeting(ranges)
    return test


def _within(ranges: tuple[Range, ...]) -> Callable[[Floats, Floats], Mask]:
    starts = np.array([_up(low) for low, _ in ranges])
    ends = np.array([_down(high) for _, high in ranges])
    assert all(a <= b for a, b in pairwise(starts))

    def check(low: Floats, high: Floats) -> Mask:
        places = np.searchsorted(starts, low, side="right") - 1
        inside: Mask = (places >= 0) & (high <= ends[np.maximum(places, 0)])
        return inside

    return check


def _meeting(ranges: tuple[Range, ...]) -> Callable[[Floats, Floats], Mask]:
    starts = np.array([_above(low) for low, _ in ranges])
    ends = np.array([_below(high) for _, high in ranges])

    def check(low: Floats, high: Floats) -> Mask:
        places = np.searchsorted(ends, low, side="left")
        last = len(ends) - 1
        meeting: Mask = (places <= last) & (high >= starts[np.minimum(places, last)])
        return meeting

    return check


def exactly(bound: Bound | None) -> float | None:
    if bound is None:
        return math.inf
    number = _number(bound)
    real = float(number)
    return real + 0.0 if real == number else None


def _bound(kind: Kind, value: float) -> Bound | None:
    if value == math.inf:
        return None
    if kind is Kind.TIMESTAMP:
        return EPOCH + int(value) * MICROSECOND
    return value


def _number(bound: Bound) -> float:
    return microseconds(bound) if isinstance(bound, datetime) else bound


def _down(bound: Bound | None) -> float:
    """Return the greatest float that is not greater."""
    if bound is None:
        return math.inf
    number = _number(bound)
    real = float(number)
    return real if real <= number else math.nextafter(real, -math.inf)


def _up(bound: Bound | None) -> float:
    """Return the least float that is not less."""
    if bound is None:
        return math.inf
    number = _number(bound)
    real = float(number)
    return real if real >= number else math.nextafter(real, math.inf)


def _below(bound: Bound | None) -> float:
    """Return the greatest float that is less; infinity without a bound."""
    if bound is None:
        return math.inf
    down = _down(bound)
    return math.nextafter(down, -math.inf) if down == _number(bound) else down


def _above(bound: Bound) -> float:
    """Return the least float that is greater."""
    up = _up(bound)
    return math.nextafter(up, math.inf) if up == _number(bound) else up
