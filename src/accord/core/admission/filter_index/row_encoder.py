"""Encodes filters as rows of numbers, and queries on filters as queries on such rows.

A row has the codes of its node, of its channel filter and of each name in that, and `low` and
`high` of each constraint. Its layout defines the columns: the kind of its channel filter, and the
attributes of its constraints.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from accord.core.admission.filter_index.constraints import (
    CODED,
    SLOTS,
    Floats,
    Ints,
    Mask,
    NumericSpan,
    Slot,
    ask_codes,
    ask_spans,
    set_of,
    span_of,
)
from accord.core.admission.filter_index.dictionary import UNKNOWN, SetDictionary, ValueDictionary
from accord.core.admission.filter_index.filters import Box
from accord.core.admission.filter_index.leaves import Layout
from accord.core.admission.filter_index.patterns import Relation, is_name, kind_of, names_of, relate
from accord.core.admission.filter_index.selection import RowQuery, Tests
from accord.core.predicates.value_sets import ValueSet

SEVERAL: Final = 0  # code of more than one node
_CHANNEL: Final = 1  # the column of the channel filter as a whole
_WHOLE: Final = -1  # compare the whole channel filter, not a level
_PLANS: Final = 64


class _Plan(NamedTuple):
    """How channel filters of all kinds are compared with those of one kind.

    `names` are columns by kind (-1: none), and the levels that they are compared with.
    """

    kinds: Mask
    names: list[tuple[Ints, list[tuple[int, int]]]]


class RowEncoder:
    """Dictionaries that encode the rows of one index."""

    def __init__(self) -> None:
        self._kinds = ValueDictionary()
        self._channels = ValueDictionary()
        self._names = ValueDictionary()
        self._nodes = ValueDictionary()
        self._slots = ValueDictionary()
        self._sets: dict[str, SetDictionary] = {}  # by attribute
        self._plans: dict[tuple[Relation, str], _Plan] = {}
        assert self._nodes.take(None) == SEVERAL

    def has_room(self, box: Box) -> bool:
        return all(
            name not in self._sets
            or span_of(allowed) is not None
            or self._sets[name].has_room(allowed)
            for name, allowed in box.items()
        )

    @property
    def nodes(self) -> int:
        """Upper bound of node codes."""
        return len(self._nodes)

    def node(self, number: int) -> str:
        name = self._nodes.name(number)
        assert isinstance(name, str)
        return name

    # --------------------------------------------------------------------------------------- rows

    def take(self, channel: str, node: str | None, box: Box) -> tuple[Layout, Floats]:
        """Encode a row; `node` None stands for several."""
        names = names_of(channel)
        keys: list[float] = [self._nodes.take(node), self._channels.take(channel)]
        keys += map(self._names.take, names)
        slots: list[int] = []
        for name, allowed in box.items():
            span = span_of(allowed)
            if span is not None:
                slots.append(self._slots.take((name, span.kind)))
                keys += span.low, span.high
            else:
                slots.append(self._slots.take((name, CODED)))
                code = self._sets.setdefault(name, SetDictionary()).take(allowed)
                keys += code, code
        kind = kind_of(channel)
        if self._kinds.get(kind) == UNKNOWN:
            self._plans.clear()
        layout = Layout(self._kinds.take(kind), len(names), tuple(slots))
        return layout, np.array(keys, dtype=np.float64)

    def give_back(self, layout: Layout, keys: Floats) -> None:
        self._nodes.give_back(int(keys[0]))
        self._channels.give_back(int(keys[1]))
        for number in keys[2 : layout.start].tolist():
            self._names.give_back(int(number))
        for slot, low in zip(layout.slots, keys[layout.start :: 2].tolist(), strict=True):
            name, kind = self._slot(slot)
            if kind == CODED:
                self._sets[name].give_back(int(low))
                if not self._sets[name]:
                    del self._sets[name]
            self._slots.give_back(slot)
        if self._kinds.give_back(layout.kind):
            self._plans.clear()

    def box(self, layout: Layout, keys: Floats) -> Box:
        """Decode the box."""
        return dict(
            self._side(slot, low, high)
            for slot, (low, high) in zip(
                layout.slots, keys[layout.start :].reshape(-1, 2).tolist(), strict=True
            )
        )

    # -------------------------------------------------------------------------------------- queries

    def question(
        self, relation: Relation, channel: str, box: Box, nodes: frozenset[str] | None
    ) -> RowQuery:
        kinds, names = self._asked_names(relation, channel)
        sides = [self._tests(relation, name, allowed) for name, allowed in box.items()]
        about = (relation, channel, nodes)
        return RowQuery(relation, about, kinds, names, self._asked_nodes(nodes), sides)

    def check_invariants(self) -> None:
        for codes in (self._kinds, self._channels, self._names, self._nodes, self._slots):
            codes.check_invariants()
        for sets in self._sets.values():
            sets.check_invariants()
            assert len(sets)

    # ------------------------------------------------------------------------------------- inside

    def _slot(self, number: int) -> Slot:
        slot = self._slots.name(number)
        assert isinstance(slot, tuple)
        return slot

    def _side(self, slot: int, low: float, high: float) -> tuple[str, ValueSet]:
        name, kind = self._slot(slot)
        if kind == CODED:
            return name, self._sets[name].set_of(int(low))
        return name, set_of(NumericSpan(kind, low, high))

    def _tests(self, relation: Relation, name: str, asking: ValueSet) -> Tests:
        """Return the tests for each kind of constraint on this attribute."""
        tests: Tests = []
        for kind in SLOTS:
            slot = self._slots.get((name, kind))
            if slot == UNKNOWN:
                continue
            if kind == CODED:
                tests.append((slot, ask_codes(self._sets[name].related(relation, asking))))
            else:
                tests.append((slot, ask_spans(relation, asking, kind)))
        return tests

    def _asked_nodes(self, nodes: frozenset[str] | None) -> Mask | None:
        if nodes is None:
            return None
        wanted = np.zeros(len(self._nodes), dtype=np.bool_)
        wanted[SEVERAL] = True
        for node in nodes:
            number = self._nodes.get(node)
            if number != UNKNOWN:
                wanted[number] = True
        return wanted

    def _asked_names(
        self, relation: Relation, channel: str
    ) -> tuple[Mask, list[tuple[Ints, Floats]]]:
        """Return the related kinds of channel filters, and where names must be equal."""
        asking = kind_of(channel)
        plan = self._plans.get((relation, asking))
        if plan is None:
            plan = self._plan(relation, asking)
        levels = channel.split("/")
        compared: list[tuple[Ints, Floats]] = []
        for columns, where in plan.names:
            values = np.full(len(columns), float(UNKNOWN))
            for kind, level in where:
                if level == _WHOLE:
                    values[kind] = self._channels.get(channel)
                else:
                    values[kind] = self._names.get(levels[level])
            compared.append((columns, values))
        return plan.kinds, compared

    def _plan(self, relation: Relation, asking: str) -> _Plan:
        plan = _Plan(np.zeros(len(self._kinds), dtype=np.bool_), [])
        for kind, number in self._kinds:
            assert isinstance(kind, str)
            same = relate(relation, asking, kind)
            if same is None:
                continue
            plan.kinds[number] = True
            wanted = [(_column(kind, level), level) for level in same]
            if kind == asking and len(same) == sum(map(is_name, kind)):
                wanted = [(_CHANNEL, _WHOLE)]
            for place, (column, level) in enumerate(wanted):
                if place == len(plan.names):
                    plan.names.append((np.full(len(self._kinds), -1, dtype=np.int64), []))
                columns, where = plan.names[place]
                columns[number] = column
                where.append((number, level))
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[relation, asking] = plan
        return plan


def _column(kind: str, level: int) -> int:
    """Return the column of the name at this level of a channel filter."""
    return _CHANNEL + 1 + sum(map(is_name, kind[:level]))
