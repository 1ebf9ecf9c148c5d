"""Clauses (terms as the index stores them) and event views (events as it matches them).

A clause holds a term's conditions, fastest to check first. A view is an event with its values
grouped by kind, so that a check never compares unlike kinds.

Tests on XML paths are indexed under names of their own (`PATH` before the path), as if the selected
text were an attribute. If a path selects several texts, the view lists them in `many`: the index
then rules a clause out only if all of them fail, which is XPath's meaning.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from accord.core.model.document import Document
from accord.core.model.values import EXACT_MAX, Kind, Value
from accord.core.predicates.terms import TEXT_PER_STEP, Term, rest_of
from accord.core.predicates.tree import PathTest
from accord.core.predicates.value_sets import Bound, ValueSet, compared

if TYPE_CHECKING:
    from accord.core.predicates.grid import Block
    from accord.core.predicates.partition import ClausePartition

PATH: Final = "\0"  # occurs in no attribute name

# 1 == True in Python: as dictionary keys, booleans need names of their own.
_TRUE: Final = ("boolean", True)
_FALSE: Final = ("boolean", False)

NumberRange = tuple[str, float, float]
TextRange = tuple[str, str, str | None]
AxisKey = tuple[str, bool]  # a name, and whether its values are texts
Bits = int


def key_of(value: Value) -> Hashable:
    """The key of `value` in a table of equalities."""
    if value is True:
        return _TRUE
    return _FALSE if value is False else value


class NameBits:
    """A bit for each name that predicates refer to, to detect at once that an event lacks some.

    Names share bits once there are more than BITS of them, and have none if there are very many, or
    if a name is very long: bits only ever rule out.
    """

    __slots__ = ("_bits",)

    BITS: Final = 63
    MAX_NAMES: Final = 100_000
    MAX_LENGTH: Final = 256

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}

    def assign(self, names: Iterable[str]) -> Bits:
        """The bits of all `names`, assigned if they have none yet."""
        mask = 0
        for name in names:
            bit = self._bits.get(name)
            if bit is None and len(self._bits) < self.MAX_NAMES and len(name) <= self.MAX_LENGTH:
                bit = 1 << (len(self._bits) % self.BITS)
                self._bits[sys.intern(name)] = bit
            mask |= bit or 0
        return mask

    def absent(self, names: Iterable[str]) -> Bits:
        """The bits that none of `names` has."""
        mask = 0
        for name in names:
            mask |= self._bits.get(name, 0)
        return mask ^ ((1 << self.BITS) - 1)


class EventView:
    """One event prepared for matching, and the keys found to match it.

    `absent` has a bit for each name that the event lacks, see `NameBits`; `has_large` is set if it
    has an integer that a float may not hold. `work` counts steps; matching stops beyond `limit`.
    """

    __slots__ = (
        "_seen",
        "_text_size",
        "absent",
        "document",
        "found",
        "has_large",
        "keys",
        "limit",
        "many",
        "numbers",
        "strings",
        "values",
        "work",
    )

    def __init__(
        self,
        values: Mapping[str, Value],
        document: Document | None,
        name_bits: NameBits,
        *,
        has_paths: bool,
        limit: float = math.inf,
    ) -> None:
        self.values = values
        self.document = document
        self.found: list[Hashable] = []
        self._seen: set[Hashable] = set()
        self._text_size: int | None = None
        self.work = 0
        self.limit = limit
        self.numbers: dict[str, Any] = {}
        self.strings: dict[str, str] = {}
        self.keys: Mapping[str, Hashable] = values
        self.many: dict[str, tuple[str, ...]] = {}
        self.has_large = False
        has_booleans = False
        for name, value in values.items():
            kind = type(value)
            if kind is float:
                self.numbers[name] = value
            elif kind is int:
                self.numbers[name] = value
                if not -EXACT_MAX < value < EXACT_MAX:  # type: ignore[operator]
                    self.has_large = True
            elif kind is str:
                self.strings[name] = value  # type: ignore[assignment]
            elif kind is bool:
                has_booleans = True
        if has_booleans:
            self.keys = {name: key_of(value) for name, value in values.items()}
        if has_paths and document is not None:
            self._add_paths(document)
        self.absent: Bits = name_bits.absent(self.keys)

    def check(self, clause: Clause) -> None:
        """Records the key of `clause` if it matches; once, however many terms its predicate has."""
        if not clause.matches(self):
            return
        if not clause.is_only:
            if clause.key in self._seen:
                return
            self._seen.add(clause.key)
        self.found.append(clause.key)

    def text_size(self) -> int:
        """Total length of all texts."""
        if self._text_size is None:
            self._text_size = sum(map(len, self.strings.values()))
        return self._text_size

    def _add_paths(self, document: Document) -> None:
        keys = dict(self.keys)
        for path, texts in document.paths.items():
            name = PATH + path
            keys[name] = texts[0]
            if len(texts) == 1:
                self.strings[name] = texts[0]
            else:
                self.many[name] = texts
        self.keys = keys


class Clause:
    """One term of the predicate registered under `key`.

    `points` are its equalities and `names` the attributes it requires: partitions divide clauses by
    them; `required_bits` are the bits of those names. A grid decides by `ranges`; `is_decided` is
    set if nothing is left to check then. `partition`, `block`, `slot` and `is_listed` locate the
    clause, and belong to its container.
    """

    __slots__ = (
        "_numbers",
        "_others",
        "_rest",
        "_texts",
        "block",
        "is_decided",
        "is_listed",
        "is_only",
        "key",
        "names",
        "partition",
        "points",
        "ranges",
        "required_bits",
        "slot",
    )

    def __init__(self, key: Hashable, term: Term, name_bits: NameBits, *, is_only: bool) -> None:
        self.key = key
        self.is_only = is_only
        self.partition: ClausePartition | None = None
        self.block: Block | None = None
        self.is_listed = False
        self.slot = -1
        points: list[tuple[str, Hashable]] = []
        numbers: list[NumberRange] = []
        texts: list[TextRange] = []
        others: list[tuple[str, ValueSet]] = []
        for text, allowed in term.sets.items():
            name = sys.intern(text)
            point = allowed.point()
            if point is not None:
                points.append((name, key_of(point)))
            is_bounded = _add_bounds(name, allowed, numbers, texts)
            if not is_bounded:
                others.append((name, allowed))
        self._numbers = tuple(numbers)
        self._texts = tuple(texts)
        self._others = tuple(others)
        self._rest = rest_of(term)
        self.is_decided = is_only and not others and self._rest is None
        for test in term.paths:
            _add_path(test, points, numbers, texts)
        self.points = tuple(points)
        self.ranges: tuple[tuple[AxisKey, Bound, Bound | None], ...] = (
            *(((name, False), low, high) for name, low, high in numbers),
            *(((name, True), low, high) for name, low, high in texts),
        )
        names = [name for name, allowed in term.sets.items() if not allowed.has_null]
        names += [PATH + test.path for test in term.paths]
        self.names = tuple(dict.fromkeys(map(sys.intern, names)))
        self.required_bits: Bits = name_bits.assign(self.names)

    def matches(self, view: EventView) -> bool:
        numbers = view.numbers
        for name, low, high in self._numbers:
            number = numbers.get(name)
            if number is None or number < low or number >= high:
                return False
        for name, first, last in self._texts:
            text = view.strings.get(name)
            if text is not None:
                view.work += len(text) // TEXT_PER_STEP
            if text is None or text < first or (last is not None and text >= last):
                return False
        for name, allowed in self._others:
            if view.values.get(name) not in allowed:
                return False
        rest = self._rest
        if rest is None:
            return True
        if rest.weight:
            view.work += rest.weight * view.text_size() // TEXT_PER_STEP
            if view.work > view.limit:
                return False
        return rest(view.values, view.document) is True


def _add_bounds(
    name: str, allowed: ValueSet, numbers: list[NumberRange], texts: list[TextRange]
) -> bool:
    """Records the hull of `allowed`; returns whether the hull is exact."""
    kind = allowed.only_kind()
    if kind is None:
        return False
    ranges = allowed.ranges[kind]
    low, high = ranges[0][0], ranges[-1][1]
    if kind is Kind.NUMBER:
        numbers.append((name, low, _top(high)))
    elif kind is Kind.STRING:
        texts.append((name, low, high))
    else:
        return False
    return len(ranges) == 1


def _add_path(
    test: PathTest,
    points: list[tuple[str, Hashable]],
    numbers: list[NumberRange],
    texts: list[TextRange],
) -> None:
    """Indexes the first test of each path; all tests are evaluated afterwards."""
    name = sys.intern(PATH + test.path)
    known = {known for known, *_ in (*points, *numbers, *texts)}
    if test.op is None or test.value is None or test.op == "<>" or name in known:
        return
    if isinstance(test.value, str):
        if test.op == "=":
            points.append((name, test.value))
            texts.append((name, test.value, test.value + "\0"))
        return
    for low, high in compared(test.op, test.value).ranges[Kind.NUMBER]:
        numbers.append((name, low, _top(high)))


def _top(high: Bound | None) -> Any:
    return math.inf if high is None else high
