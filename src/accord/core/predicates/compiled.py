"""Matching engine in C: converts terms to the form of the extension's `Matcher`.

A term becomes conditions and a rest. A condition is a name, whether it may be absent, and ranges.
What is not a range (functions, arithmetic, repeated elements) is the rest, a callable that the
matcher calls last. Conditions are packed: their names; for each a head, which is twice the number
of its ranges, plus one if it may be absent; the bounds of all ranges, and their texts.

Tests on XML paths are conditions too, under names that no attribute has: `TEXTS` before the path
for what it selects, `NUMBERS` for that as numbers. They may let through too much, so they are in
the rest as well. An event has everything that a path selects under such a name, and a condition
holds if it holds for any of it, which is XPath's meaning.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from accord.core.model.document import Document
from accord.core.model.values import Kind, Value, infer, kind_of
from accord.core.native import _native
from accord.core.predicates import value_sets
from accord.core.predicates.frames import attributes
from accord.core.predicates.terms import Term, rest_of
from accord.core.predicates.tree import PathTest
from accord.core.predicates.value_sets import LOWEST, ValueSet

TEXTS: Final = "\0"
NUMBERS: Final = "\1"
_NO_LIMIT: Final = 2**62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# A kind and a value of it; None is the start of the kind.
_Bound = tuple[int, Value | None]
_BEYOND: Final = len(Kind)
_POINT: Final[_Bound] = (_BEYOND + 1, None)  # ends a range of one value
_ANY_TEXT: Final[tuple[_Bound, ...]] = ((Kind.STRING, None), (Kind.STRING + 1, None))
# A bound: a number as the largest double not above it, or the offset of a text; the text's length;
# how much the number is above the double.
_NUMBER: Final = struct.Struct("=dIHBx")
_TEXT: Final = struct.Struct("=QIHBx")
_STARTS: Final = [
    _TEXT.pack(0, 0, 0, kind) if kind == Kind.STRING else _NUMBER.pack(-math.inf, 0, 0, kind)
    for kind in range(_POINT[0] + 1)
]
_LOWEST: Final = [(int(kind), LOWEST[kind]) for kind in Kind]
_EXACT_BITS: Final = 53

Condition = tuple[str, bool, tuple[_Bound, ...]]
Packed = tuple[tuple[str, ...], bytes, bytes, object, int]
Handle = tuple[int, tuple[str, ...]]  # a predicate's number, and the paths it refers to


class Compiled:
    """Matching engine that uses the C extension."""

    def __init__(self) -> None:
        self._matcher = _native.Matcher(_moment, attributes)
        self._paths: Counter[str] = Counter()

    def root(self) -> int:
        return self._matcher.root()

    def drop(self, root: int) -> None:
        self._matcher.drop(root)

    def add(self, root: int, key: Hashable, terms: Iterable[Term]) -> Handle:
        converted = tuple(map(_converted, terms))
        number = self._matcher.add(root, key, converted)
        names = (name for term in converted for name in term[0])
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
        """Returns the matches in `roots`, the work, and how many roots were completed."""
        seen: Mapping[str, Any] = values
        if document is not None and self._paths:
            seen = {**values, **dict(self._selected(document))}
        elif type(values) is not dict:
            seen = dict(values)
        return self._matcher.match(roots, seen, document, _NO_LIMIT if limit is None else limit)

    def match_frames(
        self, roots: tuple[int, ...], data: bytes, spans: Any, limit: int | None
    ) -> tuple[list[tuple[Hashable, ...]], bytes, int, int]:
        """As `Index.match_frames`: answers, index of each message's answer, work, undecided."""
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


def _moment(value: datetime | str) -> int | None:
    """The microseconds of a timestamp; None for text that is not a timestamp."""
    found = infer(value) if isinstance(value, str) else value
    return _instant(found) if isinstance(found, datetime) else None


def _instant(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _converted(term: Term) -> Packed:
    conditions = [(name, allowed.has_null, _bounds(allowed)) for name, allowed in term.sets.items()]
    conditions += map(_path_condition, term.paths)
    rest = rest_of(term)
    heads = array("I")
    bounds: list[_Bound] = []
    for _, has_null, found in conditions:
        heads.append(len(found) + has_null)
        bounds += found
    weight = 0 if rest is None else rest.weight
    names = tuple([condition[0] for condition in conditions])
    return names, heads.tobytes(), _packed(bounds), rest, weight


def _bounds(allowed: ValueSet) -> tuple[_Bound, ...]:
    """Low and high of all ranges; ranges that meet at the start of a kind are joined."""
    point = allowed.point()
    if point is not None:
        return (kind_of(point), point), _POINT
    found: list[_Bound] = []
    for (kind, lowest), ranges in zip(_LOWEST, allowed.ranges, strict=True):
        for low, high in ranges:
            start = kind, None if low == lowest else low
            if found and found[-1] == start:
                found.pop()
            else:
                found.append(start)
            found.append((kind + 1, None) if high is None else (kind, high))
    return tuple(found)


def _packed(bounds: list[_Bound]) -> bytes:
    found: list[bytes] = []
    texts = bytearray()
    for kind, value in bounds:
        if value is None:
            found.append(_STARTS[kind])
        elif isinstance(value, float):
            found.append(_NUMBER.pack(value + 0.0, 0, 0, kind))  # + 0.0: one zero only
        elif isinstance(value, str):
            text = value.encode()
            found.append(_TEXT.pack(len(bounds) * _TEXT.size + len(texts), len(text), 0, kind))
            texts += text
        else:
            number = _instant(value) if isinstance(value, datetime) else value
            extra = number % (1 << max(abs(number).bit_length() - _EXACT_BITS, 0))
            found.append(_NUMBER.pack(number - extra, 0, extra, kind))
    return b"".join((*found, texts))


def _path_condition(test: PathTest) -> Condition:
    """The condition of `test` on a path, or a slightly weaker one."""
    op, value = test.op, test.value
    if isinstance(value, str) and op == "=":
        return TEXTS + test.path, False, ((Kind.STRING, value), _POINT)
    if isinstance(value, float) and op not in (None, "<>"):
        allowed = value_sets.compared(op, value)
        if not allowed.is_empty:
            return NUMBERS + test.path, False, _bounds(allowed)
    return TEXTS + test.path, False, _ANY_TEXT
