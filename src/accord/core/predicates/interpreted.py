"""Matching engine in Python, used if the extension for `compiled` was not built.

Both engines find the same matches; order and work count may differ.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.clause import Clause, EventView, NameBits
from accord.core.predicates.frames import UNDECIDED, attributes, pairs
from accord.core.predicates.partition import ClausePartition, remove
from accord.core.predicates.terms import Term

Handle = tuple[list[Clause], bool]  # a predicate's clauses, and whether they refer to paths


class Interpreted:
    """Matching engine of partitions and grids."""

    def __init__(self) -> None:
        self._name_bits = NameBits()
        self._with_paths = 0

    def root(self) -> ClausePartition:
        return ClausePartition()

    def drop(self, root: ClausePartition) -> None:
        assert not root.size

    def add(self, root: ClausePartition, key: Hashable, terms: Sequence[Term]) -> Handle:
        is_only = len(terms) == 1
        clauses = [Clause(key, term, self._name_bits, is_only=is_only) for term in terms]
        for clause in clauses:
            root.add(clause)
        has_paths = any(term.paths for term in terms)
        self._with_paths += has_paths
        return clauses, has_paths

    def remove(self, handle: Handle) -> None:
        clauses, has_paths = handle
        self._with_paths -= has_paths
        for clause in clauses:
            remove(clause)

    def match(
        self,
        roots: tuple[ClausePartition, ...],
        values: Mapping[str, Value],
        document: Document | None,
        limit: int | None,
    ) -> tuple[list[Hashable], int, int]:
        """Returns the matches in `roots`, the work, and how many roots were completed."""
        view = EventView(
            values,
            document,
            self._name_bits,
            has_paths=self._with_paths > 0,
            limit=math.inf if limit is None else limit,
        )
        for number, root in enumerate(roots):
            root.collect(view)
            if view.work > view.limit:
                return view.found, view.work, number
        return view.found, view.work, len(roots)

    def match_frames(
        self, roots: tuple[ClausePartition, ...], data: bytes, spans: Any, limit: int | None
    ) -> tuple[list[tuple[Hashable, ...]], bytes, int, int]:
        """As `Index.match_frames`: answers, index of each message's answer, work, undecided."""
        numbers: dict[tuple[Hashable, ...], int] = {}
        which = array("I")
        work = 0
        for start, end in pairs(spans, len(data)):
            values = attributes(data[start:end])
            answered = 0
            if values is not None:
                keys, spent, answered = self.match(roots, values, None, limit)
                work += spent
            if answered < len(roots):
                which.append(UNDECIDED)
            else:
                which.append(numbers.setdefault(tuple(keys), len(numbers) + 1))
        return [(), *numbers], which.tobytes(), work, which.count(UNDECIDED)
