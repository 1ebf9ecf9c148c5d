"""Search of all leaves for rows related to a query, column by column.

The three relations differ in the constraints a row must have. Covered rows have one for each
constraint of the query; covering rows have none beyond those; intersecting rows may have any. In
all three, each constraint of a row on a queried attribute must pass its test. First the bounds of
leaves are compared, which excludes or includes most as a whole; the rows of the rest are scanned in
portions that fit the processor's cache.
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
    """A query on rows.

    `about` is equal for queries that differ only in their constraints. `kinds` are the kinds of
    channel filters that can be related at all; `names` are the columns, by kind, whose names must
    equal given values (-1: none). `nodes`, if given, are the nodes that rows may be of. `sides`
    has, for each constraint of the query, the tests of all its slots.
    """

    relation: Relation
    about: Hashable
    kinds: Mask
    names: list[tuple[Ints, Floats]] = field(default_factory=list)
    nodes: Mask | None = None
    sides: list[Tests] = field(default_factory=list)


class RowSelection(NamedTuple):
    """All rows of some leaves, and single rows of others."""

    leaves: Ints
    rows: Ints

    def all_rows(self, leaves: Leaves) -> Ints:
        is_row = leaves.size[self.leaves][:, None] > POSITIONS
        whole: Ints = (self.leaves[:, None] * ROWS + POSITIONS)[is_row]
        return np.concatenate((whole, self.rows))


class Search:
    """One query on all leaves."""

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
        self._asked: Ints = np.zeros(len(self._ids), dtype=np.int64)  # constraints met

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

    # --------------------------------------------------------------------------------- whole leaves

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
        """Return the leaves with this slot, and the strips of its `low`; `high` follows."""
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
        """Return the related rows of these leaves."""
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
