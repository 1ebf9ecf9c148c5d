"""Rows in leaves by layout, and summary rows of sparse rows.

Sparse rows are stored elsewhere, but each channel filter and node has a row here with the sums of
its sparse rows, so that those related by their channel filter are summed without scanning them.

Assignment of rows to leaves by least enlargement of bounds, as in an R-tree.

Leaves of one layout are in clusters of up to 128. A row goes to the cluster, and in it to the leaf,
whose bounds it enlarges least, each column scaled by its overall width; names have a higher weight.
A full leaf or cluster is split at the median of its widest column. Nearly empty leaves are
dissolved. All of this only affects speed: a row is found wherever it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from accord.core.admission.filter_index.constraints import Floats, Ints, Mask
from accord.core.admission.filter_index.filters import microseconds
from accord.core.admission.filter_index.leaves import NOBODY, ROWS, Layout, LeafRow, Leaves
from accord.core.admission.filter_index.row_encoder import SEVERAL
from accord.core.admission.filter_index.selection import RowQuery, RowSelection, Search

_LEAVES: Final = 128
_FEW_ROWS: Final = 8
_NAME_WEIGHT: Final = 2.0
# Bounds of open ranges, which are no measure of distance.
_HUGE: Final = 1e300
_BEGINNING: Final = float(microseconds(datetime.min.replace(tzinfo=UTC)))


class Clusters:
    """All leaves of one layout; `places` are those of all rows, by owner."""

    def __init__(self, layout: Layout, leaves: Leaves, places: list[int]) -> None:
        self.layout = layout
        self.rows = 0
        self._leaves = leaves
        self._places = places
        self._clusters: list[list[int]] = []
        self._of: dict[int, list[int]] = {}  # cluster by leaf
        self._least: Floats = np.empty((0, layout.columns))  # by cluster; a lower bound
        self._most: Floats = np.empty((0, layout.columns))
        self._weights = _weights(layout)
        self._columns: Ints = np.arange(layout.columns)
        self._floor: Floats = np.full(layout.columns, np.inf)  # minimum of all finite values
        self._ceiling: Floats = np.full(layout.columns, -np.inf)
        self._from: Floats = np.zeros(layout.columns)  # values are clipped to this range
        self._to: Floats = np.zeros(layout.columns)
        self._scale: Floats = self._weights

    def __iter__(self) -> Iterator[int]:
        """Iterate over the owners of all rows."""
        for leaf in self._of:
            yield from self._owners(leaf)

    def add(self, row: LeafRow) -> None:
        self.rows += 1
        self._measure(row.keys)
        if not self._clusters:
            leaf = self._leaves.open(self.layout)
            self._append([leaf], row.keys, row.keys)
        at = self._nearest(self._least, self._most, row.keys)
        cluster = self._clusters[at]
        np.minimum(self._least[at], row.keys, out=self._least[at])
        np.maximum(self._most[at], row.keys, out=self._most[at])
        leaf = cluster[self._nearest(*self._bounds(cluster), row.keys)]
        if self._leaves.size[leaf] == ROWS:
            leaf = self._divide_leaf(cluster, leaf, row.keys)
        self._places[row.owner] = self._leaves.add(leaf, row)
        if len(cluster) > _LEAVES:
            self._divide_cluster(at)

    def remove(self, owner: int) -> LeafRow:
        place = self._places[owner]
        leaf = place // ROWS
        row, moved = self._leaves.remove(place)
        self._places[owner] = NOBODY
        if moved != NOBODY:
            self._places[moved] = place
        self.rows -= 1
        size = int(self._leaves.size[leaf])
        if not size or (size < _FEW_ROWS and len(self._of) > 1):
            self._dissolve(leaf)
        return row

    def check_invariants(self) -> None:
        leaves = [leaf for cluster in self._clusters for leaf in cluster]
        assert sorted(leaves) == sorted(self._of)
        assert len(self._clusters) == len(self._least) == len(self._most)
        assert self.rows == sum(int(self._leaves.size[leaf]) for leaf in leaves)
        for at, cluster in enumerate(self._clusters):
            assert 0 < len(cluster) <= _LEAVES
            for leaf in cluster:
                assert self._of[leaf] is cluster
                assert self._leaves.layouts[leaf] == self.layout
                keys = self._leaves.keys(leaf)
                assert keys.shape[1] > 0
                assert (self._least[at][:, None] <= keys).all()
                assert (self._most[at][:, None] >= keys).all()

    # ----------------------------------------------------------------------------------- measures

    def _measure(self, keys: Floats) -> None:
        """Update the width of each column."""
        usable = (np.abs(keys) < _HUGE) & (keys != _BEGINNING)
        if not (usable & ((keys < self._floor) | (keys > self._ceiling))).any():
            return
        np.minimum(self._floor, keys, out=self._floor, where=usable)
        np.maximum(self._ceiling, keys, out=self._ceiling, where=usable)
        has_any = self._floor <= self._ceiling
        floor = np.where(has_any, self._floor, 0.0)
        ceiling = np.where(has_any, self._ceiling, 0.0)
        width = ceiling - floor
        # A width of rounding errors is treated as none, and must not be a divisor.
        wide = np.where(width > 1e-9 * (1.0 + np.abs(ceiling)), width, 1.0)
        self._from, self._to = floor - wide, ceiling + wide
        self._scale = self._weights / wide

    def _nearest(self, least: Floats, most: Floats, keys: Floats) -> int:
        if len(least) == 1:
            return 0
        key = self._clipped(keys)
        above = key - self._clipped(most)
        below = self._clipped(least) - key
        grown = np.maximum(np.maximum(above, below, out=above), 0.0, out=above)
        return int((grown @ self._scale).argmin())

    def _widest(self, least: Floats, most: Floats) -> int:
        width = self._clipped(most) - self._clipped(least)
        return int((width * self._scale).argmax())

    def _clipped(self, values: Floats) -> Floats:
        clipped: Floats = np.minimum(np.maximum(values, self._from), self._to)
        return clipped

    def _bounds(self, cluster: list[int]) -> tuple[Floats, Floats]:
        strips = self._leaves.first[cluster][:, None] + self._columns
        return self._leaves.least[strips], self._leaves.most[strips]

    # ------------------------------------------------------------------------------------ splitting

    def _divide_leaf(self, cluster: list[int], leaf: int, keys: Floats) -> int:
        """Split a leaf; returns the half to which `keys` belong."""
        rows = self._leaves.keys(leaf)
        column = self._widest(rows.min(axis=1), rows.max(axis=1))
        order = np.argsort(rows[column], kind="stable")
        middle = rows[column, order[ROWS // 2]]
        other = self._leaves.divide(leaf, order)
        for each in (leaf, other):
            for position, owner in enumerate(self._owners(each)):
                self._places[owner] = each * ROWS + position
        cluster.append(other)
        self._of[other] = cluster
        return other if keys[column] >= middle else leaf

    def _divide_cluster(self, at: int) -> None:
        cluster = self._clusters[at]
        least, most = self._bounds(cluster)
        column = self._widest(least.min(axis=0), most.max(axis=0))
        middles = (self._clipped(least) + self._clipped(most))[:, column]
        order = np.argsort(middles, kind="stable")
        low, high = order[: len(order) // 2], order[len(order) // 2 :]
        leaves = [cluster[place] for place in high]
        cluster[:] = [cluster[place] for place in low]
        self._least[at], self._most[at] = least[low].min(axis=0), most[low].max(axis=0)
        self._append(leaves, least[high].min(axis=0), most[high].max(axis=0))

    def _append(self, leaves: list[int], least: Floats, most: Floats) -> None:
        self._clusters.append(leaves)
        self._least = np.vstack((self._least, least))
        self._most = np.vstack((self._most, most))
        for leaf in leaves:
            self._of[leaf] = leaves

    def _dissolve(self, leaf: int) -> None:
        cluster = self._of.pop(leaf)
        cluster.remove(leaf)
        rows = self._leaves.clear(leaf)
        self._leaves.close(leaf)
        if not cluster:
            at = next(at for at, each in enumerate(self._clusters) if each is cluster)
            del self._clusters[at]
            self._least = np.delete(self._least, at, axis=0)
            self._most = np.delete(self._most, at, axis=0)
        self.rows -= len(rows)
        for row in rows:
            self.add(row)

    def _owners(self, leaf: int) -> list[int]:
        size = int(self._leaves.size[leaf])
        owners: list[int] = self._leaves.owner[leaf * ROWS : leaf * ROWS + size].tolist()
        return owners


def _weights(layout: Layout) -> Floats:
    return np.array([_NAME_WEIGHT] * layout.start + [1.0, 1.0] * len(layout.slots))


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
