"""Partition tree of clauses, so that an event visits few of them.

A partition with few clauses lists them. With more, it divides: a clause with an equality goes to a
sub-partition that only events with this value reach; one without, if clauses refer to many
different attributes, to one that only events with this attribute reach; all others into a grid. Of
several choices a clause takes the smallest sub-partition. Sub-partitions divide in the same way by
the remaining conditions, so the depth is bounded by a clause's conditions.

Even a short list is not scanned: `_required_bits` holds, in lanes of 64 bits, the names that each
clause needs, and one addition over all lanes shows which need none that the event lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Any, Final

from accord.core.predicates.clause import Bits, Clause, EventView
from accord.core.predicates.grid import MAX_AXES, Grid, numbers_of

LISTED: Final = 32
_FEW: Final = 2
_LANE: Final = 64
_ONES: Final[list[Any]] = [sum(1 << _LANE * lane for lane in range(n)) for n in range(LISTED + 1)]
# Adding this to a lane of 63 bits sets the 64th unless the lane is 0.
_ALMOST: Final[list[Any]] = [ones * ((1 << _LANE - 1) - 1) for ones in _ONES]
_TOPS: Final[list[Any]] = [ones << _LANE - 1 for ones in _ONES]


class ClausePartition:
    """Clauses that an event with certain values and attributes may match."""

    __slots__ = (
        "_by_name",
        "_by_value",
        "_clauses",
        "_grid",
        "_is_divided",
        "_names_vary",
        "_origin",
        "_parent",
        "_required_bits",
        "_resolved_names",
        "size",
    )

    def __init__(
        self,
        parent: ClausePartition | None = None,
        origin: tuple[str, Hashable | None] | None = None,
    ) -> None:
        self.size = 0
        self._parent = parent
        self._origin = origin  # the name, and value if any, by which the parent divided
        self._resolved_names: frozenset[str] = frozenset()
        if parent is not None and origin is not None:
            self._resolved_names = parent._resolved_names | {origin[0]}
        self._clauses: list[Clause] = []
        self._required_bits: Bits = 0
        self._is_divided = False
        self._names_vary = False
        self._by_value: dict[str, dict[Hashable, ClausePartition]] = {}
        self._by_name: dict[str, ClausePartition] = {}
        self._grid: Grid | None = None

    def add(self, clause: Clause) -> None:
        self.size += 1
        if not self._is_divided and len(self._clauses) >= LISTED:
            self._divide()
        if self._is_divided:
            self._place(clause)
        else:
            self._list(clause)

    def collect(self, view: EventView) -> None:
        """Has `view` check all clauses that it may match."""
        view.work += 1
        if view.work > view.limit:
            return
        if self._clauses:
            self._collect_listed(view)
        if not self._is_divided:
            return
        if self._by_value:
            self._collect_by_value(view)
        if self._by_name:
            for name in _shorter(self._by_name, view.keys):
                if name in view.keys and (child := self._by_name.get(name)) is not None:
                    child.collect(view)
        if self._grid is not None:
            self._grid.collect(view)

    def _collect_listed(self, view: EventView) -> None:
        count = len(self._clauses)
        slots: Iterable[int] = range(count)
        if _FEW < count <= LISTED:
            lacking: Bits = self._required_bits & view.absent * _ONES[count]
            ruled_out: Bits = (lacking + _ALMOST[count]) & _TOPS[count]
            if ruled_out == _TOPS[count]:
                return
            slots = [bit // _LANE for bit in numbers_of(ruled_out ^ _TOPS[count])]
        for slot in slots:
            view.work += 1
            if view.work > view.limit:
                return
            view.check(self._clauses[slot])

    def _collect_by_value(self, view: EventView) -> None:
        for name in _shorter(self._by_value, view.keys):
            table = self._by_value.get(name)
            if table is not None and (child := table.get(view.keys.get(name))) is not None:
                child.collect(view)
        for name, texts in view.many.items():
            table = self._by_value.get(name, {})
            for text in dict.fromkeys(texts[1:]):
                if text != texts[0] and (child := table.get(text)) is not None:
                    child.collect(view)

    def _list(self, clause: Clause) -> None:
        clause.partition, clause.is_listed = self, True
        clause.slot = len(self._clauses)
        self._clauses.append(clause)
        if clause.slot < LISTED:
            self._required_bits |= clause.required_bits << (_LANE * clause.slot)

    def _divide(self) -> None:
        self._is_divided = True
        listed, self._clauses, self._required_bits = self._clauses, [], 0
        names = {name for clause in listed for name in clause.names}
        self._names_vary = len(names - self._resolved_names) > MAX_AXES
        for clause in listed:
            self._place(clause)

    def _place(self, clause: Clause) -> None:
        points = [(name, key) for name, key in clause.points if name not in self._resolved_names]
        if points:
            name, key = min(points, key=self._size_by_value)
            child = self._by_value.setdefault(name, {}).get(key)
            if child is None:
                child = self._by_value[name][key] = ClausePartition(self, (name, key))
            child.add(clause)
            return
        names = [name for name in clause.names if name not in self._resolved_names]
        grid = Grid() if self._grid is None else self._grid
        if not (self._names_vary and names) and grid.can_add(clause):
            clause.partition, clause.is_listed = self, False
            grid.add(clause)
            self._grid = grid
        elif names:
            name = min(names, key=self._size_by_name)
            if name not in self._by_name:
                self._by_name[name] = ClausePartition(self, (name, None))
            self._by_name[name].add(clause)
        else:
            self._list(clause)

    def _size_by_value(self, point: tuple[str, Hashable]) -> int:
        child = self._by_value.get(point[0], {}).get(point[1])
        return 0 if child is None else child.size

    def _size_by_name(self, name: str) -> int:
        child = self._by_name.get(name)
        return 0 if child is None else child.size

    def _discard(self, clause: Clause) -> None:
        """Removes `clause` from its list or grid."""
        if not clause.is_listed:
            assert self._grid is not None
            self._grid.remove(clause)
            if not self._grid.size:
                self._grid = None
        else:
            listed, self._clauses, self._required_bits = self._clauses, [], 0
            for other in listed:
                if other is not clause:
                    self._list(other)
        clause.partition = None

    def _drop(self, child: ClausePartition) -> None:
        assert child._origin is not None
        name, key = child._origin
        if key is None:
            del self._by_name[name]
            return
        del self._by_value[name][key]
        if not self._by_value[name]:
            del self._by_value[name]


def remove(clause: Clause) -> None:
    """Removes `clause` from its partition, and drops partitions that this empties."""
    partition = clause.partition
    assert partition is not None
    partition._discard(clause)
    while partition is not None:
        partition.size -= 1
        parent = partition._parent
        if parent is not None and not partition.size:
            parent._drop(partition)
        partition = parent


def _shorter(left: Collection[str], right: Collection[str]) -> Collection[str]:
    return left if len(left) <= len(right) else right
