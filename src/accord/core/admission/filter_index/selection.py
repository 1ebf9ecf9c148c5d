"""Which rows of all leaves are related to what is asked, found column by column.

Three questions, told apart by which sides a row must have. Covered rows have a side for each that
was asked about; covering rows have no side but for those; intersecting rows may have any. In all
three cases, each side that a row has of an attribute that was asked about must pass its test. First
the bounds of leaves are compared, which rules most of them out or in; the rows of what is left are
looked at a portion at a time, so that what is compared stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from accord.core.admission.filter_index.constraints import ConstraintTest, Floats, Ints, Mask
from accord.core.admission.filter_index.leaves import POSITIONS, ROWS, Leaves
from accord.core.admission.filter_index.patterns import Relation

_PORTION: Final = 1_024  # leaves

Tests = list[tuple[int, ConstraintTest]]  # by slot


@dataclass(slots=True)
class RowQuery:
    """What is asked of rows.

    `about` is the same for questions that differ in their sides only. `kinds` says which kinds of
    channel filters can be related at all; `names` at which column their names are compared with
    what, by kind (-1: nowhere). `nodes`, if given, says which nodes rows may be from. `sides` has
    for each side that is asked about the tests of all its slots.
    """

    relation: Relation
    about: Hashable
    kinds: Mask
    names: list[tuple[Ints, Floats]] = field(default_factory=list)
    nodes: Mask | None = None
    sides: list[Tests] = field(default_factory=list)


class RowSelection(NamedTuple):
    """All rows of some leaves, and some rows of others."""

    leaves: Ints
    rows: Ints

    def all_rows(self, leaves: Leaves) -> Ints:
        is_row = leaves.size[self.leaves][:, None] > POSITIONS
        whole: Ints = (self.leaves[:, None] * ROWS + POSITIONS)[is_row]
        return np.concatenate((whole, self.rows))


class Search:
    """One question to all leaves."""

    def __init__(self, leaves: Leaves, question: RowQuery) -> None:
        self._leaves = leaves
        self._question = question
        count = len(leaves)
        sides, asked = leaves.sides[:count], len(question.sides)
        possible = question.kinds.take(leaves.kind[:count]) & (leaves.size[:count] > 0)
        if question.relation is Relation.COVERED:
            possible &= sides >= asked
        elif question.relation is Relation.COVERING:
            possible &= sides <= asked
        self._ids: Ints = possible.nonzero()[0]
        self._is_whole: Mask = np.ones(len(self._ids), dtype=np.bool_)
        self._asked: Ints = np.zeros(len(self._ids), dtype=np.int64)  # sides that were asked about

    def run(self) -> RowSelection:
        for columns, values in self._question.names:
            self._rule_names(columns, values)
        if self._question.nodes is not None:
            self._rule_nodes(self._question.nodes)
        self._rule_sides()
        if self._is_whole.all():
            return RowSelection(self._ids, self._ids[:0])
        rest = self._ids[~self._is_whole]
        rows = [
            self._look(rest[start : start + _PORTION]) for start in range(0, len(rest), _PORTION)
        ]
        found = rows[0] if len(rows) == 1 else np.concatenate(rows)
        return RowSelection(self._ids[self._is_whole], found)

    # --------------------------------------------------------------------------- leaves as a whole

    def _keep(self, possible: Mask, is_whole: Mask | None = None) -> None:
        if is_whole is not None:
            self._is_whole &= is_whole
        if not np.logical_and.reduce(possible):
            self._ids = self._ids[possible]
            self._is_whole = self._is_whole[possible]
            self._asked = self._asked[possible]

    def _rule_names(self, columns: Ints, values: Floats) -> None:
        if not len(self._ids):
            return
        leaves = self._leaves
        if len(columns) == 1:  # all are of one kind
            strips = leaves.first[self._ids] + columns[0]
            least, most = leaves.least[strips], leaves.most[strips]
            self._keep((least <= values[0]) & (most >= values[0]), least == most)
            return
        kinds = leaves.kind[self._ids]
        column, value = columns[kinds], values[kinds]
        strips = leaves.first[self._ids] + np.maximum(column, 0)
        least, most = leaves.least[strips], leaves.most[strips]
        is_free = column < 0
        self._keep(is_free | ((least <= value) & (most >= value)), is_free | (least == most))

    def _rule_nodes(self, nodes: Mask) -> None:
        strips = self._leaves.first[self._ids]
        least = self._leaves.least[strips].astype(np.int64)
        most = self._leaves.most[strips].astype(np.int64)
        before = np.concatenate(([0], np.cumsum(nodes)))
        wanted = before[most + 1] - before[least]
        self._keep(wanted > 0, wanted == most - least + 1)

    def _rule_sides(self) -> None:
        relation = self._question.relation
        for tests in self._question.sides:
            if not len(self._ids):
                return
            is_free = relation is not Relation.COVERED
            possible = (np.ones if is_free else np.zeros)(len(self._ids), dtype=np.bool_)
            is_whole = np.ones(len(self._ids), dtype=np.bool_)
            for slot, test in tests:
                at, strip = self._having(self._ids, slot)
                bounds = self._bounds(strip)
                possible[at] = test.may_hold(*bounds)
                is_whole[at] = test.must_hold(*bounds)
                self._asked[at] += 1
            self._keep(possible, is_whole)
        if relation is Relation.COVERING:
            self._keep(self._asked == self._leaves.sides[self._ids])

    def _having(self, ids: Ints, slot: int) -> tuple[Ints, Ints]:
        """Which of these leaves have this slot, and the strip of its `low`: `high` follows it."""
        sides = self._leaves.slots.shape[1]
        places = (self._leaves.slots.take(ids, axis=0).ravel() == slot).nonzero()[0]
        if sides == 1:
            return places, self._leaves.base[ids[places]]
        at = places // sides
        return at, self._leaves.base[ids[at]] + 2 * (places - at * sides)

    def _bounds(self, strip: Ints) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        least, most = self._leaves.least, self._leaves.most
        return (least[strip], most[strip]), (least[strip + 1], most[strip + 1])

    # --------------------------------------------------------------------------------- row by row

    def _look(self, ids: Ints) -> Ints:
        """The rows of these leaves that are related."""
        found: Mask = self._leaves.size[ids][:, None] > POSITIONS
        for columns, values in self._question.names:
            self._look_at_names(ids, found, columns, values)
        if self._question.nodes is not None:
            nodes = self._leaves.strips.take(self._leaves.first[ids], axis=0).astype(np.int64)
            found &= self._question.nodes.take(nodes)
        for tests in self._question.sides:
            for slot, test in tests:
                self._look_at_sides(ids, found, slot, test)
        places = found.ravel().nonzero()[0]
        rows: Ints = ids[places // ROWS] * ROWS + places % ROWS
        return rows

    def _look_at_names(self, ids: Ints, found: Mask, columns: Ints, values: Floats) -> None:
        leaves = self._leaves
        kinds = leaves.kind[ids]
        column, value = columns[kinds], values[kinds]
        strips = leaves.first[ids] + np.maximum(column, 0)
        mixed = ((column >= 0) & (leaves.least[strips] != leaves.most[strips])).nonzero()[0]
        if len(mixed):
            names = leaves.strips.take(strips[mixed], axis=0)
            found[mixed] &= names == value[mixed][:, None]

    def _look_at_sides(self, ids: Ints, found: Mask, slot: int, test: ConstraintTest) -> None:
        at, strip = self._having(ids, slot)
        mixed = (~test.must_hold(*self._bounds(strip))).nonzero()[0]
        if len(mixed):
            low = self._leaves.strips.take(strip[mixed], axis=0)
            high = self._leaves.strips.take(strip[mixed] + 1, axis=0)
            found[at[mixed]] &= test.holds(low, high)
