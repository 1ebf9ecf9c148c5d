"""Sets of values compared with one set of numbers, all at once.

What is asked about an attribute mostly is numbers. Of each set there are the pieces that are ranges
of numbers, as columns: which of them lie around, within or across what is asked tells how the set
relates to it. Where floats can't hold a bound, or something else is asked, sets are compared one by
one.
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
    """Of sets that do not change, each with a number."""

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
        """The numbers of related sets; None where they have to be compared one by one."""
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
        """How many pieces of each set are related."""
        holds = ask_spans(relation, asking, NUMBERS).holds(self._low, self._high)
        return np.bincount(self._owner[holds], minlength=len(self._codes))
