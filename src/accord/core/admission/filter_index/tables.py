"""Rows in leaves by layout, and summary rows of sparse rows.

Sparse rows are stored elsewhere, but each channel filter and node has a row here with the sums of
its sparse rows, so that those related by their channel filter are summed without scanning them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np

from accord.core.admission.filter_index.clusters import Clusters
from accord.core.admission.filter_index.constraints import Floats, Ints, Mask
from accord.core.admission.filter_index.leaves import NOBODY, ROWS, Layout, LeafRow, Leaves
from accord.core.admission.filter_index.row_encoder import SEVERAL
from accord.core.admission.filter_index.selection import RowQuery, RowSelection, Search


@dataclass(frozen=True, slots=True)
class Sums:
    """Sum of the rates of advertisements, in thousandths of a hertz, and their number."""

    rate: int
    count: int

    def plus(self, other: Sums) -> Sums:
        return Sums(self.rate + other.rate, self.count + other.count)


NOTHING: Final = Sums(0, 0)
_KNOWN: Final = 64
_STRAYS: Final = 3  # column of a summary with the number of sparse rows


class LeafTable:
    """Rows in leaves, by layout."""

    def __init__(self, places: list[int]) -> None:
        self.leaves = Leaves()
        self.groups: dict[Layout, Clusters] = {}
        self.size = 0
        self._places = places

    def add(self, layout: Layout, row: LeafRow) -> None:
        group = self.groups.get(layout)
        if group is None:
            group = self.groups[layout] = Clusters(layout, self.leaves, self._places)
        group.add(row)
        self.size += 1

    def remove(self, number: int) -> tuple[Layout, LeafRow]:
        layout = self.leaves.layouts[self._places[number] // ROWS]
        assert layout is not None
        group = self.groups[layout]
        row = group.remove(number)
        if not group.rows:
            del self.groups[layout]
        self.size -= 1
        return layout, row

    def row(self, place: int) -> tuple[Layout, LeafRow]:
        layout = self.leaves.layouts[place // ROWS]
        assert layout is not None
        return layout, self.leaves.row(place)

    def select(self, question: RowQuery) -> RowSelection:
        return Search(self.leaves, question).run()

    def gain_own(self, place: int, rate: int, count: int) -> None:
        self.leaves.figures[place, :2] += (rate, count)
        self.leaves.changed(np.array([place]))

    def sum_own(self, selection: RowSelection) -> Sums:
        leaves, rows = selection
        sums = sum_own(self.leaves.figures, rows)
        return sums.plus(sum_own(self.leaves.totals(leaves).own, leaves)) if len(leaves) else sums

    def nodes(self, rows: Ints) -> Floats:
        nodes: Floats = self.leaves.strips[self.leaves.first[rows // ROWS], rows % ROWS]
        return nodes

    def several(self, selection: RowSelection) -> list[int]:
        rows = selection.all_rows(self.leaves)
        owners: list[int] = self.leaves.owner[rows[self.nodes(rows) == SEVERAL]].tolist()
        return owners

    def check_invariants(self) -> None:
        self.leaves.check_invariants()
        for layout, group in self.groups.items():
            assert group.layout == layout
            assert group.rows
            group.check_invariants()
        assert self.size == sum(group.rows for group in self.groups.values())


@dataclass(frozen=True, slots=True)
class MatchingSummaries:
    """Summaries whose channel filter and node are related, and the sums of their own figures."""

    shades: Mask
    is_all: bool
    sums: Sums


class SparseRowSummaries:
    """Sums of sparse rows by channel filter and node, as rows without constraints.

    Each sparse row stores the number of its summary (its shade). So whether sparse rows fit is
    decided once per summary, and looked up for each row.
    """

    def __init__(self) -> None:
        self._places: list[int] = []
        self._table = LeafTable(self._places)
        self._numbers: dict[tuple[float, ...], int] = {}
        self._free: list[int] = []
        self._known: dict[Hashable, Ints] = {}  # cache of fitting rows, by `RowQuery.about`

    def add(self, layout: Layout, row: LeafRow) -> int:
        """Add a sparse row; returns the number of its summary."""
        start = row.keys[: layout.start]
        own_rate, own_count = row.figures[:2].tolist()
        key = (layout.kind, *start.tolist())
        number = self._numbers.get(key)
        if number is None:
            number = self._free.pop() if self._free else len(self._places)
            if number == len(self._places):
                self._places.append(NOBODY)
            self._numbers[key] = number
            self._known.clear()
            plain = Layout(layout.kind, layout.names, ())
            self._table.add(plain, LeafRow(start, np.array((own_rate, own_count, 0, 1)), number))
        else:
            self._gain(number, own_rate, own_count, 1)
        return number

    def remove(self, number: int, layout: Layout, row: LeafRow) -> None:
        """Remove a sparse row."""
        own_rate, own_count = row.figures[:2].tolist()
        self._gain(number, -own_rate, -own_count, -1)
        if not self._table.leaves.figures[self._places[number], _STRAYS]:
            del self._numbers[layout.kind, *row.keys[: layout.start].tolist()]
            self._table.remove(number)
            self._known.clear()
            self._free.append(number)

    def gain(self, number: int, rate: int, count: int) -> None:
        """Add to the own figures of a sparse row."""
        self._gain(number, rate, count, 0)

    def ask(self, question: RowQuery) -> MatchingSummaries:
        shades = np.zeros(len(self._places), dtype=np.bool_)
        if not self._numbers:
            return MatchingSummaries(shades, False, NOTHING)
        rows = self._fitting(question)
        leaves = self._table.leaves
        shades[leaves.owner[rows]] = True
        return MatchingSummaries(
            shades, len(rows) == len(self._numbers), sum_own(leaves.figures, rows)
        )

    def check_invariants(self) -> None:
        self._table.check_invariants()
        assert len(self._numbers) == self._table.size
        assert len(self._numbers) + len(self._free) == len(self._places)

    def _fitting(self, question: RowQuery) -> Ints:
        """Return fitting summaries; those of recent channel filters are cached."""
        rows = self._known.get(question.about)
        if rows is None:
            plain = RowQuery(
                question.relation, question.about, question.kinds, question.names, question.nodes
            )
            rows = self._table.select(plain).all_rows(self._table.leaves)
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[question.about] = rows
        return rows

    def _gain(self, number: int, rate: int, count: int, strays: int) -> None:
        place = self._places[number]
        self._table.gain_own(place, rate, count)
        self._table.leaves.figures[place, _STRAYS] += strays


def sum_own(figures: Ints, places: Ints) -> Sums:
    if not len(places):
        return NOTHING
    chosen = figures.take(places, axis=0)
    # Column by column: both at once take six times as long.
    return Sums(int(chosen[:, 0].sum()), int(chosen[:, 1].sum()))


def sums_of(values: Ints) -> Sums:
    return Sums(int(values[0]), int(values[1]))
