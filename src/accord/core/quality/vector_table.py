"""Vectors of equal length as rows of a matrix, to compare one with all of them at once.

Each row has an owner. Free rows hold NaN, which is neither at least nor at most anything. Columns
are contiguous in memory: a comparison processes one after the other.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from accord.core.quality.profiles import Vector

_FIRST: Final = 16
_TOGETHER: Final = 32_768  # comparisons per batch, so that results stay in the CPU cache

T = TypeVar("T")
Mask = NDArray[np.bool_]


class VectorTable(Generic[T]):
    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.used = 0  # rows from here on were never used
        self._matrix = np.full((columns, _FIRST), np.nan)
        self._owners: list[T | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return self.used - len(self._free)

    def add(self, owner: T, vector: Vector) -> int:
        """Adds a vector; returns its row."""
        if self._free:
            row = self._free.pop()
            self._owners[row] = owner
        else:
            row = self.used
            self.used += 1
            self._owners.append(owner)
            if row == self._matrix.shape[1]:
                grown = np.full((self.columns, 2 * row), np.nan)
                grown[:, :row] = self._matrix
                self._matrix = grown
        self._matrix[:, row] = vector
        return row

    def change(self, row: int, vector: Vector) -> None:
        self._matrix[:, row] = vector

    def remove(self, row: int) -> None:
        self._matrix[:, row] = np.nan
        self._owners[row] = None
        self._free.append(row)

    def owner(self, row: int) -> T:
        found = self._owners[row]
        assert found is not None
        return found

    def at_least(self, vector: Vector, first: int = 0) -> Mask:
        """Rows at least as good in all columns of `vector`, which begins at column `first`."""
        mask: Mask = self._matrix[first, : self.used] >= vector[0]
        for column in range(1, len(vector)):
            mask &= self._matrix[first + column, : self.used] >= vector[column]
        return mask

    def vectors(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The vectors of these rows, column by column."""
        return self._matrix[:, rows]

    def rows_at_least(self, vectors: NDArray[np.float64], rotation: int) -> NDArray[np.int64]:
        """For each vector a row that is at least as good in all columns, or -1.

        `rotation` varies the choice among several.
        """
        # Used rows only: free ones may be in the majority.
        order = np.roll((~np.isnan(self._matrix[0, : self.used])).nonzero()[0], rotation)
        rows = self._matrix[:, order]
        found = np.full(vectors.shape[1], -1)
        step = max(1, _TOGETHER // len(order))
        for first in range(0, len(found), step):
            some = vectors[:, first : first + step, None]
            mask: Mask = np.greater_equal(rows[0], some[0])
            for column in range(1, self.columns):
                mask &= rows[column] >= some[column]
            places = mask.argmax(axis=1)
            is_met = mask[np.arange(len(places)), places]
            found[first : first + step][is_met] = order[places[is_met]]
        return found

    def are_at_most(self, vector: Vector, rows: NDArray[np.int64]) -> Mask:
        """Mask over these rows of those that are at most `vector`."""
        below = self._matrix[:, rows] <= np.array(vector)[:, None]
        mask: Mask = np.logical_and.reduce(below)
        return mask

    def at_most(self, vector: Vector) -> Mask:
        mask: Mask = self._matrix[0, : self.used] <= vector[0]
        for column in range(1, len(vector)):
            mask &= self._matrix[column, : self.used] <= vector[column]
        return mask

    def below(self, vector: Vector, first: int = 0) -> NDArray[np.int64]:
        """Number of columns of `vector` in which each row is worse; 0 for free rows."""
        part = self._matrix[first : first + len(vector), : self.used]
        counts: NDArray[np.int64] = (part < np.array(vector)[:, None]).sum(axis=0)
        return counts

    def first(self, mask: Mask, most: int) -> list[int]:
        """The first selected rows, up to `most`."""
        rows: list[int] = mask.nonzero()[0][:most].tolist()
        return rows

    def owners(self, mask: Mask) -> list[T]:
        return [self.owner(row) for row in np.flatnonzero(mask).tolist()]

    def check_invariants(self) -> None:
        assert len(self._owners) == self.used <= self._matrix.shape[1]
        free = set(self._free)
        assert len(free) == len(self._free)
        for row, owner in enumerate(self._owners):
            assert (owner is None) == (row in free)
            assert bool(np.isnan(self._matrix[:, row]).all()) == (row in free)
