"""Relations between predicates: covering and intersection.

`covers(p, q)` is whether every event that matches q matches p; `intersects(p, q)`, whether some
event matches both. Results are True, False, or None for unknown, and never wrong.

Each term bounds a box: one set of values per attribute. A term that equals its box is known
exactly; otherwise the box is too large, never too small. So q's boxes minus p's exact boxes being
empty proves covering, and q's exact boxes minus all of p's boxes leaving something disproves it.
The subtraction uses several terms of p together, because none alone need cover q.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from accord.core.model.values import Kind
from accord.core.predicates import value_sets
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.terms import Term, to_terms
from accord.core.predicates.tree import PathTest
from accord.core.predicates.value_sets import ANYTHING, ValueSet

Box = Mapping[str, ValueSet]

MAX_SIDES: Final = 4_096  # of all boxes together


def covers(p: Predicate, q: Predicate) -> bool | None:
    """Whether every event that matches `q` matches `p`."""
    return True if p == q else covers_terms(to_terms(p.tree), to_terms(q.tree))


def intersects(p: Predicate, q: Predicate) -> bool | None:
    """Whether some event matches both `p` and `q`."""
    return intersects_terms(to_terms(p.tree), to_terms(q.tree))


def covers_terms(p: list[Term], q: list[Term], most_sides: int = MAX_SIDES) -> bool | None:
    """`most_sides` bounds the work: if it is exceeded, the result is unknown."""
    answers = {_covers_term(p, term, most_sides) for term in q}
    if False in answers:
        return False
    return None if None in answers else True


def intersects_terms(p: list[Term], q: list[Term]) -> bool | None:
    answer: bool | None = False
    for a in p:
        for b in q:
            both = a.both(b)
            if both is None:
                continue
            if both.is_exact:
                return True
            answer = None
    return answer


def _covers_term(p: list[Term], q: Term, most_sides: int) -> bool | None:
    if q.is_exact and _escapes(q.sets, [term.sets for term in p]):
        return False
    sure = [term.sets for term in p if _implies_extras(q, term)]
    left = _subtract_all(q.sets, sure, most_sides)
    if left is None or not left:
        return None if left is None else True
    if not q.is_exact:
        return None
    left = _subtract_all(q.sets, [term.sets for term in p], most_sides)
    return False if left else None


def _escapes(box: Box, others: Iterable[Box]) -> bool:
    """Whether part of `box` is outside all others; False also if that is not easily seen."""
    left = dict(box)
    for other in others:
        for name, allowed in other.items():
            outside = left.get(name, ANYTHING) - allowed
            if not outside.is_empty:
                left[name] = outside
                break
        else:
            return False
    return True


def _implies_extras(q: Term, p: Term) -> bool:
    """Whether q implies all that p requires besides its box."""
    known = set(q.rest)
    return all(node in known for node in p.rest) and all(
        any(_implies_path(test, wanted) for test in q.paths) for wanted in p.paths
    )


def _implies_path(test: PathTest, wanted: PathTest) -> bool:
    if test.path != wanted.path:
        return False
    if wanted.op is None or test == wanted:
        return True
    if test.op is None or test.value is None or wanted.value is None:
        return False
    if isinstance(test.value, str) is not isinstance(wanted.value, str):
        return False
    # Unlike attributes, paths may select an infinite number.
    if sys.float_info.max in (abs(v) for v in (test.value, wanted.value) if isinstance(v, float)):
        return False
    return (_path_values(test) - _path_values(wanted)).is_empty


def _path_values(test: PathTest) -> ValueSet:
    """Values that the test allows; text that is not a number differs from all numbers, like NaN."""
    assert test.op is not None
    assert test.value is not None
    allowed = value_sets.compared(test.op, test.value)
    is_numeric = not isinstance(test.value, str)
    return (
        allowed | value_sets.of_kind(Kind.STRING, ("", None))
        if is_numeric and test.op == "<>"
        else allowed
    )


def _subtract_all(box: Box, others: Iterable[Box], most_sides: int) -> list[Box] | None:
    """Remainder of `box` without `others`, as boxes; None if they become too many."""
    left = [box]
    for other in others:
        pieces: list[Box] = []
        sides = 0
        for each in left:
            parts = _subtract(each, other, most_sides)
            pieces += parts
            sides += sum(map(len, parts))
            if sides > most_sides:
                return None
        left = pieces
    return left


def _subtract(box: Box, other: Box, most_sides: int) -> list[Box]:
    pieces: list[Box] = []
    rest = dict(box)
    for name, allowed in other.items():
        own = rest.get(name, ANYTHING)
        outside = own - allowed
        if not outside.is_empty:
            pieces.append({**rest, name: outside})
            if len(pieces) * len(rest) > most_sides:
                return pieces
        inside = own & allowed
        if inside.is_empty:
            return [box]
        rest[name] = inside
    return pieces
