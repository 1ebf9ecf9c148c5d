"""Columnar storage of index rows, in leaves of up to 64.

A leaf holds rows of one layout: filters whose channel filters are of one kind and which constrain
the same attributes. It has columns for the node, for the channel filter and the names in it, and
for `low` and `high` of each constraint. One column of a leaf is a strip; the strips of all leaves
are in one array, each with its minimum and maximum. A query thus tests all leaves at once by these
(as zone maps do), and scans rows only of leaves where they do not decide for all rows.

For leaves all of whose rows are related, sums, minima and maxima over their rows are cached, and
recomputed on demand after a change.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accord.core.admission.filter_index.constraints import Floats, Ints

ROWS: Final = 64
NOBODY: Final = -1
_FIRST: Final = 64

POSITIONS: Final = np.arange(ROWS)


class Layout(NamedTuple):
    """The columns of a leaf: node, channel filter, names in it, constraints."""

    kind: int  # of the channel filter
    names: int
    slots: tuple[int, ...]  # of its constraints

    @property
    def start(self) -> int:
        """Number of columns before those of the constraints."""
        return 2 + self.names

    @property
    def columns(self) -> int:
        return self.start + 2 * len(self.slots)


class LeafRow(NamedTuple):
    """A row outside its leaf."""

    keys: Floats
    figures: Ints  # own rate, own count, rate, count
    owner: int


class Totals(NamedTuple):
    """Aggregates of whole leaves, by leaf."""

    own: Ints  # sums of own rate and own count
    least: Ints  # of rate and count
    most: Ints


class Leaves:
    """All leaves of an index."""

    def __init__(self) -> None:
        self.strips: Floats = np.zeros((_FIRST, ROWS))
        self.least: Floats = np.zeros(_FIRST)  # by strip
        self.most: Floats = np.zeros(_FIRST)
        self.first: Ints = np.zeros(_FIRST, dtype=np.int64)  # first strip, by leaf
        self.base: Ints = np.zeros(_FIRST, dtype=np.int64)  # first constraint strip, by leaf
        self.size: Ints = np.zeros(_FIRST, dtype=np.int64)
        self.kind: Ints = np.zeros(_FIRST, dtype=np.int64)
        self.sides: Ints = np.zeros(_FIRST, dtype=np.int64)
        self.slots: NDArray[np.int32] = np.full((_FIRST, 1), NOBODY, dtype=np.int32)
        self.figures: Ints = np.zeros((_FIRST * ROWS, 4), dtype=np.int64)
        self.owner: Ints = np.full(_FIRST * ROWS, NOBODY, dtype=np.int64)
        self.layouts: list[Layout | None] = []
        self._totals = Totals(*(np.zeros((_FIRST, 2), dtype=np.int64) for _ in range(3)))
        self._is_stale: NDArray[np.bool_] = np.zeros(_FIRST, dtype=np.bool_)
        self._used_strips = 0
        self._free_leaves: list[int] = []
        self._free_strips: dict[int, list[int]] = {}

    def __len__(self) -> int:
        """Upper bound of leaf numbers."""
        return len(self.layouts)

    # ------------------------------------------------------------------------------------- leaves

    def open(self, layout: Layout) -> int:
        leaf = self._free_leaves.pop() if self._free_leaves else len(self.layouts)
        if leaf == len(self.layouts):
            self.layouts.append(None)
            self._make_room_for_leaves()
        sides = len(layout.slots)
        self._make_room_for_sides(sides)
        self.layouts[leaf] = layout
        self.first[leaf] = self._strips(layout.columns)
        self.base[leaf] = self.first[leaf] + layout.start
        self.size[leaf] = 0
        self.kind[leaf] = layout.kind
        self.sides[leaf] = sides
        self.slots[leaf] = NOBODY
        self.slots[leaf, :sides] = layout.slots
        self._is_stale[leaf] = True
        return leaf

    def close(self, leaf: int) -> None:
        layout = self.layouts[leaf]
        assert layout is not None
        assert not self.size[leaf]
        self._free_strips.setdefault(layout.columns, []).append(int(self.first[leaf]))
        self._free_leaves.append(leaf)
        self.layouts[leaf] = None

    def keys(self, leaf: int) -> Floats:
        """All rows of a leaf, by column."""
        first, size = self.first[leaf], self.size[leaf]
        return self.strips[first : first + self._layout(leaf).columns, :size]

    def totals(self, leaves: Ints) -> Totals:
        """Return the totals of all leaves; only those of `leaves` are up to date."""
        stale = leaves[self._is_stale[leaves]]
        if len(stale):
            self._renew(stale)
        return self._totals

    def changed(self, rows: Ints) -> None:
        """Mark the figures of these rows as changed."""
        self._is_stale[rows // ROWS] = True

    # --------------------------------------------------------------------------------------- rows

    def add(self, leaf: int, row: LeafRow) -> int:
        """Add a row; returns its place."""
        position = int(self.size[leaf])
        assert position < ROWS
        first = self.first[leaf]
        columns = slice(first, first + len(row.keys))
        self.strips[columns, position] = row.keys
        self.size[leaf] += 1
        if position:
            np.minimum(self.least[columns], row.keys, out=self.least[columns])
            np.maximum(self.most[columns], row.keys, out=self.most[columns])
        else:
            self.least[columns] = self.most[columns] = row.keys
        place = leaf * ROWS + position
        self.figures[place] = row.figures
        self.owner[place] = row.owner
        self._is_stale[leaf] = True
        return place

    def remove(self, place: int) -> tuple[LeafRow, int]:
        """Return the row, and the owner of the row moved to its place (NOBODY: none)."""
        leaf, position = divmod(place, ROWS)
        keys = self.keys(leaf)
        last = int(self.size[leaf]) - 1
        row = self.row(place)
        keys[:, position] = keys[:, last]
        self.figures[place] = self.figures[leaf * ROWS + last]
        moved = int(self.owner[leaf * ROWS + last])
        self.owner[place] = moved
        self.owner[leaf * ROWS + last] = NOBODY
        self.size[leaf] = last
        if last:
            first = self.first[leaf]
            columns = slice(first, first + len(keys))
            self.least[columns] = keys[:, :last].min(axis=1)
            self.most[columns] = keys[:, :last].max(axis=1)
        self._is_stale[leaf] = True
        return row, NOBODY if last == position else moved

    def divide(self, leaf: int, order: Ints) -> int:
        """Move the second half of a leaf's rows, in this order, to a new leaf."""
        other = self.open(self._layout(leaf))
        half = len(order) // 2
        keys = self.keys(leaf)[:, order]
        places = leaf * ROWS + order
        figures, owner = self.figures[places], self.owner[places]
        for each, part in ((leaf, slice(0, half)), (other, slice(half, len(order)))):
            size = part.stop - part.start
            first = self.first[each]
            columns = slice(first, first + len(keys))
            self.strips[columns, :size] = keys[:, part]
            self.least[columns] = keys[:, part].min(axis=1)
            self.most[columns] = keys[:, part].max(axis=1)
            self.size[each] = size
            self.figures[each * ROWS : each * ROWS + size] = figures[part]
            self.owner[each * ROWS : (each + 1) * ROWS] = NOBODY
            self.owner[each * ROWS : each * ROWS + size] = owner[part]
            self._is_stale[each] = True
        return other

    def clear(self, leaf: int) -> list[LeafRow]:
        """Remove and return all rows."""
        size = int(self.size[leaf])
        rows = [self.row(leaf * ROWS + position) for position in range(size)]
        self.owner[leaf * ROWS : leaf * ROWS + size] = NOBODY
        self.size[leaf] = 0
        self._is_stale[leaf] = True
        return rows

    def row(self, place: int) -> LeafRow:
        leaf, position = divmod(place, ROWS)
        return LeafRow(
            self.keys(leaf)[:, position].copy(),
            self.figures[place].copy(),
            int(self.owner[place]),
        )

    def check_invariants(self) -> None:
        for leaf, layout in enumerate(self.layouts):
            size = int(self.size[leaf])
            places = leaf * ROWS + POSITIONS
            assert (self.owner[places[size:]] == NOBODY).all()
            if layout is None:
                assert not size
                continue
            assert (self.owner[places[:size]] != NOBODY).all()
            if not size:
                continue
            keys = self.keys(leaf)
            columns = self.first[leaf] + np.arange(layout.columns)
            assert (self.least[columns] == keys.min(axis=1)).all()
            assert (self.most[columns] == keys.max(axis=1)).all()
            figures = self.figures[places[:size]]
            totals = self.totals(np.array([leaf]))
            assert (totals.own[leaf] == figures[:, :2].sum(axis=0)).all()
            assert (totals.least[leaf] == figures[:, 2:].min(axis=0)).all()
            assert (totals.most[leaf] == figures[:, 2:].max(axis=0)).all()

    # ------------------------------------------------------------------------------------- inside

    def _layout(self, leaf: int) -> Layout:
        layout = self.layouts[leaf]
        assert layout is not None
        return layout

    def _renew(self, leaves: Ints) -> None:
        figures = self.figures.reshape(-1, ROWS, 4)[leaves]
        is_row = self.size[leaves][:, None] > POSITIONS
        shown = np.where(is_row[:, :, None], figures, 0)
        self._totals.own[leaves] = shown[:, :, :2].sum(axis=1)
        self._totals.most[leaves] = shown[:, :, 2:].max(axis=1)
        huge = np.iinfo(np.int64).max
        self._totals.least[leaves] = np.where(is_row[:, :, None], figures[:, :, 2:], huge).min(
            axis=1
        )
        self._is_stale[leaves] = False

    def _strips(self, columns: int) -> int:
        free = self._free_strips.get(columns)
        if free:
            return free.pop()
        first = self._used_strips
        self._used_strips += columns
        if self._used_strips > len(self.strips):
            self.strips = _grown(self.strips, self._used_strips)
            self.least = _grown(self.least, self._used_strips)
            self.most = _grown(self.most, self._used_strips)
        return first

    def _make_room_for_leaves(self) -> None:
        wanted = len(self.layouts)
        if wanted <= len(self.size):
            return
        for name in ("first", "base", "size", "kind", "sides", "slots"):
            setattr(self, name, _grown(getattr(self, name), wanted))
        self._is_stale = _grown(self._is_stale, wanted)
        self._totals = Totals(*(_grown(part, wanted) for part in self._totals))
        self.figures = _grown(self.figures, wanted * ROWS)
        owner = np.full(len(self.figures), NOBODY, dtype=np.int64)
        owner[: len(self.owner)] = self.owner
        self.owner = owner

    def _make_room_for_sides(self, sides: int) -> None:
        have = self.slots.shape[1]
        if sides > have:
            wider = np.full((len(self.size), sides), NOBODY, dtype=np.int32)
            wider[:, :have] = self.slots
            self.slots = wider


def _grown(array: NDArray[Any], wanted: int) -> NDArray[Any]:
    """Return a copy with at least twice the length."""
    larger = np.zeros((max(2 * len(array), wanted), *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
