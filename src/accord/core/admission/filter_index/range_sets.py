"""Compares many value sets with one set of numbers at once.

Most queries on an attribute are numeric. The numeric ranges of all sets are stored as columns;
which of them contain, lie within or intersect the query decides how each set is related. If floats
cannot represent a bound, or the query is not numeric, sets are compared one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accord.core.admission.filter_index.constraints import NUMBERS, Ints, Mask, ask_spans, exactly
from accord.core.admission.filter_index.patterns import Relation
from accord.core.model.values import Kind
from accord.core.predicates import value_sets
from accord.core.predicates.value_sets import ValueSet

_RANGES: Final = 64


def is_related(relation: Relation, asking: ValueSet, allowed: ValueSet) -> bool:
    if relation is Relation.COVERED:
        return (allowed - asking).is_empty
    if relation is Relation.COVERING:
        return (asking - allowed).is_empty
    return not (asking & allowed).is_empty


class RangeSets:
    """Numeric ranges of a fixed collection of sets, each with a code."""

    def __init__(self, numbered: Mapping[ValueSet, int]) -> None:
        self._codes: Ints = np.array(list(numbered.values()), dtype=np.int64)
        self._is_exact = True
        owner: list[int] = []
        low: list[float] = []
        high: list[float] = []
        only_numbers: list[bool] = []
        for place, allowed in enumerate(numbered):
            only_numbers.append(allowed.only_kind() is Kind.NUMBER)
            for bounds in allowed.ranges[Kind.NUMBER]:
                start, end = map(exactly, bounds)
                if start is None or end is None:
                    self._is_exact = False
                    continue
                owner.append(place)
                low.append(start)
                high.append(end)
        self._owner: Ints = np.array(owner, dtype=np.int64)
        self._low: NDArray[np.float64] = np.array(low)
        self._high: NDArray[np.float64] = np.array(high)
        self._only_numbers: Mask = np.array(only_numbers, dtype=np.bool_)
        self._counts: Ints = np.bincount(self._owner, minlength=len(numbered))

    def related(self, relation: Relation, asking: ValueSet) -> Ints | None:
        """Return the codes of related sets; None if they must be compared one by one."""
        if asking.only_kind() is not Kind.NUMBER or not self._is_exact:
            return None
        ranges = asking.ranges[Kind.NUMBER]
        if relation is Relation.COVERED:
            found = self._only_numbers & (self._hits(relation, asking) == self._counts)
        elif relation is Relation.INTERSECTING:
            found = self._hits(relation, asking) > 0
        elif len(ranges) > _RANGES:
            return None
        else:
            parts = [value_sets.of_kind(Kind.NUMBER, part) for part in ranges]
            found = np.logical_and.reduce([self._hits(relation, part) > 0 for part in parts])
        codes: Ints = self._codes[found]
        return codes

    def _hits(self, relation: Relation, asking: ValueSet) -> Ints:
        """Return the number of related ranges of each set."""
        holds = ask_spans(relation, asking, NUMBERS).holds(self._low, self._high)
        return np.bincount(self._owner[holds], minlength=len(self._codes))
