"""The skyline of vectors: those that no other surpasses, kept while vectors come, change and go.

One vector *dominates* another if it is as good in all places and better in one. With a depth of k
the skyline holds all vectors that fewer than k others dominate: for an expectation of k publishers
that is what matters, because whatever lies deeper is met by k others as well. Equal vectors don't
dominate each other; they share a point.

Each point outside has its *guards*: points of the skyline that dominate it and together make up the
depth. While these stay above it, a point outside may move and needs no look at all others; when a
guard goes, only its *wards* do. If a point has no guards on the skyline it has none at all: of all
that dominate it take the first ones in an order in which a dominator precedes what it dominates;
fewer than k dominate those.

A point that was the best for long may have a thousand wards. So who guards whom is a matter of
columns of numbers, and those that lose their guard are compared with the skyline all at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Generic

import numpy as np
from numpy.typing import NDArray

from accord.core.quality.points import K, Point, at_least, dominates
from accord.core.quality.profiles import Vector
from accord.core.quality.vector_table import VectorTable

_FIRST: Final = 16  # points that are compared with the skyline one by one
_FEW: Final = 3
_NOBODY: Final = -1

Ints = NDArray[np.int64]


class Skyline(Generic[K]):
    def __init__(self, columns: int, depth: int = 1) -> None:
        assert columns >= 1
        assert depth >= 1
        self.depth = depth
        self.looks = 0  # points that were compared with the whole skyline
        self._points: dict[Vector, Point[K]] = {}
        self._of: dict[K, Point[K]] = {}
        self._band: VectorTable[Point[K]] = VectorTable(columns)
        self._outside: VectorTable[Point[K]] = VectorTable(columns)
        # By row outside: the rows of its guards, as many as there are, which are `depth` at most.
        self._guards: Ints = np.full((depth, 16), _NOBODY, np.int64)
        self._changed: dict[K, bool] = {}

    def __len__(self) -> int:
        """How many keys there are, inside and outside."""
        return len(self._of)

    def __contains__(self, key: K) -> bool:
        """Whether `key` is on the skyline."""
        point = self._of.get(key)
        return point is not None and point.is_inside

    def vector(self, key: K) -> Vector:
        return self._of[key].vector

    def owned(self) -> Iterator[tuple[K, str]]:
        """All keys with their owners, inside and outside."""
        return ((key, point.keys[key]) for key, point in self._of.items())

    def members(self) -> dict[K, Vector]:
        return {key: p.vector for p in self._points.values() if p.is_inside for key in p.keys}

    def representatives(self) -> Iterator[K]:
        """Of each point on the skyline as many keys as the depth needs."""
        for point in self._points.values():
            if point.is_inside:
                yield from islice(point.keys, self.depth)

    def represents(self, key: K) -> bool:
        point = self._of.get(key)
        return point is not None and point.is_inside and key in islice(point.keys, self.depth)

    def points(self, least: Vector, first: int = 0) -> list[Point[K]]:
        """Points of the skyline that are as good as `least`, which begins at column `first`."""
        return self._band.owners(self._band.at_least(least, first))

    def points_outside(self, least: Vector) -> Iterator[Point[K]]:
        """The same of all others; they may be many."""
        rows = self._outside.at_least(least).nonzero()[0]
        return (self._outside.owner(int(row)) for row in rows)

    @property
    def band(self) -> VectorTable[Point[K]]:
        """The points of the skyline."""
        return self._band

    def take_changes(self) -> list[K]:
        """Keys that came to the skyline, changed on it or left it since the last time."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def set(self, key: K, owner: str, vector: Vector) -> None:
        """A new key, or another vector of one that there is."""
        point = self._of.get(key)
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
        """All keys at once, where there are none yet."""
        assert not self._of
        for key, owner, vector in added:
            self._add(key, owner, self._points.setdefault(vector, Point(vector)))
        for point in self._points.values():
            self._put_outside(point)
        self._look_at(np.arange(self._outside.used))

    def remove(self, key: K) -> None:
        self._detach(key, self._of[key])
        del self._of[key]

    # One point

    def _move(self, point: Point[K], vector: Vector) -> None:
        """Take a point with one key to where no other is."""
        before = point.vector
        del self._points[before]
        self._points[vector] = point
        point.vector = vector
        if not point.is_inside:
            self._outside.change(point.row, vector)
            if not self._is_guarded(point):
                self._look_at(np.array([point.row]))
        elif at_least(vector, before):
            self._mark(point)
            self._band.change(point.row, vector)
        else:
            self._worsen(point)
        if point.is_inside:
            self._demote_below(point)

    def _worsen(self, point: Point[K]) -> None:
        """A point of the skyline is worse now: who is not below it any more needs others."""
        wards = self._leave(point)
        kept = self._outside.are_at_most(point.vector, wards)
        self._put_outside(point)
        # Together: what the point lost may be above it by now.
        self._look_at(np.append(wards[~kept], point.row))
        self._hang(wards[kept], point)

    def _hang(self, wards: Ints, point: Point[K]) -> None:
        """Guard what is below a point by it, or by those above it: they are enough by themselves.

        Where the depth is more than one the point is not: others guard its wards with it.
        """
        if not len(wards):
            return
        if not point.is_inside:
            self._guards[:, wards] = self._guards[:, [point.row]]
        elif self.depth == 1:
            self._guards[0, wards] = point.row
        else:
            self._look_at(wards)

    def _attach(self, key: K, owner: str, vector: Vector) -> None:
        point = self._points.get(vector)
        if point is None:
            point = self._points[vector] = Point(vector)
            self._add(key, owner, point)
            self._put_outside(point)
            self._look_at(np.array([point.row]))
            is_more = point.is_inside
        else:
            self._add(key, owner, point)
            is_more = point.is_inside and self.depth > 1
        if is_more:
            self._demote_below(point)

    def _add(self, key: K, owner: str, point: Point[K]) -> None:
        point.keys[key] = owner
        self._of[key] = point
        if point.is_inside:
            self._changed[key] = True

    def _detach(self, key: K, point: Point[K]) -> None:
        """Take `key` from a point, which may not be its only one."""
        if point.is_inside:
            self._changed[key] = True
            # One of these represents the point in its place.
            self._changed.update(dict.fromkeys(islice(point.keys, self.depth + 1), True))
        del point.keys[key]
        if point.keys:
            if self.depth > 1 and point.is_inside:
                self._look_at(self._wards(point))
            return
        del self._points[point.vector]
        if point.is_inside:
            self._look_at(self._leave(point))
        else:
            self._take_outside(point)

    # Where points are

    def _put_outside(self, point: Point[K]) -> None:
        """Without guards yet."""
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
        """Take a point from the skyline; its wards, which need others now."""
        wards = self._wards(point)
        self._guards[:, wards] = _NOBODY
        self._mark(point)
        self._band.remove(point.row)
        point.is_inside = False
        return wards

    def _mark(self, point: Point[K]) -> None:
        """All keys of a point that comes, moves or goes."""
        for key in point.keys:
            self._changed[key] = True

    def _wards(self, point: Point[K]) -> Ints:
        """Of a point on the skyline: rows outside."""
        is_ward = self._guards[0, : self._outside.used] == point.row
        for guards in self._guards[1:]:
            is_ward |= guards[: self._outside.used] == point.row
        wards: Ints = is_ward.nonzero()[0]
        return wards

    # Looking for guards

    def _look_at(self, rows: Ints) -> None:
        """Find the place of points outside: below guards, or on the skyline."""
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
            # Where all are new, the first ones dominate most of the others.
            first, end = end, 5 * end

    def _unguarded(self, rows: Ints) -> Ints:
        """Those that nothing on the skyline dominates yet; the others get their guards."""
        if self.depth > 1 or len(rows) <= _FEW or not len(self._band):
            return rows
        self.looks += 1
        guards = self._band.rows_at_least(self._outside.vectors(rows), self.looks)
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
        """Of what dominates a vector as many as make up the depth; none where all don't."""
        self.looks += 1
        above = self._band.at_least(vector)
        if self.depth > 1:
            found = self._band.owners(above)
            return self._enough(each for each in found if each.vector != vector)
        rows = above.nonzero()[0]
        return (self._band.owner(int(rows[self.looks % len(rows)])),) if len(rows) else ()

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
        """Those that `point` dominates may have to leave the skyline."""
        below = self._band.at_most(point.vector)
        below[point.row] = False
        for each in self._band.owners(below):
            guards = (point,) if self.depth == 1 else self._find_guards(each.vector)
            if guards:
                wards = self._leave(each)
                self._put_outside(each)
                self._guards[: len(guards), each.row] = [guard.row for guard in guards]
                self._hang(wards, each)

    def check_invariants(self) -> None:
        self._band.check_invariants()
        self._outside.check_invariants()
        inside = sum(point.is_inside for point in self._points.values())
        assert inside == len(self._band) == len(self._points) - len(self._outside)
        assert {key for point in self._points.values() for key in point.keys} == set(self._of)
        assert (self._guards != _NOBODY).any(axis=0).sum() == len(self._outside)
        for vector, point in self._points.items():
            assert point.vector == vector
            assert point.keys
            assert all(self._of[key] is point for key in point.keys)
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
