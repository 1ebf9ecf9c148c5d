"""The index's predicates in the extension: terms in the form that its `Matcher` takes.

A term becomes conditions and a rest. A condition is a name, whether it may be absent, and ranges:
for each its kind, its low and its high, None for the ends of the kind, and low twice for a single
value. What is no range (functions, arithmetic, repeated elements) is the rest, a callable that the
matcher asks last.

Tests on XML paths are conditions too, under names that no attribute has: `TEXTS` before the path
for what it selects, `NUMBERS` for that as numbers. They may let through too much, so they are in
the rest as well. An event has all that a path selects under such a name, and a condition holds if
it does for any of it, which is XPath's meaning.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from accord.core.model.document import Document
from accord.core.model.values import Kind, Value
from accord.core.native import _native
from accord.core.predicates import sets
from accord.core.predicates.frames import attributes
from accord.core.predicates.rest import rest_of
from accord.core.predicates.sets import LOWEST, ValueSet
from accord.core.predicates.terms import Term
from accord.core.predicates.tree import PathTest

TEXTS: Final = "\0"
NUMBERS: Final = "\1"
_NO_LIMIT: Final = 2**62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ANY_TEXT: Final = (int(Kind.STRING), None, None)

Condition = tuple[str, bool, tuple[Any, ...]]
Handle = tuple[int, tuple[str, ...]]  # a predicate's number, and the paths that it asks for


class Compiled:
    """Matches in C."""

    def __init__(self) -> None:
        self._matcher = _native.Matcher(_instant, attributes)
        self._paths: Counter[str] = Counter()

    def root(self) -> int:
        return self._matcher.root()

    def drop(self, root: int) -> None:
        self._matcher.drop(root)

    def add(self, root: int, key: Hashable, terms: Iterable[Term]) -> Handle:
        converted = tuple(map(_converted, terms))
        number = self._matcher.add(root, key, converted)
        names = (name for conditions, _, _ in converted for name, _, _ in conditions)
        paths = tuple(name for name in names if name.startswith((TEXTS, NUMBERS)))
        self._paths.update(paths)
        return number, paths

    def remove(self, handle: Handle) -> None:
        number, paths = handle
        self._matcher.remove(number)
        self._paths -= Counter(paths)

    def match(
        self,
        roots: tuple[int, ...],
        values: Mapping[str, Value],
        document: Document | None,
        limit: int | None,
    ) -> tuple[list[Hashable], int, int]:
        """What matches in `roots`, the work that took, and how many roots were answered in full."""
        seen: Mapping[str, Any] = values
        if document is not None and self._paths:
            seen = {**values, **dict(self._selected(document))}
        elif type(values) is not dict:
            seen = dict(values)
        return self._matcher.match(roots, seen, document, _NO_LIMIT if limit is None else limit)

    def match_frames(
        self, roots: tuple[int, ...], data: bytes, spans: Any, limit: int | None
    ) -> tuple[list[tuple[Hashable, ...]], bytes, int, int]:
        """As `Index.match_frames`: answers, which is whose, work, and how many are undecided."""
        most = _NO_LIMIT if limit is None else limit
        return self._matcher.match_frames(roots, data, spans, most)

    def _selected(self, document: Document) -> Iterator[tuple[str, tuple[Value, ...]]]:
        for name in self._paths:
            path = name[1:]
            texts = document.paths.get(path)
            if texts is None:
                continue
            if name[0] == TEXTS:
                yield name, tuple(dict.fromkeys(texts))
            else:
                numbers = document.numbers(path)
                yield name, tuple(number for number in numbers if not math.isnan(number))


def _instant(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _converted(term: Term) -> tuple[tuple[Condition, ...], object, int]:
    conditions = [(name, allowed.has_null, _bounds(allowed)) for name, allowed in term.sets.items()]
    conditions += map(_path_condition, term.paths)
    rest = rest_of(term)
    return tuple(conditions), rest, 0 if rest is None else rest.weight


def _bounds(allowed: ValueSet) -> tuple[Any, ...]:
    found: list[Any] = []
    point = allowed.point()
    for kind, ranges in enumerate(allowed.ranges):
        for low, high in ranges:
            start = None if low == LOWEST[Kind(kind)] else low
            found += (kind, point, point) if point is not None else (kind, start, high)
    return tuple(found)


def _path_condition(test: PathTest) -> Condition:
    """What `test` asks of a path, or a little less."""
    op, value = test.op, test.value
    if isinstance(value, str) and op == "=":
        return TEXTS + test.path, False, (int(Kind.STRING), value, value)
    if isinstance(value, float) and op not in (None, "<>"):
        allowed = sets.compared(op, value)
        if not allowed.is_empty:
            return NUMBERS + test.path, False, _bounds(allowed)
    return TEXTS + test.path, False, _ANY_TEXT
