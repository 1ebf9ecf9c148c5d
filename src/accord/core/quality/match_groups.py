"""Expectations over the same channels and properties, matched against the skyline of that scope.

A profile may arrive over several paths as several copies. Of one source only copies that no other
copy surpasses or equals are retained (of equal ones that with the shortest path), and these go to
the skyline. Matching against the skyline gives the state that all profiles would give: a profile
outside it is surpassed by one on it (or by as many as there are publishers wanted) in current and
best values, and these alone decide.

Each expectation has a count of the sources that satisfy it and of those that could. When the
skyline changes, one comparison with all expectations at once finds the counts that change.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from accord.core.quality.matching import MatchState
from accord.core.quality.profiles import ScoredCapabilities, Vector, vector_of
from accord.core.quality.skyline import Mask, Skyline, VectorTable, at_least

Path = tuple[str, ...]  # nodes that a copy came over, nearest first; empty if local
ProfileCopy = tuple[str, Path]  # source and path
Scope = tuple[str, tuple[str, ...]]  # channel filter and properties

_Counts = NDArray[np.int64]


class MatchGroup:
    def __init__(self, scope: Scope, depth: int = 1) -> None:
        self.scope = scope
        self.names = scope[1]
        self.skyline: Skyline[ProfileCopy] = Skyline(2 * len(self.names), depth)
        self._copies: dict[str, dict[Path, tuple[Vector, ScoredCapabilities]]] = {}
        self._placed: dict[str, list[Path]] = {}  # by source: paths on the skyline
        self._counted: dict[str, tuple[Vector, ...]] = {}  # by source: vectors counted
        self._rows: VectorTable[str] = VectorTable(len(self.names))
        self._row: dict[str, int] = {}
        self._publishers: dict[str, int] = {}  # by expectation: publishers
        self._by_publishers: dict[int, int] = {}  # by number of publishers: expectations
        self._required: _Counts = np.zeros(0, np.int64)
        self._satisfying: _Counts = np.zeros(0, np.int64)
        self._covering: _Counts = np.zeros(0, np.int64)
        self._pending: dict[str, bool] = {}  # expectations changed since `update_states`
        self._changed_copies: dict[
            ProfileCopy, bool
        ] = {}  # copies that changed since `take_changed`

    def __len__(self) -> int:
        """Number of expectations."""
        return len(self._row)

    @property
    def publishers(self) -> int:
        """The largest number of publishers that an expectation wants."""
        return max(self._by_publishers, default=1)

    # Copies

    def set_copy(self, source: str, path: Path, offers: ScoredCapabilities) -> None:
        """Adds or updates a copy; one that lacks a property of the scope is removed."""
        vector = vector_of(offers, self.names)
        if vector is None:
            self.remove_copy(source, path)
            return
        copies = self._copies.setdefault(source, {})
        before = copies.get(path)
        copies[path] = vector, offers
        if before is None or before[0] != vector or len(copies) > 1:
            self._update_skyline(source)
        if (source, path) in self.skyline:
            self._changed_copies[source, path] = True  # costs may have changed

    def set_copies(self, copies: Iterable[tuple[str, Path, ScoredCapabilities]]) -> None:
        """Adds all local copies at once to an empty group; each has only one path."""
        for source, path, offers in copies:
            vector = vector_of(offers, self.names)
            if vector is not None:
                self._copies.setdefault(source, {})[path] = vector, offers
        self.deepen(self.skyline.depth)

    def remove_copy(self, source: str, path: Path) -> None:
        copies = self._copies.get(source)
        if copies is None or copies.pop(path, None) is None:
            return
        if not copies:
            del self._copies[source]
        self._update_skyline(source)

    def deepen(self, depth: int) -> None:
        """Rebuilds the skyline with another depth."""
        before = self.skyline
        self.skyline = Skyline(2 * len(self.names), depth)
        self._placed = {source: _survivors(copies) for source, copies in self._copies.items()}
        self.skyline.set_all(
            ((source, path), source, self._copies[source][path][0])
            for source, paths in self._placed.items()
            for path in paths
        )
        changed = dict.fromkeys([*before.members(), *before.take_changes()], True)
        changed |= dict.fromkeys(self.skyline.take_changes(), True)
        self._on_skyline_change(changed)

    def offers(self, copy: ProfileCopy) -> ScoredCapabilities:
        return self._copies[copy[0]][copy[1]][1]

    def has(self, copy: ProfileCopy) -> bool:
        return copy[1] in self._copies.get(copy[0], {})

    def take_changed(self) -> list[ProfileCopy]:
        """Copies to forward again or to withdraw since the last call."""
        changed = list(self._changed_copies)
        self._changed_copies.clear()
        return changed

    def mark_changed(self, copies: Iterable[ProfileCopy]) -> None:
        """Marks copies that were forwarded before this group existed."""
        self._changed_copies |= dict.fromkeys(copies, True)

    def forwarded(self) -> list[ProfileCopy]:
        return list(self.skyline.representatives())

    # Expectations

    def add(self, id_: str, least: Vector, publishers: int) -> None:
        self._update()  # the counts must match the skyline exactly
        row = self._row[id_] = self._rows.add(id_, least)
        self._publishers[id_] = publishers
        self._by_publishers[publishers] = self._by_publishers.get(publishers, 0) + 1
        if row >= len(self._required):
            self._required = _grown(self._required, row)
            self._satisfying = _grown(self._satisfying, row)
            self._covering = _grown(self._covering, row)
        self._required[row] = publishers
        self._satisfying[row] = len(self._sources(least, 0))
        self._covering[row] = len(self._sources(least, len(self.names)))

    def remove(self, id_: str) -> None:
        self._rows.remove(self._row.pop(id_))
        self._pending.pop(id_, None)
        publishers = self._publishers.pop(id_)
        self._by_publishers[publishers] -= 1
        if not self._by_publishers[publishers]:
            del self._by_publishers[publishers]

    def state(self, id_: str) -> MatchState:
        """State as of the last `update_states`."""
        row = self._row[id_]
        return MatchState(int(self._states(slice(row, row + 1))[0]))

    def update_states(self) -> list[str]:
        """Updates the counts; returns the expectations whose state changed since the last call."""
        self._update()
        changed = list(self._pending)
        self._pending.clear()
        return changed

    def candidates(self, least: Vector) -> tuple[list[ProfileCopy], list[ProfileCopy]]:
        """Both sets of figure 3: copies that satisfy, and others that could."""
        satisfying = [copy for point in self.skyline.points(least) for copy in point.keys]
        found = dict.fromkeys(satisfying)
        covering = self.skyline.points(least, len(self.names))
        others = [copy for point in covering for copy in point.keys if copy not in found]
        return satisfying, others

    def satisfying(self, least: Vector, most: int) -> list[ProfileCopy]:
        """Up to `most` satisfying copies, of as many points as possible."""
        band = self.skyline.band
        points = [band.owner(row) for row in band.first(band.at_least(least), most)]
        if len(points) == most:
            return [next(iter(point.keys)) for point in points]
        found = [copy for point in points for copy in islice(point.keys, most)]
        return found[:most]

    def nearest(self, least: Vector, most: int) -> list[ProfileCopy]:
        """Up to `most` copies on the skyline, those that lack the fewest properties first."""
        band = self.skyline.band
        never = band.below(least, len(self.names))
        lacking = never * (len(self.names) + 1) + band.below(least)
        lacking = np.where(band.at_least((-np.inf,)), lacking, np.iinfo(np.int64).max)
        found: list[ProfileCopy] = []
        for row in np.argsort(lacking, kind="stable")[: min(most, len(band))].tolist():
            found += band.owner(row).keys
            if len(found) >= most:
                break
        return found[:most]

    def others_satisfying(self, least: Vector, source: str, most: int) -> int:
        """Number of other sources that satisfy, up to `most`, also outside the skyline."""
        sources: set[str] = set()
        for points_of in (self.skyline.points, self.skyline.points_outside):
            for point in points_of(least):
                sources.update(each for each in point.keys.values() if each != source)
                if len(sources) >= most:
                    return most
        return len(sources)

    def check_invariants(self) -> None:
        self.skyline.check_invariants()
        self._rows.check_invariants()
        assert len(self._rows) == len(self._row) == len(self._publishers)
        wanted = list(self._publishers.values())
        assert self._by_publishers == {number: wanted.count(number) for number in set(wanted)}
        placed = {copy for copy, _ in self.skyline.owned()}
        assert placed == {
            (source, path) for source, of in self._copies.items() for path in _survivors(of)
        }
        for (source, path), vector in self.skyline.members().items():
            assert self._copies[source][path][0] == vector

    def check_counts(self, id_: str, least: Vector) -> None:
        """Checks the counts against the skyline; valid after `update_states`."""
        row = self._row[id_]
        assert self._required[row] == self._publishers[id_]
        assert self._satisfying[row] == len(self._sources(least, 0))
        assert self._covering[row] == len(self._sources(least, len(self.names)))

    def _update_skyline(self, source: str) -> None:
        """Puts the source's copies on the skyline that no other copy of it makes redundant."""
        copies = self._copies.get(source, {})
        survivors = _survivors(copies)
        for path in survivors:
            self.skyline.set((source, path), source, copies[path][0])
        for path in self._placed.pop(source, ()):
            if path not in survivors:
                self.skyline.remove((source, path))
        if survivors:
            self._placed[source] = survivors

    def _update(self) -> None:
        if changes := self.skyline.take_changes():
            self._on_skyline_change(dict.fromkeys(changes, True))

    def _on_skyline_change(self, copies: dict[ProfileCopy, bool]) -> None:
        self._changed_copies |= copies
        before = self._states(slice(0, self._rows.used))
        for source in {source: True for source, _ in copies}:
            self._count(source)
        after = self._states(slice(0, self._rows.used))
        if self._row:
            self._pending |= dict.fromkeys(self._rows.owners(before != after), True)

    def _count(self, source: str) -> None:
        """Updates the counts to the skyline's copies of one source."""
        paths = self._copies.get(source, {})
        now = tuple(self.skyline.vector((source, p)) for p in paths if (source, p) in self.skyline)
        before = self._counted.pop(source, ())
        if now:
            self._counted[source] = now
        if not len(self._row):
            return
        used, width = self._rows.used, len(self.names)
        satisfying, covering = self._satisfying[:used], self._covering[:used]
        if before:
            satisfying -= self._reached([vector[:width] for vector in before])
            covering -= self._reached([vector[width:] for vector in before])
        if now:
            satisfying += self._reached([vector[:width] for vector in now])
            covering += self._reached([vector[width:] for vector in now])

    def _reached(self, vectors: list[Vector]) -> Mask:
        """Expectations for which one of the vectors is good enough."""
        mask = self._rows.at_most(vectors[0])
        for vector in vectors[1:]:
            mask |= self._rows.at_most(vector)
        return mask

    def _states(self, rows: slice) -> _Counts:
        needed = self._required[rows]
        covered: _Counts = (self._covering[rows] >= needed).astype(np.int64)
        covered += self._satisfying[rows] >= needed
        return covered

    def _sources(self, least: Vector, first: int) -> set[str]:
        points = self.skyline.points(least, first)
        return {source for point in points for source, _ in point.keys}


def _survivors(copies: dict[Path, tuple[Vector, ScoredCapabilities]]) -> list[Path]:
    """Drops copies that another one surpasses, or equals over a shorter path."""
    if len(copies) == 1:
        return list(copies)
    return [
        path
        for path, (vector, _) in copies.items()
        if not any(
            at_least(other, vector) and (other != vector or _rank(copy) < _rank(path))
            for copy, (other, _) in copies.items()
            if copy != path
        )
    ]


def _rank(path: Path) -> tuple[int, Path]:
    return len(path), path


def _grown(counts: _Counts, row: int) -> _Counts:
    grown = np.zeros(max(16, 2 * (row + 1)), np.int64)
    grown[: len(counts)] = counts
    return grown
