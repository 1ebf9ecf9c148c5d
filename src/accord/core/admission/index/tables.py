"""Rows in leaves by layout, and rows that stand for strays.

Strays are kept elsewhere, but for each channel filter and node there is a row here with the sums of
its strays: so that those which are related by their channel filter are summed without looking at
each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from accord.core.admission.index.clusters import Clusters
from accord.core.admission.index.keys import SEVERAL
from accord.core.admission.index.leaves import NOBODY, ROWS, Layout, Leaves, Row
from accord.core.admission.index.selection import Question, Search, Selection
from accord.core.admission.index.sides import Floats, Ints


@dataclass(frozen=True, slots=True)
class Sums:
    """Over advertisements: their rates, in thousandths of a hertz, and how many they are."""

    rate: int
    count: int

    def plus(self, other: Sums) -> Sums:
        return Sums(self.rate + other.rate, self.count + other.count)


NOTHING: Final = Sums(0, 0)


class Table:
    """Rows in leaves, by layout."""

    def __init__(self, places: list[int]) -> None:
        self.leaves = Leaves()
        self.groups: dict[Layout, Clusters] = {}
        self.size = 0
        self._places = places

    def add(self, layout: Layout, row: Row) -> None:
        group = self.groups.get(layout)
        if group is None:
            group = self.groups[layout] = Clusters(layout, self.leaves, self._places)
        group.add(row)
        self.size += 1

    def remove(self, number: int) -> tuple[Layout, Row]:
        layout = self.leaves.layouts[self._places[number] // ROWS]
        assert layout is not None
        group = self.groups[layout]
        row = group.remove(number)
        if not group.rows:
            del self.groups[layout]
        self.size -= 1
        return layout, row

    def row(self, place: int) -> tuple[Layout, Row]:
        layout = self.leaves.layouts[place // ROWS]
        assert layout is not None
        return layout, self.leaves.row(place)

    def select(self, question: Question) -> Selection:
        return Search(self.leaves, question).run()

    def gain_own(self, place: int, rate: int, count: int) -> None:
        self.leaves.figures[place, :2] += (rate, count)
        self.leaves.changed(np.array([place]))

    def sum_own(self, selection: Selection) -> Sums:
        leaves, rows = selection
        sums = NOTHING
        if len(rows):
            sums = sums_of(self.leaves.figures.take(rows, axis=0).sum(axis=0))
        if len(leaves):
            own = self.leaves.totals(leaves).own.take(leaves, axis=0).sum(axis=0)
            sums = sums.plus(sums_of(own))
        return sums

    def nodes(self, rows: Ints) -> Floats:
        nodes: Floats = self.leaves.strips[self.leaves.first[rows // ROWS], rows % ROWS]
        return nodes

    def several(self, selection: Selection) -> list[int]:
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


class Shades:
    """What strays are together, by channel filter and node: rows without sides."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._table = Table(self._places)
        self._numbers: dict[tuple[float, ...], int] = {}
        self._free: list[int] = []

    def gain(self, layout: Layout, keys: Floats, rate: int, count: int) -> None:
        """One stray more or less, or more or less of one."""
        start = keys[: layout.start]
        key = (layout.kind, *start.tolist())
        number = self._numbers.get(key)
        if number is None:
            number = self._free.pop() if self._free else len(self._places)
            if number == len(self._places):
                self._places.append(NOBODY)
            self._numbers[key] = number
            plain = Layout(layout.kind, layout.names, ())
            self._table.add(plain, Row(start, np.array((rate, count, 0, 0)), number))
            return
        self._table.gain_own(self._places[number], rate, count)
        if not self._table.leaves.figures[self._places[number], 1]:
            del self._numbers[key]
            self._table.remove(number)
            self._free.append(number)

    def sum(self, question: Question) -> Sums:
        if not self._numbers:
            return NOTHING
        plain = Question(question.relation, question.kinds, question.names, question.nodes)
        return self._table.sum_own(self._table.select(plain))

    def check_invariants(self) -> None:
        self._table.check_invariants()
        assert len(self._numbers) == self._table.size


def sums_of(values: Ints) -> Sums:
    return Sums(int(values[0]), int(values[1]))
