"""Incremental skyline of vectors: those that no other vector dominates (k-skyband).

One vector *dominates* another if it is at least as good in all columns and better in one. With a
depth of k the skyline holds all vectors that fewer than k others dominate. That suffices for an
expectation of k publishers, because k others meet whatever a deeper vector meets. Equal vectors do
not dominate each other; they share a point.

Each point outside has *guards*: points of the skyline that dominate it and together make up the
depth. While they dominate it, a point outside may move without a comparison with all others; when a
guard leaves, only its *wards* are compared. A point that has no guards on the skyline belongs to
it: sort all its dominators so that a dominator precedes what it dominates; the first k are
dominated by fewer than k others, so they are on the skyline.

A point that was the best for long may have a thousand wards. Guards are therefore stored as columns
of row numbers, and wards that lose their guard are compared with the skyline in bulk.

Vectors of equal length as rows of a matrix, to compare one with all of them at once.

Each row has an owner. Free rows hold NaN, which is neither at least nor at most anything. Columns
are contiguous in memory: a comparison processes one after the other.

Points of a skyline: vectors with their keys, and comparison of vectors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from operator import ge
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from accord.core.quality.profiles import Vector

K = TypeVar("K", bound=Hashable)


class Point(Generic[K]):
    """Keys with the same vector, and their owners; several keys of one owner count once.

    `row` is a row of the skyline's table or of the table outside it.
    """

    __slots__ = ("is_inside", "keys", "row", "vector")

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.keys: dict[K, str] = {}
        self.is_inside = False
        self.row = -1


def at_least(one: Vector, other: Vector) -> bool:
    return all(map(ge, one, other))


def dominates(one: Vector, other: Vector) -> bool:
    return one != other and at_least(one, other)


_TOGETHER: Final = 32_768  # comparisons per batch, so that results stay in the CPU cache

T = TypeVar("T")
Mask = NDArray[np.bool_]


class VectorTable(Generic[T]):
    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.used = 0  # rows from here on were never used
        self._matrix = np.full((columns, _FIRST), np.nan)
        self._owners: list[T | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return self.used - len(self._free)

    def add(self, owner: T, vector: Vector) -> int:
        """Adds a vector; returns its row."""
        if self._free:
            row = self._free.pop()
            self._owners[row] = owner
        else:
            row = self.used
            self.used += 1
            self._owners.append(owner)
            if row == self._matrix.shape[1]:
                grown = np.full((self.columns, 2 * row), np.nan)
                grown[:, :row] = self._matrix
                self._matrix = grown
        self._matrix[:, row] = vector
        return row

    def change(self, row: int, vector: Vector) -> None:
        self._matrix[:, row] = vector

    def remove(self, row: int) -> None:
        self._matrix[:, row] = np.nan
        self._owners[row] = None
        self._free.append(row)

    def owner(self, row: int) -> T:
        found = self._owners[row]
        assert found is not None
        return found

    def at_least(self, vector: Vector, first: int = 0) -> Mask:
        """Rows at least as good in all columns of `vector`, which begins at column `first`."""
        mask: Mask = self._matrix[first, : self.used] >= vector[0]
        for column in range(1, len(vector)):
            mask &= self._matrix[first + column, : self.used] >= vector[column]
        return mask

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The vectors of these rows, column by column."""
        return self._matrix[:, rows]

    def rows_at_least(self, vectors: NDArray[np.float64], rotation: int) -> NDArray[np.int64]:
        """For each vector a row that is at least as good in all columns, or -1.

        `rotation` varies the choice among several.
        """
        # Used rows only: free ones may be in the majority.
        order = np.roll((~np.isnan(self._matrix[0, : self.used])).nonzero()[0], rotation)
        rows = self._matrix[:, order]
        found = np.full(vectors.shape[1], -1)
        step = max(1, _TOGETHER // len(order))
        for first in range(0, len(found), step):
            some = vectors[:, first : first + step, None]
            mask: Mask = np.greater_equal(rows[0], some[0])
            for column in range(1, self.columns):
                mask &= rows[column] >= some[column]
            places = mask.argmax(axis=1)
            is_met = mask[np.arange(len(places)), places]
            found[first : first + step][is_met] = order[places[is_met]]
        return found

    def are_at_most(self, vector: Vector, rows: NDArray[np.int64]) -> Mask:
        """Mask over these rows of those that are at most `vector`."""
        below = self._matrix[:, rows] <= np.array(vector)[:, None]
        mask: Mask = np.logical_and.reduce(below)
        return mask

    def at_most(self, vector: Vector) -> Mask:
        mask: Mask = self._matrix[0, : self.used] <= vector[0]
        for column in range(1, len(vector)):
            mask &= self._matrix[column, : self.used] <= vector[column]
        return mask

    def below(self, vector: Vector, first: int = 0) -> NDArray[np.int64]:
        """Number of columns of `vector` in which each row is worse; 0 for free rows."""
        part = self._matrix[first : first + len(vector), : self.used]
        counts: NDArray[np.int64] = (part < np.array(vector)[:, None]).sum(axis=0)
        return counts

    def first(self, mask: Mask, most: int) -> list[int]:
        """The first selected rows, up to `most`."""
        rows: list[int] = mask.nonzero()[0][:most].tolist()
        return rows

    def owners(self, mask: Mask) -> list[T]:
        return [self.owner(row) for row in np.flatnonzero(mask).tolist()]

    def check_invariants(self) -> None:
        assert len(self._owners) == self.used <= self._matrix.shape[1]
        free = set(self._free)
        assert len(free) == len(self._free)
        for row, owner in enumerate(self._owners):
            assert (owner is None) == (row in free)
            assert bool(np.isnan(self._matrix[:, row]).all()) == (row in free)


_FIRST: Final = 16  # points compared with the skyline one by one
_FEW: Final = 3
_NOBODY: Final = -1

Ints = NDArray[np.int64]


class Skyline(Generic[K]):
    def __init__(self, columns: int, depth: int = 1) -> None:
        assert columns >= 1
        assert depth >= 1
        self.depth = depth
        self.rotation = 0  # comparisons with the whole skyline
        self._points: dict[Vector, Point[K]] = {}
        self._by_key: dict[K, Point[K]] = {}
        self._band: VectorTable[Point[K]] = VectorTable(columns)
        self._outside: VectorTable[Point[K]] = VectorTable(columns)
        # By row outside: the rows of its guards, `depth` at most.
        self._guards: Ints = np.full((depth, 16), _NOBODY, np.int64)
        self._changed: dict[K, bool] = {}

    def __len__(self) -> int:
        """Number of keys, inside and outside."""
        return len(self._by_key)

    def __contains__(self, key: K) -> bool:
        """Whether `key` is on the skyline."""
        point = self._by_key.get(key)
        return point is not None and point.is_inside

    def vector(self, key: K) -> Vector:
        return self._by_key[key].vector

    def owned(self) -> Iterator[tuple[K, str]]:
        """All keys with their owners, inside and outside."""
        return ((key, point.keys[key]) for key, point in self._by_key.items())

    def members(self) -> dict[K, Vector]:
        return {key: p.vector for p in self._points.values() if p.is_inside for key in p.keys}

    def representatives(self) -> Iterator[K]:
        """Keys of the points on the skyline, at most `depth` of each point."""
        for point in self._points.values():
            if point.is_inside:
                yield from islice(point.keys, self.depth)

    def represents(self, key: K) -> bool:
        point = self._by_key.get(key)
        return point is not None and point.is_inside and key in islice(point.keys, self.depth)

    def points(self, least: Vector, first: int = 0) -> list[Point[K]]:
        """Points of the skyline at least as good as `least`, which begins at column `first`."""
        return self._band.owners(self._band.at_least(least, first))

    def points_outside(self, least: Vector) -> Iterator[Point[K]]:
        """Points outside at least as good as `least`; there may be many."""
        rows = self._outside.at_least(least).nonzero()[0]
        return (self._outside.owner(int(row)) for row in rows)

    @property
    def band(self) -> VectorTable[Point[K]]:
        """The points of the skyline."""
        return self._band

    def take_changes(self) -> list[K]:
        """Keys that entered, changed on or left the skyline since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def set(self, key: K, owner: str, vector: Vector) -> None:
        """Adds a key or changes its vector."""
        point = self._by_key.get(key)
        if point is None:
            self._attach(key, owner, vector)
        elif point.vector == vector:
            return
        elif len(point.keys) == 1 and vector not in self._points:
            self._move(point, vector)
        else:
            self._attach(key, owner, vector)
            self._detach(key, point)

    def set_all(self, added: Iterable[tuple[K, str, Vector]]) -> None:
        """Adds all keys at once to an empty skyline."""
        assert not self._by_key
        for key, owner, vector in added:
            self._add(key, owner, self._points.setdefault(vector, Point(vector)))
        for point in self._points.values():
            self._put_outside(point)
        self._assign_guards(np.arange(self._outside.used))

    def remove(self, key: K) -> None:
        self._detach(key, self._by_key[key])
        del self._by_key[key]

    # One point

    def _move(self, point: Point[K], vector: Vector) -> None:
        """Moves a point with one key to a vector that no other point has."""
        before = point.vector
        del self._points[before]
        self._points[vector] = point
        point.vector = vector
        if not point.is_inside:
            self._outside.change(point.row, vector)
            if not self._is_guarded(point):
                self._assign_guards(np.array([point.row]))
        elif at_least(vector, before):
            self._mark(point)
            self._band.change(point.row, vector)
        else:
            self._worsen(point)
        if point.is_inside:
            self._demote_below(point)

    def _worsen(self, point: Point[K]) -> None:
        """Handles a skyline point that got worse: wards it no longer dominates need new guards."""
        wards = self._leave(point)
        kept = self._outside.are_at_most(point.vector, wards)
        self._put_outside(point)
        # In one call: a former ward may dominate the point now.
        self._assign_guards(np.append(wards[~kept], point.row))
        self._guard_by(wards[kept], point)

    def _guard_by(self, wards: Ints, point: Point[K]) -> None:
        """Guards wards by `point`, or by its own guards if it is outside: those are sufficient.

        With a depth above one, `point` alone is not sufficient, so the wards are compared again.
        """
        if not len(wards):
            return
        if not point.is_inside:
            self._guards[:, wards] = self._guards[:, [point.row]]
        elif self.depth == 1:
            self._guards[0, wards] = point.row
        else:
            self._assign_guards(wards)

    def _attach(self, key: K, owner: str, vector: Vector) -> None:
        point = self._points.get(vector)
        if point is None:
            point = self._points[vector] = Point(vector)
            self._add(key, owner, point)
            self._put_outside(point)
            self._assign_guards(np.array([point.row]))
            is_more = point.is_inside
        else:
            self._add(key, owner, point)
            is_more = point.is_inside and self.depth > 1
        if is_more:
            self._demote_below(point)

    def _add(self, key: K, owner: str, point: Point[K]) -> None:
        point.keys[key] = owner
        self._by_key[key] = point
        if point.is_inside:
            self._changed[key] = True

    def _detach(self, key: K, point: Point[K]) -> None:
        """Removes `key` from `point`, and `point` if it was the last; the key may have moved on."""
        if point.is_inside:
            self._changed[key] = True
            # One of these now represents the point.
            self._changed.update(dict.fromkeys(islice(point.keys, self.depth + 1), True))
        del point.keys[key]
        if point.keys:
            if self.depth > 1 and point.is_inside:
                self._assign_guards(self._wards(point))
            return
        del self._points[point.vector]
        if point.is_inside:
            self._assign_guards(self._leave(point))
        else:
            self._take_outside(point)

    # Location of points

    def _put_outside(self, point: Point[K]) -> None:
        """Adds a point without guards."""
        point.row = self._outside.add(point, point.vector)
        if point.row >= self._guards.shape[1]:
            grown = np.full((self.depth, 2 * point.row), _NOBODY, np.int64)
            grown[:, : self._guards.shape[1]] = self._guards
            self._guards = grown

    def _take_outside(self, point: Point[K]) -> None:
        self._outside.remove(point.row)
        self._guards[:, point.row] = _NOBODY

    def _enter(self, point: Point[K]) -> None:
        self._take_outside(point)
        point.row = self._band.add(point, point.vector)
        point.is_inside = True
        self._mark(point)

    def _leave(self, point: Point[K]) -> Ints:
        """Takes a point from the skyline; returns its wards, which need new guards."""
        wards = self._wards(point)
        self._guards[:, wards] = _NOBODY
        self._mark(point)
        self._band.remove(point.row)
        point.is_inside = False
        return wards

    def _mark(self, point: Point[K]) -> None:
        """Marks all keys of a point as changed."""
        for key in point.keys:
            self._changed[key] = True

    def _wards(self, point: Point[K]) -> Ints:
        """Rows outside that a skyline point guards."""
        is_ward = self._guards[0, : self._outside.used] == point.row
        for guards in self._guards[1:]:
            is_ward |= guards[: self._outside.used] == point.row
        wards: Ints = is_ward.nonzero()[0]
        return wards

    # Guards

    def _assign_guards(self, rows: Ints) -> None:
        """Assigns guards to points outside, or moves them to the skyline."""
        left = self._unguarded(rows)
        if len(left) > 1:
            # In this order a dominator precedes what it dominates.
            left = left[np.lexsort(self._outside.vectors(left)[::-1])[::-1]]
        first, end = 0, _FIRST
        while first < len(left):
            some = left[first:end]
            for row in (self._unguarded(some) if first else some).tolist():
                point = self._outside.owner(row)
                guards = self._find_guards(point.vector)
                self._guards[:, row] = _NOBODY
                if guards:
                    self._guards[: len(guards), row] = [guard.row for guard in guards]
                else:
                    self._enter(point)
            # If all are new, the first ones dominate most of the others.
            first, end = end, 5 * end

    def _unguarded(self, rows: Ints) -> Ints:
        """Assigns guards in bulk; returns the rows that no skyline point dominates yet."""
        if self.depth > 1 or len(rows) <= _FEW or not len(self._band):
            return rows
        self.rotation += 1
        guards = self._band.rows_at_least(self._outside.vectors(rows), self.rotation)
        self._guards[0, rows] = guards
        left: Ints = rows[guards == _NOBODY]
        return left

    def _is_guarded(self, point: Point[K]) -> bool:
        guards: list[int] = self._guards[:, point.row].tolist()
        return all(
            dominates(self._band.owner(guard).vector, point.vector)
            for guard in guards
            if guard != _NOBODY
        )

    def _find_guards(self, vector: Vector) -> tuple[Point[K], ...]:
        """Dominators of a vector that make up the depth; empty if there are too few."""
        self.rotation += 1
        above = self._band.at_least(vector)
        if self.depth > 1:
            found = self._band.owners(above)
            return self._enough(each for each in found if each.vector != vector)
        rows = above.nonzero()[0]
        return (self._band.owner(int(rows[self.rotation % len(rows)])),) if len(rows) else ()

    def _enough(self, points: Iterable[Point[K]]) -> tuple[Point[K], ...]:
        guards: list[Point[K]] = []
        owners: set[str] = set()
        for point in points:
            more = owners.union(point.keys.values())
            if len(more) > len(owners):
                guards.append(point)
                owners = more
            if len(owners) >= self.depth:
                return tuple(guards)
        return ()

    def _demote_below(self, point: Point[K]) -> None:
        """Removes points from the skyline that `point` dominates, if they are too deep now."""
        below = self._band.at_most(point.vector)
        below[point.row] = False
        for each in self._band.owners(below):
            guards = (point,) if self.depth == 1 else self._find_guards(each.vector)
            if guards:
                wards = self._leave(each)
                self._put_outside(each)
                self._guards[: len(guards), each.row] = [guard.row for guard in guards]
                self._guard_by(wards, each)

    def check_invariants(self) -> None:
        self._band.check_invariants()
        self._outside.check_invariants()
        inside = sum(point.is_inside for point in self._points.values())
        assert inside == len(self._band) == len(self._points) - len(self._outside)
        assert {key for point in self._points.values() for key in point.keys} == set(self._by_key)
        assert (self._guards != _NOBODY).any(axis=0).sum() == len(self._outside)
        for vector, point in self._points.items():
            assert point.vector == vector
            assert point.keys
            assert all(self._by_key[key] is point for key in point.keys)
            above = {
                owner
                for other in self._points.values()
                if dominates(other.vector, vector)
                for owner in other.keys.values()
            }
            assert point.is_inside == (len(above) < self.depth)
            if point.is_inside:
                assert self._band.owner(point.row) is point
            else:
                assert self._outside.owner(point.row) is point
                self._check_guards(point)

    def _check_guards(self, point: Point[K]) -> None:
        rows: list[int] = [row for row in self._guards[:, point.row].tolist() if row != _NOBODY]
        guards = [self._band.owner(row) for row in rows]
        owners = {owner for guard in guards for owner in guard.keys.values()}
        assert len(owners) >= self.depth
        for guard in guards:
            assert self._points[guard.vector] is guard
            assert dominates(guard.vector, point.vector)
