"""Rows whose layout few others have: kept attribute by attribute instead of in leaves.

There may be as many layouts as rows. But then each attribute is limited by few of the rows, so
that looking at all sides of the attributes that were asked about is looking at few. Rows that
limit none of them are related by their channel filter alone: they are counted, not looked at.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accord.core.admission.index.leaves import NOBODY, Layout, Row
from accord.core.admission.index.patterns import Relation
from accord.core.admission.index.selection import Question
from accord.core.admission.index.sides import Floats, Ints, Mask

_FIRST: Final = 64


class _Column:
    """All sides of one slot."""

    __slots__ = ("_high", "_low", "_rows", "size")

    def __init__(self) -> None:
        self._rows: Ints = np.zeros(8, dtype=np.int64)
        self._low: Floats = np.zeros(8)
        self._high: Floats = np.zeros(8)
        self.size = 0

    @property
    def rows(self) -> Ints:
        return self._rows[: self.size]

    @property
    def low(self) -> Floats:
        return self._low[: self.size]

    @property
    def high(self) -> Floats:
        return self._high[: self.size]

    def add(self, row: int, low: float, high: float) -> None:
        at = self.size
        if at == len(self._rows):
            self._rows, self._low, self._high = map(_grown, (self._rows, self._low, self._high))
        self._rows[at], self._low[at], self._high[at] = row, low, high
        self.size += 1

    def remove(self, row: int) -> None:
        at = int(np.flatnonzero(self.rows == row)[0])
        last = self.size - 1
        for part in (self._rows, self._low, self._high):
            part[at] = part[last]
        self.size = last


class Strays:
    def __init__(self) -> None:
        self.figures: Ints = np.zeros((_FIRST, 4), dtype=np.int64)
        self.owner: Ints = np.full(_FIRST, NOBODY, dtype=np.int64)
        self._kind: Ints = np.zeros(_FIRST, dtype=np.int64)
        self._sides: Ints = np.zeros(_FIRST, dtype=np.int64)
        self._names: Floats = np.zeros((_FIRST, 1))  # node and channel filter first, as in a row
        self._layouts: dict[int, Layout] = {}
        self._columns: dict[int, _Column] = {}  # by slot
        self._free: list[int] = []
        self._used = 0
        self._marks: Ints = np.zeros(_FIRST, dtype=np.int64)  # all 0 between questions

    def __len__(self) -> int:
        return len(self._layouts)

    def add(self, layout: Layout, row: Row) -> int:
        """Where it is now."""
        place = self._free.pop() if self._free else self._used
        if place == self._used:
            self._used += 1
            self._make_room(place)
        self._make_room_for_names(layout.start)
        self.figures[place] = row.figures
        self.owner[place] = row.owner
        self._kind[place] = layout.kind
        self._sides[place] = len(layout.slots)
        self._names[place, : layout.start] = row.keys[: layout.start]
        self._layouts[place] = layout
        sides = row.keys[layout.start :].reshape(-1, 2).tolist()
        for slot, (low, high) in zip(layout.slots, sides, strict=True):
            self._columns.setdefault(slot, _Column()).add(place, low, high)
        return place

    def remove(self, place: int) -> tuple[Layout, Row]:
        layout, row = self.row(place)
        del self._layouts[place]
        for slot in layout.slots:
            column = self._columns[slot]
            column.remove(place)
            if not column.size:
                del self._columns[slot]
        self.owner[place] = NOBODY
        self.figures[place] = 0
        self._free.append(place)
        return layout, row

    def row(self, place: int) -> tuple[Layout, Row]:
        layout = self._layouts[place]
        keys = list(self._names[place, : layout.start])
        for slot in layout.slots:
            column = self._columns[slot]
            at = int(np.flatnonzero(column.rows == place)[0])
            keys += (column.low[at], column.high[at])
        return layout, Row(np.array(keys), self.figures[place].copy(), int(self.owner[place]))

    def find(self, question: Question) -> Ints:
        """Rows that are covered or covering."""
        if not self._layouts:
            return np.empty(0, dtype=np.int64)
        if question.relation is Relation.COVERED:
            found = self._covered(question)
        else:
            found = self._covering(question)
        return found[self._fits(question, found)]

    def apart(self, question: Question) -> Ints:
        """Rows that do not intersect, though their channel filter does."""
        if not self._layouts:
            return np.empty(0, dtype=np.int64)
        parts: list[Ints] = []
        for tests in question.sides:
            for slot, test in tests:
                column = self._columns.get(slot)
                if column is not None:
                    rows = column.rows[~test.holds(column.low, column.high)]
                    rows = rows[self._marks[rows] == 0]
                    self._marks[rows] = 1
                    parts.append(rows)
        found = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        self._marks[found] = 0
        return found[self._fits(question, found)]

    def all_fitting(self, question: Question) -> Ints:
        """Rows whose channel filter is related."""
        rows = np.flatnonzero(self.owner[: self._used] != NOBODY)
        return rows[self._fits(question, rows)]

    def nodes(self, rows: Ints) -> Floats:
        nodes: Floats = self._names[rows, 0]
        return nodes

    def check_invariants(self) -> None:
        assert not self._marks.any()
        assert len(self._layouts) + len(self._free) == self._used
        assert sorted(self._layouts) == np.flatnonzero(self.owner != NOBODY).tolist()
        entries = sum(len(layout.slots) for layout in self._layouts.values())
        assert entries == sum(column.size for column in self._columns.values())
        for column in self._columns.values():
            assert 0 < column.size == len(np.unique(column.rows))

    # ------------------------------------------------------------------------------------- inside

    def _covered(self, question: Question) -> Ints:
        """Rows that have a side within each that was asked about."""
        found: Ints | None = None
        for tests in question.sides:
            parts = [
                column.rows[test.holds(column.low, column.high)]
                for slot, test in tests
                if (column := self._columns.get(slot)) is not None
            ]
            rows = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
            if found is not None:
                self._marks[found] = 1
                rows, before = rows[self._marks[rows] == 1], found
                self._marks[before] = 0
            found = rows
        return np.flatnonzero(self.owner[: self._used] != NOBODY) if found is None else found

    def _covering(self, question: Question) -> Ints:
        """Rows of which each side is around one that was asked about."""
        parts: list[Ints] = []
        for tests in question.sides:
            for slot, test in tests:
                column = self._columns.get(slot)
                if column is not None:
                    rows = column.rows[test.holds(column.low, column.high)]
                    self._marks[rows] += 1
                    parts.append(rows)
        if not parts:
            return np.empty(0, dtype=np.int64)
        met = np.concatenate(parts)
        found = np.unique(met[self._marks[met] == self._sides[met]])
        self._marks[met] = 0
        return found

    def _fits(self, question: Question, rows: Ints) -> Mask:
        """Whether channel filters and nodes are such as was asked."""
        kinds = self._kind[rows]
        fits = question.kinds[kinds]
        for columns, values in question.names:
            column = columns[kinds]
            fits &= (column < 0) | (self._names[rows, np.maximum(column, 0)] == values[kinds])
        if question.nodes is not None:
            fits &= question.nodes[self._names[rows, 0].astype(np.int64)]
        return fits

    def _make_room(self, place: int) -> None:
        if place < len(self.owner):
            return
        self.figures, self._kind, self._sides, self._names, self._marks = map(
            _grown, (self.figures, self._kind, self._sides, self._names, self._marks)
        )
        owner = np.full(len(self.figures), NOBODY, dtype=np.int64)
        owner[: len(self.owner)] = self.owner
        self.owner = owner

    def _make_room_for_names(self, wanted: int) -> None:
        have = self._names.shape[1]
        if wanted > have:
            wider = np.zeros((len(self._names), wanted))
            wider[:, :have] = self._names
            self._names = wider


def _grown(array: NDArray[Any]) -> NDArray[Any]:
    larger = np.zeros((2 * len(array), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
