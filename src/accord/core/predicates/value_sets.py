"""Sets of values that one attribute may have for a predicate to match.

Every kind of value is totally ordered and discrete: each value has a next one. (The next float
after 5; for strings, the text with a null character appended; for timestamps, a microsecond later.)
So all sets that comparisons, IN, prefixes and their combinations describe are finite unions of
half-open ranges `low <= value < high`, and subset, intersection and complement are exact. `high`
None means no upper bound.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from accord.core.model.values import EXACT_MAX, INTEGER_MAX, INTEGER_MIN, Kind, Value, kind_of
from accord.core.predicates.tree import CompareOp, sort_key

Bound = Any  # a value of the range's kind
Range = tuple[Bound, Bound | None]
Ranges = tuple[Range, ...]

_KINDS: Final = tuple(Kind)
LOWEST: Final[dict[Kind, Bound]] = {
    Kind.NUMBER: -sys.float_info.max,
    Kind.STRING: "",
    Kind.BOOLEAN: False,
    Kind.TIMESTAMP: datetime.min.replace(tzinfo=UTC),
}


class ValueSet:
    """Values of every kind, by `Kind`, and whether an absent attribute belongs to the set too."""

    __slots__ = ("has_null", "ranges")

    def __init__(
        self, ranges: tuple[Ranges, Ranges, Ranges, Ranges], has_null: bool = False
    ) -> None:
        self.ranges = ranges
        self.has_null = has_null

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ValueSet)
            and self.ranges == other.ranges
            and self.has_null == other.has_null
        )

    def __hash__(self) -> int:
        return hash((self.ranges, self.has_null))

    def __repr__(self) -> str:
        return f"ValueSet({self.ranges!r}, has_null={self.has_null})"

    def __contains__(self, value: Value | None) -> bool:
        if value is None:
            return self.has_null
        ranges = self.ranges[kind_of(value)]
        place = bisect_right(ranges, value, key=_low)
        if not place:
            return False
        high = ranges[place - 1][1]
        return high is None or value < high

    def __and__(self, other: ValueSet) -> ValueSet:
        a, b, c, d = self.ranges
        e, f, g, h = other.ranges
        return ValueSet(
            (
                _intersect(a, e) if a and e else (),
                _intersect(b, f) if b and f else (),
                _intersect(c, g) if c and g else (),
                _intersect(d, h) if d and h else (),
            ),
            self.has_null and other.has_null,
        )

    def __or__(self, other: ValueSet) -> ValueSet:
        return ~(~self & ~other)

    def __sub__(self, other: ValueSet) -> ValueSet:
        return self & ~other

    def __invert__(self) -> ValueSet:
        numbers, strings, booleans, timestamps = self.ranges
        return ValueSet(
            (
                _complement(numbers, LOWEST[Kind.NUMBER]),
                _complement(strings, LOWEST[Kind.STRING]),
                _complement(booleans, LOWEST[Kind.BOOLEAN]),
                _complement(timestamps, LOWEST[Kind.TIMESTAMP]),
            ),
            not self.has_null,
        )

    @property
    def is_empty(self) -> bool:
        return not self.has_null and not any(self.ranges)

    def only_kind(self) -> Kind | None:
        """The kind of all its values; None if there are several, or null is included."""
        if self.has_null:
            return None
        kinds = [kind for kind, ranges in zip(_KINDS, self.ranges, strict=True) if ranges]
        return kinds[0] if len(kinds) == 1 else None

    def point(self) -> Value | None:
        """The only value of this set, or None if it has none or several."""
        kind = self.only_kind()
        if kind is None or len(self.ranges[kind]) != 1:
            return None
        low, high = self.ranges[kind][0]
        return low if high == successor(low) else None


def _low(bounds: Range) -> Bound:
    return bounds[0]


def _intersect(left: Ranges, right: Ranges) -> Ranges:
    found: list[Range] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low = max(left[i][0], right[j][0])
        high = _lower(left[i][1], right[j][1])
        if high is None or low < high:
            found.append((low, high))
        if high == left[i][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _lower(a: Bound | None, b: Bound | None) -> Bound | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _complement(ranges: Ranges, lowest: Bound) -> Ranges:
    gaps: list[Range] = []
    start: Bound | None = lowest
    for low, high in ranges:
        if start is not None and start < low:
            gaps.append((start, low))
        start = high
    if start is not None:
        gaps.append((start, None))
    return tuple(gaps)


NOTHING: Final = ValueSet(((), (), (), ()))
ANYTHING: Final = ~NOTHING
NULL: Final = ValueSet(((), (), (), ()), has_null=True)
NOT_NULL: Final = ~NULL


def of_kind(kind: Kind, *ranges: Range) -> ValueSet:
    match kind:
        case Kind.NUMBER:
            return ValueSet((ranges, (), (), ()))
        case Kind.STRING:
            return ValueSet(((), ranges, (), ()))
        case Kind.BOOLEAN:
            return ValueSet(((), (), ranges, ()))
        case Kind.TIMESTAMP:
            return ValueSet(((), (), (), ranges))


def compared(op: CompareOp, constant: Value) -> ValueSet:
    """All values for which `value op constant` is true."""
    kind = kind_of(constant)
    lowest, after = LOWEST[kind], successor(constant)
    if kind is Kind.BOOLEAN and op not in ("=", "<>"):
        return NOTHING
    above: tuple[Range, ...] = () if after is None else ((after, None),)
    below: tuple[Range, ...] = () if lowest == constant else ((lowest, constant),)
    match op:
        case "=":
            return of_kind(kind, (constant, after))
        case "<>":
            return of_kind(kind, *below, *above)
        case "<":
            return of_kind(kind, *below)
        case "<=":
            return of_kind(kind, (lowest, after))
        case ">":
            return of_kind(kind, *above)
        case ">=":
            return of_kind(kind, (constant, None))


def one_of(values: Iterable[Value]) -> ValueSet:
    """All values that equal one of `values`."""
    found: dict[Kind, list[Range]] = {kind: [] for kind in _KINDS}
    for value in sorted(values, key=sort_key):
        ranges, after = found[kind_of(value)], successor(value)
        last: Range = ranges[-1] if ranges else (None, value)
        low, high = last
        if high is None or value < high:
            continue  # a duplicate
        if ranges and high == value:
            ranges[-1] = low, after
        else:
            ranges.append((value, after))
    numbers, strings, booleans, timestamps = (tuple(found[kind]) for kind in _KINDS)
    return ValueSet((numbers, strings, booleans, timestamps))


def none_of(values: Iterable[Value]) -> ValueSet:
    """All values known to differ from each of `values`: of their kind, so of one kind."""
    equal = one_of(values)
    kind = equal.only_kind()
    return NOTHING if kind is None else of_kind(kind, (LOWEST[kind], None)) - equal


def with_prefix(prefix: str) -> ValueSet:
    return of_kind(Kind.STRING, (prefix, _after_prefix(prefix)))


def successor(value: Value) -> Bound | None:
    """The next value of its kind, or None after the last."""
    if isinstance(value, str):
        return value + "\0"
    if isinstance(value, bool):
        return None if value else True
    if isinstance(value, datetime):
        last = datetime.max.replace(tzinfo=UTC)
        return None if value >= last else value + timedelta(microseconds=1)
    return _next_number(value)


def _next_number(value: Any) -> Any | None:
    """The next among all 64-bit integers and all floats, compared exactly."""
    real = float(value)
    if -EXACT_MAX < real < EXACT_MAX:
        return math.nextafter(real, math.inf)
    if real <= value:
        real = math.nextafter(real, math.inf)
    whole = math.floor(value) + 1
    candidates: list[Any] = [real] if math.isfinite(real) else []
    if INTEGER_MIN <= whole <= INTEGER_MAX:
        candidates.append(whole)
    return min(candidates, default=None)


def _after_prefix(prefix: str) -> str | None:
    """The first text after all that start with `prefix`; surrogates are not text."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = "\ue000" if kept[-1] == "\ud7ff" else chr(ord(kept[-1]) + 1)
    return kept[:-1] + following
