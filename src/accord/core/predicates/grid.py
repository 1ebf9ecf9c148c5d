"""Many clauses at once, by bits: which of them does an event match?

A block numbers its clauses, and an axis cuts the values of one attribute into cells. For each cell
a block keeps two integers: bit n of the first is set if clause n fails for every value in the cell,
bit n of the second if it may fail for some, because one of its bounds lies inside. The attribute's
absence has such a pair too. Their unions over all axes, one lookup and two ORs for each, tell for
up to `BLOCK` clauses which fail and which are in doubt; only the doubtful ones are checked one by
one.

Cells are cut at the bounds of the clauses themselves, and cut anew when these have become eight
times as many, until there are enough of them to know. Clauses come and go one at a time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Any, Final

from accord.core.predicates.clause import PATH, Bits, Clause, View
from accord.core.predicates.xpath import xpath_number

BLOCK: Final = 2_048
CELLS: Final = 64
MAX_AXES: Final = 32
_CUT_AT: Final = (8, 64, 512, 4_096)  # numbers of ranges at which the cells of an axis are cut anew
_MANY_BITS: Final = 12

Bound = Any  # a number on an axis of numbers, a string on an axis of texts

# A row is one integer per cell, then these two:
_ABSENT: Final = -2
_UNDECIDED: Final = -1  # always 0


class Span:
    """The cells in which a clause may match: all from `first` to `last`, the ends maybe in part."""

    __slots__ = ("first", "is_first_whole", "is_last_whole", "last")

    def __init__(self, cuts: list[Bound], low: Bound, high: Bound | None) -> None:
        self.first = bisect_right(cuts, low)
        self.is_first_whole = cuts[self.first - 1] == low if self.first else _is_lowest(low)
        is_open = high is None or high == math.inf
        self.last = len(cuts) if is_open else bisect_left(cuts, high)
        self.is_last_whole = is_open or (self.last < len(cuts) and cuts[self.last] == high)


def _is_lowest(bound: Bound) -> bool:
    return bound in (-math.inf, "")


class Axis:
    """One attribute's values, numbers or texts, cut into cells at `cuts`."""

    __slots__ = ("cuts", "is_path", "is_text", "name", "ranges_seen")

    def __init__(self, name: str, is_text: bool) -> None:
        self.name = name
        self.is_text = is_text
        self.is_path = name.startswith(PATH)
        self.cuts: list[Bound] = []
        self.ranges_seen = 0

    def cell(self, view: View) -> int:
        """Where in a row the event's value is found."""
        if not self.is_text and not self.is_path:
            number = view.numbers.get(self.name)
            return _ABSENT if number is None else bisect_right(self.cuts, number)
        text = view.strings.get(self.name)
        if text is None:
            return _UNDECIDED if self.name in view.many else _ABSENT
        return self._cell_of(text)

    def cells_of_many(self, view: View) -> set[int]:
        return {self._cell_of(text) for text in view.many[self.name]}

    def _cell_of(self, text: str) -> int:
        if self.is_text:
            return bisect_right(self.cuts, text)
        number = xpath_number(text)
        return _ABSENT if math.isnan(number) else bisect_right(self.cuts, number)

    def range_of(self, clause: Clause) -> tuple[Bound, Bound | None] | None:
        """The bounds of `clause` on this axis, if it has any."""
        for name, low, high in clause.text_ranges if self.is_text else clause.number_ranges:
            if name == self.name:
                return low, high
        return None

    def cut(self, clauses: list[Clause]) -> None:
        """Cut the cells anew, with about as many bounds of `clauses` in each."""
        ends = [bound for clause in clauses for bound in self.range_of(clause) or ()]
        bounds = sorted(bound for bound in ends if bound is not None and not _is_endless(bound))
        step = max(1, len(bounds) // CELLS)
        self.cuts = sorted(set(bounds[step // 2 :: step]))


def _is_endless(bound: Bound) -> bool:
    return _is_lowest(bound) or bool(bound == math.inf)


class Block:
    """Up to BLOCK clauses, and for each axis the rows of bits that say where they fail or may."""

    __slots__ = ("clauses", "doubts", "fails", "free", "unsure", "used")

    def __init__(self, axes: list[Axis]) -> None:
        self.clauses: list[Clause | None] = []
        self.free: list[int] = []
        self.used: Bits = 0
        self.unsure: Bits = 0  # clauses that axes alone can't decide
        self.fails: list[list[Bits]] = [_empty_row(axis) for axis in axes]
        self.doubts: list[list[Bits]] = [_empty_row(axis) for axis in axes]

    def has_room(self) -> bool:
        return len(self.free) > 0 or len(self.clauses) < BLOCK

    def add(self, clause: Clause) -> None:
        if self.free:
            clause.slot = self.free.pop()
            self.clauses[clause.slot] = clause
        else:
            clause.slot = len(self.clauses)
            self.clauses.append(clause)
        clause.block = self
        self._flip(clause)

    def remove(self, clause: Clause) -> None:
        self._flip(clause)
        self.clauses[clause.slot] = None
        self.free.append(clause.slot)
        clause.block = None

    def _flip(self, clause: Clause) -> None:
        bit: Bits = 1 << clause.slot
        self.used ^= bit
        if not clause.is_decided:
            self.unsure ^= bit

    def flip_range(self, number: int, clause: Clause, span: Span) -> None:
        """Set the bits of `clause` on one axis, or clear them again."""
        bit: Bits = 1 << clause.slot
        fails, doubts = self.fails[number], self.doubts[number]
        for cell in range(span.first):
            fails[cell] ^= bit
        for cell in range(span.last + 1, len(fails) - 1):
            fails[cell] ^= bit
        if not span.is_first_whole:
            doubts[span.first] |= bit
        if not span.is_last_whole:
            doubts[span.last] |= bit

    def forget_doubts(self, number: int, clause: Clause, span: Span) -> None:
        keep: Bits = ~(1 << clause.slot)
        doubts = self.doubts[number]
        doubts[span.first] &= keep
        doubts[span.last] &= keep

    def rebuild(self, number: int, axis: Axis) -> None:
        """Fill the rows of a newly cut axis, all clauses at once so that each costs little."""
        fails, doubts = _empty_row(axis), _empty_row(axis)
        cells = len(axis.cuts) + 1
        starts, ends = [0] * (cells + 1), [0] * (cells + 1)
        for clause in self.clauses:
            bounds = None if clause is None else axis.range_of(clause)
            if clause is None or bounds is None:
                continue
            span = Span(axis.cuts, bounds[0], bounds[1])
            bit = 1 << clause.slot
            starts[span.first] |= bit
            ends[span.last + 1] |= bit
            if not span.is_first_whole:
                doubts[span.first] |= bit
            if not span.is_last_whole:
                doubts[span.last] |= bit
        after = 0
        for cell in range(cells):
            after |= ends[cell]
            fails[cell] |= after
        fails[_ABSENT] = after | ends[cells]
        before = 0
        for cell in range(cells - 1, -1, -1):
            fails[cell] |= before
            before |= starts[cell]
        self.fails[number], self.doubts[number] = fails, doubts

    def collect(self, view: View, cells: list[int], many: list[tuple[int, set[int]]]) -> None:
        failed: Bits = 0
        doubtful: Bits = self.unsure
        for number, cell in enumerate(cells):
            failed |= self.fails[number][cell]
            doubtful |= self.doubts[number][cell]
        for number, places in many:
            failed |= _fail_everywhere(self.fails[number], places)
        left: Bits = self.used & ~failed
        if not left:
            return
        for slot in bits(left & ~doubtful):
            view.found.append(self.clauses[slot].key)  # type: ignore[union-attr]
        for slot in bits(left & doubtful):
            view.work += 1
            if view.work > view.limit:
                return
            view.check(self.clauses[slot])  # type: ignore[arg-type]


def _empty_row(axis: Axis) -> list[Bits]:
    return [0] * (len(axis.cuts) + 3)


def _fail_everywhere(row: list[Bits], places: set[int]) -> Bits:
    failed: Bits = -1
    for place in places:
        failed &= row[place]
    return failed


def bits(mask: Bits) -> list[int]:
    """The numbers of the bits set in `mask`."""
    found: list[int] = []
    if mask.bit_count() > _MANY_BITS:
        text: str = bin(mask)
        end = len(text) - 1
        at = text.rfind("1")
        while at > 1:
            found.append(end - at)
            at = text.rfind("1", 0, at)
        return found
    while mask:
        rest: Bits = mask & (mask - 1)
        found.append((mask ^ rest).bit_length() - 1)
        mask = rest
    return found


class Grid:
    """Clauses in blocks, over the axes of all their ranges."""

    __slots__ = ("_axes", "_blocks", "_numbers", "size")

    def __init__(self) -> None:
        self.size = 0
        self._axes: list[Axis] = []
        self._numbers: dict[tuple[str, bool], int] = {}
        self._blocks: list[Block] = []

    def takes(self, clause: Clause) -> bool:
        """Whether `clause` fits in without more than MAX_AXES axes."""
        missing = 0
        for axis in _axes_of(clause):
            missing += axis not in self._numbers
        return not missing or len(self._axes) + missing <= MAX_AXES

    def add(self, clause: Clause) -> None:
        self.size += 1
        block = self._block_with_room()
        block.add(clause)
        for name, is_text in _axes_of(clause):
            number = self._number(name, is_text)
            axis = self._axes[number]
            block.flip_range(number, clause, _span(axis, clause))
            axis.ranges_seen += 1
            if axis.ranges_seen in _CUT_AT:
                self._cut(number)

    def remove(self, clause: Clause) -> None:
        block = clause.block
        assert block is not None
        for key in _axes_of(clause):
            number = self._numbers[key]
            span = _span(self._axes[number], clause)
            block.flip_range(number, clause, span)
            block.forget_doubts(number, clause, span)
        block.remove(clause)
        self.size -= 1
        if not block.used:
            self._blocks.remove(block)

    def collect(self, view: View) -> None:
        """Note what matches in `view`."""
        cells = [axis.cell(view) for axis in self._axes]
        many: list[tuple[int, set[int]]] = []
        if view.many:
            many = self._many(view)
        for block in self._blocks:
            view.work += 1
            if view.work > view.limit:
                return
            block.collect(view, cells, many)

    def _many(self, view: View) -> list[tuple[int, set[int]]]:
        """Axes whose path selects several texts: a clause fails there if it fails for all."""
        return [
            (number, axis.cells_of_many(view))
            for number, axis in enumerate(self._axes)
            if axis.name in view.many
        ]

    def _block_with_room(self) -> Block:
        for block in reversed(self._blocks):
            if block.has_room():
                return block
        self._blocks.append(Block(self._axes))
        return self._blocks[-1]

    def _number(self, name: str, is_text: bool) -> int:
        number = self._numbers.get((name, is_text))
        if number is None:
            number = len(self._axes)
            self._numbers[name, is_text] = number
            axis = Axis(name, is_text)
            self._axes.append(axis)
            for block in self._blocks:
                block.fails.append(_empty_row(axis))
                block.doubts.append(_empty_row(axis))
        return number

    def _cut(self, number: int) -> None:
        axis = self._axes[number]
        axis.cut([clause for block in self._blocks for clause in block.clauses if clause])
        for block in self._blocks:
            block.rebuild(number, axis)


def _axes_of(clause: Clause) -> list[tuple[str, bool]]:
    numbers = [(name, False) for name, _, _ in clause.number_ranges]
    return numbers + [(name, True) for name, _, _ in clause.text_ranges]


def _span(axis: Axis, clause: Clause) -> Span:
    bounds = axis.range_of(clause)
    assert bounds is not None
    return Span(axis.cuts, bounds[0], bounds[1])
