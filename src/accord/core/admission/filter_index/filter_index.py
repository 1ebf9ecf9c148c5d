"""Index of box filters and their sums, for aggregates over all filters related to a given one.

`row_encoder` turns filters into rows of numbers, `leaves` stores rows, `tables` assigns rows to
leaves, and `selection` searches them. Rows of a rare layout are sparse rows (`sparse_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np

from accord.core.admission.filter_index.constraints import Ints
from accord.core.admission.filter_index.filters import Box
from accord.core.admission.filter_index.leaves import NOBODY, Layout, LeafRow
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.row_encoder import SEVERAL, RowEncoder
from accord.core.admission.filter_index.selection import RowSelection
from accord.core.admission.filter_index.sparse_rows import SparseRows
from accord.core.admission.filter_index.tables import (
    LeafTable,
    MatchingSummaries,
    SparseRowSummaries,
    Sums,
    sum_own,
    sums_of,
)

MAX_SIDES: Final = 16
_MANY: Final = 32  # rows of one layout from which it gets leaves
_FEW: Final = 8  # rows of one layout below which they become sparse rows

Figures = tuple[int, int, int, int]  # own rate, own count, rate, count


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """Result of a search: rows in leaves, and sparse rows.

    With `is_inverse`, `strays` are the sparse rows of `fitting` that are not related.
    """

    selection: RowSelection
    strays: Ints
    fitting: MatchingSummaries  # sparse rows by their channel filters
    is_inverse: bool


class FilterIndex:
    """Rows under numbers chosen by the caller, which should be small."""

    def __init__(self) -> None:
        self._keys = RowEncoder()
        self._places: list[int] = []  # of rows in leaves; those of sparse rows are below NOBODY
        self._rows = LeafTable(self._places)
        self._strays = SparseRows()
        self._few: dict[Layout, dict[int, None]] = {}  # sparse rows, by layout
        self._shades = SparseRowSummaries()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def strays(self) -> int:
        return len(self._strays)

    def has_room(self, box: Box) -> bool:
        """Check whether the index can hold this box; the caller keeps others elsewhere."""
        return len(box) <= MAX_SIDES and self._keys.has_room(box)

    # --------------------------------------------------------------------------------------- rows

    def add(self, number: int, channel: str, node: str | None, box: Box, figures: Figures) -> None:
        """Add a row; `node` None stands for several."""
        while len(self._places) <= number:
            self._places.append(NOBODY)
        assert self._places[number] == NOBODY
        layout, keys = self._keys.take(channel, node, box)
        row = LeafRow(keys, np.array(figures), number)
        if layout in self._rows.groups or not layout.slots:
            self._rows.add(layout, row)
        else:
            self._add_stray(layout, row)
            if len(self._few[layout]) >= _MANY:
                self._settle(layout)
        self._size += 1

    def remove(self, number: int) -> Figures:
        place = self._places[number]
        if place < NOBODY:
            layout, row = self._remove_stray(number)
        else:
            layout, row = self._rows.remove(number)
            if layout.slots and layout in self._rows.groups:
                self._unsettle(layout)
        self._keys.give_back(layout, row.keys)
        self._size -= 1
        return _figures(row.figures)

    def figures(self, number: int) -> Figures:
        return _figures(self._row(number)[1].figures)

    def box(self, number: int) -> Box:
        """Return the box as it was added."""
        layout, row = self._row(number)
        return self._keys.box(layout, row.keys)

    # -------------------------------------------------------------------------------------- queries

    def select(
        self, relation: Relation, channel: str, box: Box, nodes: frozenset[str] | None = None
    ) -> RelatedRows:
        """Return the rows related to a box; only of `nodes` or of several nodes, if given."""
        question = self._keys.question(relation, channel, box, nodes)
        selection = self._rows.select(question)
        fitting = self._shades.ask(question)
        is_inverse = relation is Relation.INTERSECTING
        look = self._strays.apart if is_inverse else self._strays.find
        return RelatedRows(selection, look(question, fitting), fitting, is_inverse)

    def either(self, several: Sequence[RelatedRows]) -> RelatedRows:
        """Return the union."""
        return self._combined(np.union1d, several)

    def both(self, several: Sequence[RelatedRows]) -> RelatedRows:
        """Return the intersection."""
        return self._combined(np.intersect1d, several)

    def twice(self, several: Sequence[RelatedRows]) -> RelatedRows:
        """Return the rows that are in more than one of these."""
        parts = [self._all_rows(each) for each in several]
        rows, strays = (
            np.unique(np.concatenate(part), return_counts=True) for part in zip(*parts, strict=True)
        )
        return self._listed(several[0], rows[0][rows[1] > 1], strays[0][strays[1] > 1])

    def only(self, related: RelatedRows, numbers: Collection[int]) -> RelatedRows:
        """Return those of `related` that have one of these numbers."""
        rows, strays = self._all_rows(related)
        wanted = np.array(sorted(numbers), dtype=np.int64)
        is_wanted = np.isin(self._rows.leaves.owner[rows], wanted)
        return self._listed(
            related, rows[is_wanted], strays[np.isin(self._strays.owner[strays], wanted)]
        )

    def numbers(self, related: RelatedRows) -> list[int]:
        leaves = self._rows.leaves
        owners: list[int] = leaves.owner[related.selection.all_rows(leaves)].tolist()
        strays: list[int] = self._strays.owner[self._stray_rows(related)].tolist()
        return owners + strays

    def sum_own(self, related: RelatedRows) -> Sums:
        strays = sum_own(self._strays.figures, related.strays)
        if related.is_inverse:
            fitting = related.fitting.sums
            strays = Sums(fitting.rate - strays.rate, fitting.count - strays.count)
        return self._rows.sum_own(related.selection).plus(strays)

    def most(self, related: RelatedRows) -> Sums:
        """Return the greatest rate and the greatest count of any row; 0 if there are none."""
        rate = count = 0
        for part in self._reached(related, "most"):
            rate, count = max(rate, int(part[:, 0].max())), max(count, int(part[:, 1].max()))
        return Sums(rate, count)

    def least(self, related: RelatedRows) -> Sums | None:
        """Return the smallest rate and the smallest count of any row; None if there are none."""
        found: Sums | None = None
        for part in self._reached(related, "least"):
            rate, count = int(part[:, 0].min()), int(part[:, 1].min())
            found = Sums(
                rate if found is None else min(rate, found.rate),
                count if found is None else min(count, found.count),
            )
        return found

    def several(self, related: RelatedRows) -> list[int]:
        """Return the numbers of rows that are of several nodes."""
        owners = self._rows.several(related.selection)
        strays = self._stray_rows(related)
        strays = strays[self._strays.nodes(strays) == SEVERAL]
        owners += self._strays.owner[strays].tolist()
        return owners

    def sum_by_node(self, related: RelatedRows) -> dict[str, Sums]:
        """Return sums of own figures by node, without rows of several nodes."""
        leaves = self._rows.leaves
        rows, strays = self._all_rows(related)
        nodes = np.concatenate((self._rows.nodes(rows), self._strays.nodes(strays)))
        figures = np.concatenate((leaves.figures[rows, :2], self._strays.figures[strays, :2]))
        codes = nodes.astype(np.int64)
        sums = np.zeros((self._keys.nodes, 2), dtype=np.int64)
        np.add.at(sums, codes, figures)
        present = np.unique(codes).tolist()
        return {self._keys.node(code): sums_of(sums[code]) for code in present if code != SEVERAL}

    def gain(self, related: RelatedRows, rate: int, count: int) -> None:
        """Add to rate and count of all these rows."""
        leaves = self._rows.leaves
        rows = related.selection.all_rows(leaves)
        strays = self._stray_rows(related)
        for figures, places in ((leaves.figures, rows), (self._strays.figures, strays)):
            figures[places, 2] += rate
            figures[places, 3] += count
        leaves.changed(rows)

    def gain_own(self, number: int, rate: int, count: int) -> None:
        """Add to a row's own rate and count; `gain` changes its totals."""
        place = self._places[number]
        if place < NOBODY:
            self._strays.figures[_stray(place), :2] += (rate, count)
            self._shades.gain(self._strays.shade(_stray(place)), rate, count)
        else:
            self._rows.gain_own(place, rate, count)

    def check_invariants(self) -> None:
        self._keys.check_invariants()
        self._rows.check_invariants()
        self._strays.check_invariants()
        self._shades.check_invariants()
        strays = [number for numbers in self._few.values() for number in numbers]
        assert len(strays) == len(self._strays)
        assert all(self._places[number] < NOBODY for number in strays)
        assert all(0 < len(numbers) < _MANY for numbers in self._few.values())
        assert not self._few.keys() & self._rows.groups.keys()
        places = [place for place in self._places if place != NOBODY]
        assert len(places) == self._size == len(strays) + self._rows.size
        for number, place in enumerate(self._places):
            if place != NOBODY:
                assert self._row(number)[1].owner == number

    # ------------------------------------------------------------------------------------- inside

    def _row(self, number: int) -> tuple[Layout, LeafRow]:
        place = self._places[number]
        assert place != NOBODY
        return self._strays.row(_stray(place)) if place < NOBODY else self._rows.row(place)

    def _add_stray(self, layout: Layout, row: LeafRow) -> None:
        shade = self._shades.add(layout, row)
        self._places[row.owner] = _stray(self._strays.add(layout, row, shade))
        self._few.setdefault(layout, {})[row.owner] = None

    def _remove_stray(self, number: int) -> tuple[Layout, LeafRow]:
        place = _stray(self._places[number])
        shade = self._strays.shade(place)
        layout, row = self._strays.remove(place)
        self._shades.remove(shade, layout, row)
        self._places[number] = NOBODY
        del self._few[layout][number]
        if not self._few[layout]:
            del self._few[layout]
        return layout, row

    def _settle(self, layout: Layout) -> None:
        """Move a layout's sparse rows to leaves."""
        for number in list(self._few[layout]):
            _, row = self._remove_stray(number)
            self._rows.add(layout, row)

    def _unsettle(self, layout: Layout) -> None:
        group = self._rows.groups[layout]
        if group.rows < _FEW:
            for number in list(group):
                self._add_stray(*self._rows.remove(number))

    def _all_rows(self, related: RelatedRows) -> tuple[Ints, Ints]:
        return related.selection.all_rows(self._rows.leaves), self._stray_rows(related)

    def _combined(
        self, combine: Callable[[Ints, Ints], Ints], several: Sequence[RelatedRows]
    ) -> RelatedRows:
        parts = [self._all_rows(each) for each in several]
        rows, strays = (reduce(combine, part) for part in zip(*parts, strict=True))
        return self._listed(several[0], rows, strays)

    def _listed(self, related: RelatedRows, rows: Ints, strays: Ints) -> RelatedRows:
        selection = RowSelection(rows[:0], rows)
        return RelatedRows(selection, strays, related.fitting, False)

    def _stray_rows(self, related: RelatedRows) -> Ints:
        if not related.is_inverse:
            return related.strays
        return np.setdiff1d(
            self._strays.all_fitting(related.fitting), related.strays, assume_unique=True
        )

    def _reached(self, related: RelatedRows, which: str) -> Iterator[Ints]:
        """Yield rates and counts: of whole leaves, of single rows, and of sparse rows."""
        table, (leaves, rows) = self._rows.leaves, related.selection
        if len(leaves):
            totals: Ints = getattr(table.totals(leaves), which)
            yield totals.take(leaves, axis=0)
        if len(rows):
            yield table.figures.take(rows, axis=0)[:, 2:]
        strays = self._stray_rows(related)
        if len(strays):
            yield self._strays.figures.take(strays, axis=0)[:, 2:]


def _stray(place: int) -> int:
    """Convert between a sparse row's place and its code in `_places`; its own inverse."""
    return NOBODY - 1 - place


def _figures(figures: Ints) -> Figures:
    own_rate, own_count, rate, count = figures.tolist()
    return own_rate, own_count, rate, count
