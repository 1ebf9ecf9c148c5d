"""The skyline of vectors: those that no other surpasses, kept while vectors come, change and go.

One vector *dominates* another if it is as good in all places and better in one. With a depth of k
the skyline holds all vectors that fewer than k others dominate: for an expectation of k publishers
that is what matters, because whatever lies deeper is met by k others as well. Equal vectors don't
dominate each other; they share a point.

Each point outside has its *guards*: points that dominate it and together make up the depth. They
may be outside themselves, and are spread so that each has few *wards*. While its guards stay above
it, a point outside may move and needs no look at all others; when a guard goes, only its wards do,
and where the guard was outside its own guards take its place. If a point has no guards on the
skyline it has none at all: of all that dominate it take the first ones in an order in which a
dominator precedes what it dominates; fewer than k dominate those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Final, Generic

from accord.core.negotiation.points import K, Point, at_least, dominates, raise_ceiling
from accord.core.negotiation.profiles import Vector
from accord.core.negotiation.rows import Rows

_RECENT: Final = 8
_FEW: Final = 3
_DESCENT: Final = 5
_TOGETHER: Final = 64  # points that are compared with the skyline at once


class Skyline(Generic[K]):
    def __init__(self, columns: int, depth: int = 1) -> None:
        assert columns >= 1
        assert depth >= 1
        self.depth = depth
        self.looks = 0  # points that were compared with the whole skyline
        self._points: dict[Vector, Point[K]] = {}
        self._of: dict[K, Point[K]] = {}
        self._band: Rows[Point[K]] = Rows(columns)
        self._changed: dict[K, bool] = {}

    def __len__(self) -> int:
        """How many keys there are, inside and outside."""
        return len(self._of)

    def __contains__(self, key: K) -> bool:
        """Whether `key` is on the skyline."""
        point = self._of.get(key)
        return point is not None and point.row >= 0

    def vector(self, key: K) -> Vector:
        return self._of[key].vector

    def owned(self) -> Iterator[tuple[K, str]]:
        """All keys with their owners, inside and outside."""
        return ((key, point.keys[key]) for key, point in self._of.items())

    def members(self) -> dict[K, Vector]:
        return {key: p.vector for p in self._points.values() if p.row >= 0 for key in p.keys}

    def representatives(self) -> Iterator[K]:
        """Of each point on the skyline as many keys as the depth needs."""
        for point in self._points.values():
            if point.row >= 0:
                yield from islice(point.keys, self.depth)

    def represents(self, key: K) -> bool:
        point = self._of.get(key)
        return point is not None and point.row >= 0 and key in islice(point.keys, self.depth)

    def points(self, least: Vector, first: int = 0) -> list[Point[K]]:
        """Points of the skyline that are as good as `least`, which begins at column `first`."""
        return self._band.owners(self._band.at_least(least, first))

    def wards(self, key: K) -> list[Point[K]]:
        """What the point of `key` keeps outside."""
        return list(self._of[key].wards)

    @property
    def band(self) -> Rows[Point[K]]:
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
        self._look_at(list(self._points.values()))

    def remove(self, key: K) -> None:
        self._detach(key, self._of[key])
        del self._of[key]

    def _move(self, point: Point[K], vector: Vector) -> None:
        """Take a point with one key to where no other is."""
        lost = self._lose_wards(point, vector)
        guards = point.guards
        if guards:
            self._rehang(lost, guards)
            lost = []
            if all(dominates(guard.vector, vector) for guard in guards):
                self._place(point, vector)
                for guard in guards:
                    raise_ceiling(guard, vector)
                return
            self._unguard(point)
        else:
            self._leave(point)
        self._place(point, vector)
        # Together: what the point lost may be above it by now.
        self._look_at([point, *lost])
        if point.row >= 0:
            self._demote_below(point)

    def _lose_wards(self, guard: Point[K], vector: Vector) -> list[Point[K]]:
        """Those that `guard` does not dominate any more where it goes."""
        if guard.ceiling is None or at_least(vector, guard.ceiling):
            return []
        lost = [ward for ward in guard.wards if not dominates(vector, ward.vector)]
        for ward in lost:
            del guard.wards[ward]
        guard.ceiling = None
        for ward in guard.wards:
            raise_ceiling(guard, ward.vector)
        for ward in lost:
            ward.guards = tuple(each for each in ward.guards if each is not guard)
            if guard.row >= 0:
                self._unguard(ward)
        return lost

    def _rehang(self, wards: list[Point[K]], guards: tuple[Point[K], ...]) -> None:
        """Those above a guard that goes take its place: they are enough even by themselves."""
        for ward in wards:
            others = ward.guards
            self._unguard(ward)
            self._guard(ward, self._enough(dict.fromkeys([*others, *guards])))

    def _place(self, point: Point[K], vector: Vector) -> None:
        del self._points[point.vector]
        point.vector = vector
        self._points[vector] = point

    def _leave(self, point: Point[K]) -> None:
        self._mark(point)
        self._band.remove(point.row)
        point.row = -1

    def _attach(self, key: K, owner: str, vector: Vector) -> None:
        point = self._points.get(vector)
        if point is None:
            point = self._points[vector] = Point(vector)
            self._add(key, owner, point)
            self._look_at([point])
            is_more = point.row >= 0
        else:
            self._add(key, owner, point)
            is_more = point.row >= 0 and self.depth > 1
        if is_more:
            self._demote_below(point)

    def _add(self, key: K, owner: str, point: Point[K]) -> None:
        point.keys[key] = owner
        self._of[key] = point
        if point.row >= 0:
            self._changed[key] = True

    def _detach(self, key: K, point: Point[K]) -> None:
        """Take `key` from a point, which may not be its only one."""
        if point.row >= 0:
            self._changed[key] = True
            # One of these represents the point in its place.
            self._changed.update(dict.fromkeys(islice(point.keys, self.depth + 1), True))
        del point.keys[key]
        if point.keys:
            if self.depth > 1:
                self._look_again(point)
            return
        del self._points[point.vector]
        if point.row >= 0:
            self._leave(point)
            self._look_again(point)
            return
        guards, wards = point.guards, list(point.wards)
        self._unguard(point)
        for ward in wards:
            ward.guards = tuple(each for each in ward.guards if each is not point)
        self._rehang(wards, guards)

    def _look_again(self, guard: Point[K]) -> None:
        """At all that relies on `guard`."""
        wards = list(guard.wards)
        for ward in wards:
            self._unguard(ward)
        self._look_at(wards)

    def _look_at(self, points: list[Point[K]]) -> None:
        """Find the place of each: below guards, or on the skyline."""
        recent: deque[Point[K]] = deque(maxlen=_RECENT)
        # In this order a dominator precedes what it dominates.
        ordered = sorted(points, key=attrgetter("vector"), reverse=True)
        for first in range(0, len(ordered), _TOGETHER):
            for point in self._unguarded(ordered[first : first + _TOGETHER]):
                guards = self._recent_guard(point, recent)
                if not guards:
                    self.looks += 1
                    guards = self._guards(point.vector)
                if guards:
                    self._guard(point, guards)
                else:
                    point.row = self._band.add(point, point.vector)
                    self._mark(point)
                recent.appendleft(point)

    def _unguarded(self, points: list[Point[K]]) -> list[Point[K]]:
        """Those that nothing on the skyline dominates yet; the others get their guards."""
        if self.depth > 1 or len(points) <= _FEW or not len(self._band):
            return points
        self.looks += 1
        left: list[Point[K]] = []
        rows = self._band.rows_at_least([point.vector for point in points], self.looks)
        for point, row in zip(points, rows, strict=True):
            if row < 0:
                left.append(point)
            else:
                self._guard(point, (self._lower_guard(self._band.owner(row), point.vector),))
        return left

    def _recent_guard(self, point: Point[K], recent: Iterable[Point[K]]) -> tuple[Point[K], ...]:
        """One of the last ones, which are often little better."""
        if self.depth == 1:
            for guard in recent:
                if dominates(guard.vector, point.vector):
                    return (guard,)
        return ()

    def _guards(self, vector: Vector) -> tuple[Point[K], ...]:
        """Of what dominates a vector as many as make up the depth; none where all don't."""
        above = self._band.at_least(vector)
        if self.depth > 1:
            found = self._band.owners(above)
            return self._enough(each for each in found if each.vector != vector)
        rows = above.nonzero()[0]
        if not len(rows):
            return ()
        return (self._lower_guard(self._band.owner(int(rows[self.looks % len(rows)])), vector),)

    def _lower_guard(self, guard: Point[K], vector: Vector) -> Point[K]:
        """A ward of `guard` in its place where one of the first few will do, and so on."""
        for _ in range(_DESCENT):
            for ward in islice(guard.wards, _FEW):
                if dominates(ward.vector, vector):
                    guard = ward
                    break
            else:
                break
        return guard

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
            guards = (point,) if self.depth == 1 else self._guards(each.vector)
            if guards:
                self._leave(each)
                self._guard(each, guards)

    def _guard(self, point: Point[K], guards: tuple[Point[K], ...]) -> None:
        assert guards
        point.guards = guards
        for guard in guards:
            guard.wards[point] = True
            raise_ceiling(guard, point.vector)

    def _unguard(self, point: Point[K]) -> None:
        for guard in point.guards:
            del guard.wards[point]
            if not guard.wards:
                guard.ceiling = None
        point.guards = ()

    def _mark(self, point: Point[K]) -> None:
        """All keys of a point that comes, moves or goes."""
        for key in point.keys:
            self._changed[key] = True

    def check_invariants(self) -> None:
        self._band.check_invariants()
        assert sum(point.row >= 0 for point in self._points.values()) == len(self._band)
        assert {key for point in self._points.values() for key in point.keys} == set(self._of)
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
            assert (point.row >= 0) == (len(above) < self.depth)
            if point.row >= 0:
                assert self._band.owner(point.row) is point
                assert not point.guards
            else:
                self._check_guards(point)
            for ward in point.wards:
                assert point in ward.guards
                assert point.ceiling is not None
                assert at_least(point.ceiling, ward.vector)

    def _check_guards(self, point: Point[K]) -> None:
        owners = {owner for guard in point.guards for owner in guard.keys.values()}
        assert len(owners) >= self.depth
        for guard in point.guards:
            assert self._points[guard.vector] is guard
            assert point in guard.wards
            assert dominates(guard.vector, point.vector)
