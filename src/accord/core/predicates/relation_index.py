"""Covering and intersection of one predicate with many, without comparing each of them.

Every attribute has columns of bounds: the predicates that limit it to one kind of value, and their
bounds. Bounds are stored as floats by a monotonic mapping (for strings, their first six bytes), so
whole columns are compared at once and what fails there can't be related. The rest is compared one
by one, except if a predicate consists only of ranges of numbers that floats hold exactly: then the
columns are conclusive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accord.core.model.values import Kind
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.relations import MAX_SIDES, covers_terms, intersects_terms
from accord.core.predicates.terms import Term, to_terms
from accord.core.predicates.value_sets import Bound, ValueSet

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FEW_DEAD: Final = 1_024
_PREFIX_BYTES: Final = 6

Mask = NDArray[np.bool_]


class Related(NamedTuple):
    """Keys of predicates that are certainly related, and of those for which it is unknown.

    Predicates that are related only because one of the two matches nothing at all, which its
    conditions do not show, are in neither list.
    """

    yes: list[Hashable]
    unknown: list[Hashable]


@dataclass(slots=True)
class _Limit:
    """A predicate's limits on one attribute, if all of one kind, as floats."""

    name: str
    kind: Kind
    low: float
    high: float


@dataclass(slots=True)
class _Row:
    key: Hashable
    terms: list[Term]
    limits: list[_Limit]
    is_plain: bool  # only ranges of numbers that floats hold

    @property
    def is_exact(self) -> bool:
        return bool(self.terms) and all(term.is_exact for term in self.terms)

    @property
    def names(self) -> set[str]:
        return {name for term in self.terms for name in term.sets}


@dataclass(slots=True)
class _Column:
    """The limits of all rows on one attribute and kind."""

    rows: _Vector = field(default_factory=lambda: _Vector(np.int64))
    low: _Vector = field(default_factory=lambda: _Vector(np.float64))
    high: _Vector = field(default_factory=lambda: _Vector(np.float64))


class _Vector:
    """A numpy array that grows."""

    __slots__ = ("_array", "size")

    def __init__(self, kind: type) -> None:
        self._array: NDArray[Any] = np.empty(16, dtype=kind)
        self.size = 0

    def append(self, value: float) -> None:
        if self.size == len(self._array):
            self._array = np.resize(self._array, 2 * self.size)
        self._array[self.size] = value
        self.size += 1

    @property
    def all(self) -> NDArray[Any]:
        return self._array[: self.size]


class Relations:
    """Predicates under keys of the caller's choice, to be compared with another one."""

    def __init__(self, most_sides: int = MAX_SIDES) -> None:
        self._most_sides = most_sides
        self._clear()

    def _clear(self) -> None:
        self._rows: list[_Row] = []
        self._numbers: dict[Hashable, int] = {}
        self._columns: dict[tuple[str, Kind], _Column] = {}
        self._kinds_of: dict[str, set[Kind]] = {}
        self._is_alive = _Vector(np.bool_)
        self._is_plain = _Vector(np.bool_)
        self._is_void = _Vector(np.bool_)  # matches nothing, so is covered by everything
        self._is_exact = _Vector(np.bool_)
        self._limit_counts = _Vector(np.int64)
        self._mentions: dict[str, _Vector] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._numbers

    def add(self, key: Hashable, predicate: Predicate) -> None:
        if key in self._numbers:
            raise ValueError(f"key {key!r} is registered already")
        self._append(_row(key, predicate))

    def remove(self, key: Hashable) -> None:
        """Removes `key`; KeyError if it is not registered."""
        number = self._numbers.pop(key)
        self._is_alive.all[number] = False
        dead = len(self._rows) - len(self._numbers)
        if dead > max(_FEW_DEAD, len(self._numbers)):
            kept = [self._rows[number] for number in self._numbers.values()]
            self._clear()
            for row in kept:
                self._append(row)

    def covering(self, predicate: Predicate) -> Related:
        """Predicates that match whatever `predicate` matches."""
        asked = _row(None, predicate)
        satisfied = np.zeros(len(self._rows), dtype=np.int64)
        for limit in asked.limits:
            column = self._columns.get((limit.name, limit.kind))
            if column is not None:
                around = (column.low.all <= limit.low) & (column.high.all >= limit.high)
                satisfied[column.rows.all[around]] += 1
        candidates = satisfied == self._limit_counts.all
        if not asked.terms:
            candidates[:] = True
        return self._classify(
            asked, candidates, lambda row: covers_terms(row.terms, asked.terms, self._most_sides)
        )

    def covered_by(self, predicate: Predicate) -> Related:
        """Predicates that match only what `predicate` matches."""
        asked = _row(None, predicate)
        candidates = np.ones(len(self._rows), dtype=np.bool_)
        for limit in asked.limits:
            inside = np.zeros(len(self._rows), dtype=np.bool_)
            column = self._columns.get((limit.name, limit.kind))
            if column is not None:
                within = (column.low.all >= limit.low) & (column.high.all <= limit.high)
                inside[column.rows.all[within]] = True
            candidates &= inside
        candidates |= self._is_void.all
        return self._classify(
            asked, candidates, lambda row: covers_terms(asked.terms, row.terms, self._most_sides)
        )

    def intersecting(self, predicate: Predicate) -> Related:
        """Predicates that can match an event together with `predicate`."""
        asked = _row(None, predicate)
        candidates = np.ones(len(self._rows), dtype=np.bool_)
        for limit in asked.limits:
            for rows in self._disjoint(limit, is_plain=asked.is_plain):
                candidates[rows] = False
        strangers = self._is_exact.all & asked.is_exact
        for name in asked.names & self._mentions.keys():
            strangers[self._mentions[name].all] = False
        return self._classify(
            asked, candidates, lambda row: intersects_terms(row.terms, asked.terms), strangers
        )

    def _append(self, row: _Row) -> None:
        number = self._numbers[row.key] = len(self._rows)
        self._rows.append(row)
        self._is_alive.append(True)
        self._is_plain.append(row.is_plain)
        self._is_void.append(not row.terms)
        self._is_exact.append(row.is_exact)
        self._limit_counts.append(len(row.limits))
        for name in row.names:
            self._mentions.setdefault(name, _Vector(np.int64)).append(number)
        for limit in row.limits:
            column = self._columns.setdefault((limit.name, limit.kind), _Column())
            self._kinds_of.setdefault(limit.name, set()).add(limit.kind)
            column.rows.append(number)
            column.low.append(limit.low)
            column.high.append(limit.high)

    def _disjoint(self, limit: _Limit, *, is_plain: bool) -> Iterator[NDArray[np.int64]]:
        """Rows that allow nothing of what `limit` allows."""
        for kind in self._kinds_of.get(limit.name, ()):
            column = self._columns[limit.name, kind]
            rows, low, high = column.rows.all, column.low.all, column.high.all
            if kind is not limit.kind:
                yield rows
                continue
            apart = (high < limit.low) | (low > limit.high)
            if is_plain:
                apart |= ((high == limit.low) | (low == limit.high)) & self._is_plain.all[rows]
            yield rows[apart]

    def _classify(
        self,
        subject: _Row,
        candidates: Mask,
        compare: Callable[[_Row], bool | None],
        known: Mask | None = None,
    ) -> Related:
        """Sorts `candidates` by what is `known` of them already, or else by comparison."""
        candidates &= self._is_alive.all
        if known is None:
            known = np.zeros(len(candidates), dtype=np.bool_)
        if subject.is_plain:
            known |= self._is_plain.all
        found = Related([], [])
        found.yes.extend(self._rows[number].key for number in np.flatnonzero(candidates & known))
        for number in np.flatnonzero(candidates & ~known):
            row = self._rows[number]
            answer = compare(row)
            if answer is not False:
                (found.yes if answer else found.unknown).append(row.key)
        return found


def _row(key: Hashable, predicate: Predicate) -> _Row:
    terms = to_terms(predicate.tree)
    names = set(terms[0].sets).intersection(*(term.sets for term in terms)) if terms else set()
    limits: list[_Limit] = []
    is_plain = len(terms) == 1 and terms[0].is_exact
    for name in sorted(names):
        allowed = reduce(ValueSet.__or__, (term.sets[name] for term in terms))
        kind = allowed.only_kind()
        if kind is None:
            is_plain = False
            continue
        low, high = allowed.ranges[kind][0][0], allowed.ranges[kind][-1][1]
        limits.append(_Limit(name, kind, _image(low), _image(high)))
        is_plain &= kind is Kind.NUMBER and len(allowed.ranges[kind]) == 1
        is_plain = is_plain and _is_exact(low) and _is_exact(high)
    return _Row(key, terms, limits, is_plain)


def _image(bound: Bound | None) -> float:
    """A float for `bound`; the mapping is monotonic."""
    if bound is None:
        return math.inf
    if isinstance(bound, str):
        first = bound[:_PREFIX_BYTES].encode()[:_PREFIX_BYTES]
        return float(int.from_bytes(first.ljust(_PREFIX_BYTES, b"\0")))
    if isinstance(bound, datetime):
        return (bound - _EPOCH).total_seconds()
    return float(bound)


def _is_exact(bound: Bound | None) -> bool:
    return bound is None or float(bound) == bound
