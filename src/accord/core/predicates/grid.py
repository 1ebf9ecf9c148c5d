"""Many clauses at once, by bits: which of them can an event not match?

A block numbers its clauses, and an axis cuts the values of one attribute into cells. For each cell
a block keeps an integer whose bit n is set if clause n fails for every value in that cell, and one
more for the attribute's absence. The union of one such integer per axis leaves, of up to `BLOCK`
clauses, few more than those that match, for one lookup and one OR per axis. Those few are then
checked one by one.

Cells are cut at the bounds of the clauses themselves, and cut anew when these have become eight
times as many, until there are enough of them to know. Clauses come and go one at a time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from accord.core.predicates.clause import PATH, Clause, View
from accord.core.predicates.xpath import xpath_number

BLOCK: Final = 2_048
CELLS: Final = 64
MAX_AXES: Final = 32
_CUT_AT: Final = (8, 64, 512, 4_096)  # numbers of ranges at which the cells of an axis are cut anew

Bound = Any  # a number on an axis of numbers, a string on an axis of texts

# A row is one integer per cell, then these two:
_ABSENT: Final = -2
_UNDECIDED: Final = -1  # always 0


class Axis:
    """One attribute's values, numbers or texts, cut into cells at `cuts`."""

    __slots__ = ("cuts", "is_path", "is_text", "name", "ranges_seen")

    def __init__(self, name: str, *, is_text: bool) -> None:
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

    def span(self, clause: Clause) -> tuple[int, int] | None:
        """The first and last cell in which `clause` may match, if it has a range here."""
        for name, low, high in clause.text_ranges if self.is_text else clause.number_ranges:
            if name == self.name:
                last = len(self.cuts) if high is None else bisect_right(self.cuts, high)
                return bisect_right(self.cuts, low), last
        return None

    def cut(self, clauses: list[Clause]) -> None:
        """Cut the cells anew, with about as many bounds of `clauses` in each."""
        bounds = sorted(
            bound
            for clause in clauses
            for name, *ends in (clause.text_ranges if self.is_text else clause.number_ranges)
            if name == self.name
            for bound in ends
            if bound is not None and bound not in (math.inf, -math.inf, "")
        )
        step = max(1, len(bounds) // CELLS)
        self.cuts = sorted(set(bounds[step // 2 :: step]))


class Block:
    """Up to BLOCK clauses; `rows[axis][cell]` has a bit for each that fails there."""

    __slots__ = ("clauses", "free", "rows", "used")

    def __init__(self, axes: list[Axis]) -> None:
        self.clauses: list[Clause | None] = []
        self.free: list[int] = []
        self.used = 0
        self.rows: list[list[int]] = [_empty_row(axis) for axis in axes]

    @property
    def has_room(self) -> bool:
        return bool(self.free) or len(self.clauses) < BLOCK

    def add(self, clause: Clause) -> None:
        if self.free:
            clause.slot = self.free.pop()
            self.clauses[clause.slot] = clause
        else:
            clause.slot = len(self.clauses)
            self.clauses.append(clause)
        clause.block = self
        self.used |= 1 << clause.slot

    def remove(self, clause: Clause) -> None:
        self.clauses[clause.slot] = None
        self.free.append(clause.slot)
        self.used ^= 1 << clause.slot
        clause.block = None

    def flip(self, number: int, clause: Clause, span: tuple[int, int]) -> None:
        """Set the bits of the cells outside `span`, or clear them again."""
        row, bit = self.rows[number], 1 << clause.slot
        for cell in range(span[0]):
            row[cell] ^= bit
        for cell in range(span[1] + 1, len(row) - 1):
            row[cell] ^= bit

    def rebuild(self, number: int, axis: Axis) -> None:
        """Fill the row of a newly cut axis: all clauses at once, so that one costs little."""
        row = _empty_row(axis)
        cells = len(row) - 2
        starts, ends = [0] * (cells + 1), [0] * (cells + 1)
        for clause in filter(None, self.clauses):
            span = axis.span(clause)
            if span is not None:
                starts[span[0]] |= 1 << clause.slot
                ends[span[1] + 1] |= 1 << clause.slot
        before = 0
        for cell in range(cells):
            before |= ends[cell]
            row[cell] |= before
        after = 0
        for cell in reversed(range(cells)):
            row[cell] |= after
            after |= starts[cell]
        row[_ABSENT] = before | ends[cells]
        self.rows[number] = row


def _empty_row(axis: Axis) -> list[int]:
    return [0] * (len(axis.cuts) + 3)


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
        missing = sum(1 for axis in _axes_of(clause) if axis not in self._numbers)
        return not missing or len(self._axes) + missing <= MAX_AXES

    def add(self, clause: Clause) -> None:
        self.size += 1
        self._block_with_room().add(clause)
        block = clause.block
        assert block is not None
        for name, is_text in _axes_of(clause):
            number = self._number(name, is_text)
            axis = self._axes[number]
            span = axis.span(clause)
            assert span is not None
            block.flip(number, clause, span)
            axis.ranges_seen += 1
            if axis.ranges_seen in _CUT_AT:
                self._cut(number)

    def remove(self, clause: Clause) -> None:
        block = clause.block
        assert block is not None
        for name in _axes_of(clause):
            number = self._numbers[name]
            span = self._axes[number].span(clause)
            assert span is not None
            block.flip(number, clause, span)
        block.remove(clause)
        self.size -= 1
        if not block.used:
            self._blocks.remove(block)

    def collect(self, view: View) -> None:
        """Let `view` check the clauses that no axis rules out."""
        cells = [axis.cell(view) for axis in self._axes]
        many = self._many(view) if view.many else []
        for block in self._blocks:
            view.work += 1
            if view.work > view.limit:
                return
            failed = 0
            for row, cell in zip(block.rows, cells, strict=True):
                failed |= row[cell]
            for number, places in many:
                failed |= _fail_everywhere(block.rows[number], places)
            left = block.used & ~failed
            while left and view.work <= view.limit:
                bit = left & -left
                left ^= bit
                view.work += 1
                view.check(block.clauses[bit.bit_length() - 1])  # type: ignore[arg-type]

    def _many(self, view: View) -> list[tuple[int, set[int]]]:
        """Axes whose path selects several texts: a clause fails there if it fails for all."""
        return [
            (number, axis.cells_of_many(view))
            for number, axis in enumerate(self._axes)
            if axis.name in view.many
        ]

    def _block_with_room(self) -> Block:
        for block in reversed(self._blocks):
            if block.has_room:
                return block
        self._blocks.append(Block(self._axes))
        return self._blocks[-1]

    def _number(self, name: str, is_text: bool) -> int:
        number = self._numbers.get((name, is_text))
        if number is None:
            number = self._numbers[name, is_text] = len(self._axes)
            self._axes.append(Axis(name, is_text=is_text))
            for block in self._blocks:
                block.rows.append(_empty_row(self._axes[number]))
        return number

    def _cut(self, number: int) -> None:
        axis = self._axes[number]
        axis.cut([clause for block in self._blocks for clause in block.clauses if clause])
        for block in self._blocks:
            block.rebuild(number, axis)


def _axes_of(clause: Clause) -> Iterator[tuple[str, bool]]:
    for name, _, _ in clause.number_ranges:
        yield name, False
    for name, _, _ in clause.text_ranges:
        yield name, True


def _fail_everywhere(row: list[int], places: set[int]) -> int:
    failed = -1
    for place in places:
        failed &= row[place]
    return failed
