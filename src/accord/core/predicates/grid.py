"""Bitmap index over ranges: matches an event against many clauses at once.

A block numbers its clauses, and an axis divides the values of one attribute into cells. For each
cell a block has two rows of bits: bit n of the first is set if clause n fails for every value in
the cell, bit n of the second if it may fail for some, because one of its bounds lies inside. The
union of one pair per axis shows which of thousands of clauses fail and which are in doubt; only the
doubtful ones are checked one by one.

The cost of an event is mostly memory access, so cuts and rows are in one array each. All cuts are
searched in one call: as complex numbers, ordered by axis first and then by value.

Cells are cut at the bounds of the clauses themselves, and cut again whenever a block has become
four times as large, or when too many bounds lie beyond the cuts. Clauses are inserted in batches of
`BATCH`: until then they wait in a list, unless many events have to scan it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accord.core.model.values import EXACT_MAX, Kind, xpath_number
from accord.core.predicates.clause import PATH, AxisKey, Bits, Clause, EventView
from accord.core.predicates.value_sets import LOWEST

BATCH: Final = 8  # clauses, so that each batch is one byte of every row
MAX_LOOKUPS: Final = 64  # events that scan the waiting clauses before these are inserted anyway
MAX_BLOCK: Final = 32_768
MAX_AXES: Final = 32
CELLS: Final = 64
_ROWS: Final = CELLS + 3
_ABSENT: Final = CELLS + 1  # the row for events without the attribute
_UNDECIDED: Final = CELLS + 2  # the row for values that do not fit in a single cell
_NONE: Final = -1
_CUT_AGAIN_AT: Final = (64, 256, 1_024, 4_096, 16_384)
_MANY_BITS: Final = 12
_ENDLESS: Final = (None, LOWEST[Kind.NUMBER], math.inf, LOWEST[Kind.STRING])

Bound = Any  # a number on an axis of numbers, a string on an axis of texts


class Axis:
    """One attribute's values, numbers or texts, divided into cells at `cuts`."""

    __slots__ = ("cuts", "is_plain", "is_text", "name")

    def __init__(self, key: AxisKey, bounds: list[Bound]) -> None:
        self.name, self.is_text = key
        self.is_plain = not self.is_text and not self.name.startswith(PATH)
        ordered = sorted(bound for bound in bounds if not _is_endless(bound))
        step = max(1, -(-len(ordered) // CELLS))
        chosen = ordered[step // 2 :: step]
        self.cuts: list[Bound] = sorted(set(chosen if self.is_text else map(float, chosen)))

    def row(self, view: EventView) -> int:
        """The row for the event's value."""
        if self.is_plain:
            number = view.numbers.get(self.name)
            return _ABSENT if number is None else bisect_right(self.cuts, number)
        text = view.strings.get(self.name)
        if text is None:
            return _UNDECIDED if self.name in view.many else _ABSENT
        if self.is_text:
            return bisect_right(self.cuts, text)
        number = xpath_number(text)
        return _ABSENT if math.isnan(number) else bisect_right(self.cuts, number)

    def span(self, low: Bound, high: Bound | None) -> tuple[int, int, int, int]:
        """First and last cell of a range, and those that lie in it only in part."""
        first = bisect_right(self.cuts, low)
        is_whole = self.cuts[first - 1] == low if first else _is_endless(low)
        if _is_endless(high):
            return first, len(self.cuts), _NONE if is_whole else first, _NONE
        last = bisect_left(self.cuts, high)
        is_last_whole = last < len(self.cuts) and self.cuts[last] == high
        return first, last, _NONE if is_whole else first, _NONE if is_last_whole else last


def _is_endless(bound: Bound | None) -> bool:
    return bound in _ENDLESS


class Block:
    """Clauses by number, and the rows of bits that show where they fail or may fail."""

    __slots__ = (
        "_axes",
        "_cuts",
        "_names",
        "_numbers",
        "_others",
        "_outside",
        "_probes",
        "_ranges",
        "_steps",
        "_table",
        "clauses",
        "keys",
        "unsure",
        "used",
    )

    def __init__(self, clauses: list[Clause], words: int) -> None:
        """Creates a block of `clauses`, with room for 64 per word."""
        bounds: dict[AxisKey, list[Bound]] = {}
        for clause in clauses:
            for key, low, high in clause.ranges:
                bounds.setdefault(key, []).extend((low, high))
        self._axes = [Axis(key, ends) for key, ends in bounds.items()]
        self._numbers = {key: number for number, key in enumerate(bounds)}
        self._others = [(n, axis) for n, axis in enumerate(self._axes) if not axis.is_plain]
        self._lay_out_cuts()
        self.clauses: list[Clause | None] = []
        self.keys: list[Hashable] = []  # keys of the clauses, without access to these
        self.used: Bits = 0
        self.unsure: Bits = 0  # clauses that axes alone can't decide
        self._ranges = 0
        self._outside = 0  # ranges with a bound beyond the first or last cut
        self._table: NDArray[np.uint64] = np.zeros((len(bounds) * _ROWS, 2, words), np.uint64)
        self.add(clauses)

    def _lay_out_cuts(self) -> None:
        """Sorts all cuts into one array; beyond them infinity, the key of an absent value."""
        count = len(self._axes)
        cuts = np.full((count, CELLS + 1), math.inf, np.complex128)
        cuts.imag = math.inf
        cuts.real = np.arange(count)[:, np.newaxis]
        for number, axis in enumerate(self._axes):
            if axis.is_plain:
                cuts.imag[number, : len(axis.cuts)] = axis.cuts
        self._cuts = cuts.ravel()
        self._probes = np.arange(count).astype(np.complex128)
        # From indices among the cuts to rows: each axis has CELLS + 1 of the former.
        self._steps = np.arange(count) * (_ROWS - CELLS - 1)
        self._names = [axis.name if axis.is_plain else "" for axis in self._axes]

    @property
    def is_full(self) -> bool:
        return bool(len(self.clauses) == 64 * self._table.shape[2])

    @property
    def is_sparse(self) -> bool:
        return bool(2 * self.used.bit_count() < len(self.clauses))

    @property
    def axis_keys(self) -> Iterable[AxisKey]:
        return self._numbers

    def knows(self, clause: Clause) -> bool:
        """Whether there is an axis for each of its ranges."""
        return all(key in self._numbers for key, _, _ in clause.ranges)

    @property
    def should_recut(self) -> bool:
        """Whether the cells have become too large for most clauses, or for the latest ones."""
        return len(self.clauses) in _CUT_AGAIN_AT or 4 * self._outside > max(256, self._ranges)

    def grow(self) -> None:
        self._table = np.concatenate((self._table, np.zeros_like(self._table)), axis=2)

    def add(self, clauses: list[Clause]) -> None:
        """Adds clauses, for which there are axes and room, to the free bits of the last byte."""
        start = len(self.clauses)
        for slot, clause in enumerate(clauses, start):
            clause.slot, clause.block = slot, self
            self.used |= 1 << slot
            if not clause.is_decided:
                self.unsure |= 1 << slot
        unused: list[None] = [None] * (-len(clauses) % BATCH)
        self.clauses += [*clauses, *unused]
        self.keys += [*(clause.key for clause in clauses), *unused]
        if self._axes:
            end = start + len(clauses)
            self._table.view(np.uint8)[:, :, start // 8 : -(-end // 8)] = self._columns(clauses)

    def _columns(self, clauses: list[Clause]) -> NDArray[np.uint8]:
        """The bits of `clauses` in all rows."""
        count, width = len(self._axes), len(clauses)
        size = count * width
        first, last, has_range = [0] * size, [CELLS] * size, [0] * size
        doubt, other = [_NONE] * size, [_NONE] * size
        for column, clause in enumerate(clauses):
            for key, low, high in clause.ranges:
                number = self._numbers[key]
                at = number * width + column
                first[at], last[at], doubt[at], other[at] = self._axes[number].span(low, high)
                has_range[at] = 1
                outer = 0, len(self._axes[number].cuts)
                self._outside += doubt[at] in outer or other[at] in outer
            self._ranges += len(clause.ranges)
        cells = np.arange(_ROWS, dtype=np.int16)[:, np.newaxis]
        spans = np.array((first, last, doubt, other, has_range), np.int16)
        spans = spans.reshape(5, count, 1, width)
        bits = np.empty((count, _ROWS, 2, width), np.bool_)
        bits[:, :, 0] = (cells < spans[0]) | (cells > spans[1])
        bits[:, :, 1] = (cells == spans[2]) | (cells == spans[3])
        bits[:, _ABSENT, 0] = bits[:, _UNDECIDED, 1] = spans[4, :, 0] != 0
        bits[:, _UNDECIDED, 0] = False
        packed = np.packbits(bits, axis=-1, bitorder="little")
        return packed.reshape(count * _ROWS, 2, -1)

    def remove(self, clause: Clause) -> None:
        self.clauses[clause.slot] = self.keys[clause.slot] = None
        self.used ^= 1 << clause.slot
        self.unsure &= self.used
        clause.block = None

    def collect(self, view: EventView) -> None:
        """Records what matches in `view`."""
        failed: Bits = 0
        doubtful: Bits = self.unsure
        if self._axes:
            fails, doubts = np.bitwise_or.reduce(self._table.take(self._rows(view), 0), 0)
            failed = int.from_bytes(fails.tobytes(), "little")
            doubtful |= int.from_bytes(doubts.tobytes(), "little")
        left: Bits = self.used & ~failed
        if not left:
            return
        keys = self.keys
        view.found += [keys[slot] for slot in numbers_of(left & ~doubtful)]
        for slot in numbers_of(left & doubtful):
            view.work += 1
            if view.work > view.limit:
                return
            view.check(self.clauses[slot])  # type: ignore[arg-type]

    def _rows(self, view: EventView) -> NDArray[np.int64]:
        """For each axis, the row for the event's value."""
        get = view.numbers.get
        keys = self._probes.copy()
        keys.imag = [get(name, math.inf) for name in self._names]
        rows = self._cuts.searchsorted(keys, "right")
        rows += self._steps
        for number, axis in self._others:
            rows[number] = number * _ROWS + axis.row(view)
        if view.has_large:
            for number, axis in enumerate(self._axes):
                if abs(get(axis.name, 0)) >= EXACT_MAX:
                    rows[number] = number * _ROWS + axis.row(view)
        return rows


def numbers_of(mask: Bits) -> list[int]:
    """The numbers of the bits set in `mask`."""
    if mask.bit_count() > _MANY_BITS:
        octets = np.frombuffer(mask.to_bytes(mask.bit_length() // 8 + 1, "little"), np.uint8)
        return np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()
    found: list[int] = []
    while mask:
        rest: Bits = mask & (mask - 1)
        found.append((mask ^ rest).bit_length() - 1)
        mask = rest
    return found


class Grid:
    """Clauses in blocks, and those that wait to be inserted."""

    __slots__ = ("_axes", "_blocks", "_lookups", "_waiting", "size")

    def __init__(self) -> None:
        self.size = 0
        self._axes: set[AxisKey] = set()
        self._blocks: list[Block] = []
        self._waiting: list[Clause] = []
        self._lookups = 0

    def can_add(self, clause: Clause) -> bool:
        """Whether `clause` fits without more than MAX_AXES axes."""
        return len(self._axes.union(key for key, _, _ in clause.ranges)) <= MAX_AXES

    def add(self, clause: Clause) -> None:
        self.size += 1
        self._axes.update(key for key, _, _ in clause.ranges)
        self._waiting.append(clause)
        if len(self._waiting) == BATCH:
            self._insert_batch()

    def _insert_batch(self) -> None:
        batch, self._waiting, self._lookups = self._waiting, [], 0
        block = self._blocks[-1] if self._blocks else None
        if block is None or len(block.clauses) >= MAX_BLOCK:
            self._blocks.append(Block(batch, 1))
        elif block.is_sparse or block.should_recut or not all(map(block.knows, batch)):
            self._rebuild(block, batch)
        else:
            if block.is_full:
                block.grow()
            block.add(batch)

    def remove(self, clause: Clause) -> None:
        self.size -= 1
        block = clause.block
        if block is None:
            self._waiting.remove(clause)
            return
        block.remove(clause)
        if block.is_sparse:
            self._rebuild(block, [])

    def _rebuild(self, block: Block, batch: list[Clause]) -> None:
        """Cuts the cells of `block` again, with `batch` and without removed clauses."""
        clauses = [clause for clause in block.clauses if clause is not None] + batch
        words = 1
        while 64 * words < len(clauses):
            words *= 2
        place = self._blocks.index(block)
        self._blocks[place : place + 1] = [Block(clauses, words)] if clauses else []
        self._axes = {key for block in self._blocks for key in block.axis_keys}
        self._axes.update(key for clause in self._waiting for key, _, _ in clause.ranges)

    def collect(self, view: EventView) -> None:
        """Records what matches in `view`."""
        if self._waiting:
            self._lookups += 1
            if self._lookups > MAX_LOOKUPS:
                self._insert_batch()
        for clause in self._waiting:
            view.work += 1
            if view.work > view.limit:
                return
            view.check(clause)
        for block in self._blocks:
            view.work += 1
            if view.work > view.limit:
                return
            block.collect(view)
