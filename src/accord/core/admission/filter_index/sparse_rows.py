"""Rows of rare layouts, stored attribute by attribute instead of in leaves.

There may be as many layouts as rows. Each attribute is then constrained by few rows, so scanning
all constraints on the queried attributes is cheap. Rows that constrain none of them are related by
their channel filter alone, and are counted, not scanned. Of the others, only those whose channel
filter fits are tested: next to each constraint is the number of its row's summary (`tables`), which
decides that, so memory is read sequentially.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accord.core.admission.filter_index.constraints import ConstraintTest, Floats, Ints
from accord.core.admission.filter_index.leaves import NOBODY, Layout, LeafRow
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.selection import RowQuery
from accord.core.admission.filter_index.tables import MatchingSummaries

_FIRST: Final = 64
_NONE: Final[Ints] = np.empty(0, dtype=np.int64)


class _Column:
    """All constraints of one slot."""

    __slots__ = ("_high", "_low", "_rows", "_shades", "size")

    def __init__(self) -> None:
        self._rows: Ints = np.zeros(8, dtype=np.int64)
        self._shades: Ints = np.zeros(8, dtype=np.int64)
        self._low: Floats = np.zeros(8)
        self._high: Floats = np.zeros(8)
        self.size = 0

    @property
    def rows(self) -> Ints:
        return self._rows[: self.size]

    def bounds(self, row: int) -> tuple[float, float]:
        at = self._find(row)
        return float(self._low[at]), float(self._high[at])

    def fitting(self, fitting: MatchingSummaries) -> tuple[Ints, Floats, Floats]:
        """Return rows whose channel filter fits, and the bounds of their constraints."""
        size = self.size
        rows, low, high = self._rows[:size], self._low[:size], self._high[:size]
        if fitting.is_all:
            return rows, low, high
        at = fitting.shades.take(self._shades[:size]).nonzero()[0]
        return rows.take(at), low.take(at), high.take(at)

    def add(self, row: int, shade: int, low: float, high: float) -> None:
        at = self.size
        if at == len(self._rows):
            self._rows, self._shades = map(_grown, (self._rows, self._shades))
            self._low, self._high = map(_grown, (self._low, self._high))
        self._rows[at], self._shades[at] = row, shade
        self._low[at], self._high[at] = low, high
        self.size += 1

    def remove(self, row: int) -> None:
        at = self._find(row)
        last = self.size - 1
        for part in (self._rows, self._shades, self._low, self._high):
            part[at] = part[last]
        self.size = last

    def _find(self, row: int) -> int:
        return int((self.rows == row).argmax())


class SparseRows:
    """All sparse rows of an index, inverted by slot."""

    def __init__(self) -> None:
        self.figures: Ints = np.zeros((_FIRST, 4), dtype=np.int64)
        self.owner: Ints = np.full(_FIRST, NOBODY, dtype=np.int64)
        self._shade: Ints = np.zeros(_FIRST, dtype=np.int64)
        self._sides: NDArray[np.uint8] = np.zeros(_FIRST, dtype=np.uint8)
        self._names: Floats = np.zeros((_FIRST, 1))  # node and channel filter first, as in a row
        self._layouts: dict[int, Layout] = {}
        self._columns: dict[int, _Column] = {}  # by slot
        self._free: list[int] = []
        self._used = 0
        self._marks: NDArray[np.uint8] = np.zeros(_FIRST, dtype=np.uint8)  # 0 between queries

    def __len__(self) -> int:
        return len(self._layouts)

    def add(self, layout: Layout, row: LeafRow, shade: int) -> int:
        """Add a row; returns its place. `shade` is its number in `SparseRowSummaries`."""
        place = self._free.pop() if self._free else self._used
        if place == self._used:
            self._used += 1
            self._make_room(place)
        self._make_room_for_names(layout.start)
        self.figures[place] = row.figures
        self.owner[place] = row.owner
        self._shade[place] = shade
        self._sides[place] = len(layout.slots)
        self._names[place, : layout.start] = row.keys[: layout.start]
        self._layouts[place] = layout
        sides = row.keys[layout.start :].reshape(-1, 2).tolist()
        for slot, (low, high) in zip(layout.slots, sides, strict=True):
            self._columns.setdefault(slot, _Column()).add(place, shade, low, high)
        return place

    def remove(self, place: int) -> tuple[Layout, LeafRow]:
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

    def row(self, place: int) -> tuple[Layout, LeafRow]:
        layout = self._layouts[place]
        keys = list(self._names[place, : layout.start])
        for slot in layout.slots:
            keys += self._columns[slot].bounds(place)
        return layout, LeafRow(np.array(keys), self.figures[place].copy(), int(self.owner[place]))

    def shade(self, place: int) -> int:
        return int(self._shade[place])

    def find(self, question: RowQuery, fitting: MatchingSummaries) -> Ints:
        """Return rows that are covered or covering."""
        if not self._layouts:
            return _NONE
        if question.relation is Relation.COVERED:
            return self._covered(question, fitting)
        return self._covering(question, fitting)

    def apart(self, question: RowQuery, fitting: MatchingSummaries) -> Ints:
        """Return rows that do not intersect, though their channel filter does."""
        if not self._layouts:
            return _NONE
        parts: list[Ints] = []
        for tests in question.sides:
            for slot, test in tests:
                rows = self._rows(slot, test, fitting, passes=False)
                if parts:
                    rows = rows[self._marks.take(rows) == 0]
                self._marks[rows] = 1
                parts.append(rows)
        found = _joined(parts)
        self._marks[found] = 0
        return found

    def all_fitting(self, fitting: MatchingSummaries) -> Ints:
        """Return rows whose channel filter is related."""
        rows = np.flatnonzero(self.owner[: self._used] != NOBODY)
        return rows[fitting.shades[self._shade[rows]]]

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

    def _rows(
        self, slot: int, test: ConstraintTest, fitting: MatchingSummaries, *, passes: bool = True
    ) -> Ints:
        """Return fitting rows whose constraint of this slot passes the test, or fails it."""
        column = self._columns.get(slot)
        if column is None:
            return _NONE
        rows, low, high = column.fitting(fitting)
        holds = test.holds(low, high)
        return rows[holds if passes else ~holds]

    def _covered(self, question: RowQuery, fitting: MatchingSummaries) -> Ints:
        """Return rows that have a constraint within each one of the query."""
        found: Ints | None = None
        for tests in question.sides:
            rows = _joined([self._rows(slot, test, fitting) for slot, test in tests])
            if found is not None:
                self._marks[found] = 1
                rows, before = rows[self._marks[rows] == 1], found
                self._marks[before] = 0
            found = rows
        return self.all_fitting(fitting) if found is None else found

    def _covering(self, question: RowQuery, fitting: MatchingSummaries) -> Ints:
        """Return rows each of whose constraints contains one of the query."""
        parts: list[Ints] = []
        for tests in question.sides:
            for slot, test in tests:
                rows = self._rows(slot, test, fitting)
                self._marks[rows] += 1
                parts.append(rows)
        met = _joined(parts)
        found = np.unique(met[self._marks[met] == self._sides[met]])
        self._marks[met] = 0
        return found

    def _make_room(self, place: int) -> None:
        if place < len(self.owner):
            return
        self.figures, self._shade = _grown(self.figures), _grown(self._shade)
        self._sides, self._marks = _grown(self._sides), _grown(self._marks)
        self._names = _grown(self._names)
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


def _joined(parts: list[Ints]) -> Ints:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else _NONE
