"""Filters of events: a channel filter and a predicate.

A filter covers another if both its parts do, and intersects another if both its parts do. If the
relation of predicates cannot be decided it is unknown, which counts as not covering.

Most predicates are boxes: one set of values for each of some attributes, and nothing else. Two
boxes match the same events if and only if their sets are equal, however they were written, so a box
has an identity beyond its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from accord.core.admission.filter_index import patterns
from accord.core.model.channels import filter_covers, problem_with_filter
from accord.core.model.errors import AdmissionError
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.relations import covers_terms, intersects_terms
from accord.core.predicates.terms import Term, to_terms
from accord.core.predicates.value_sets import ANYTHING, Bound, ValueSet

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
MAX_SIDES: Final = 256  # constraints in one comparison: a bound on the work clients can cause

Box = Mapping[str, ValueSet]


@dataclass(frozen=True)
class Filter:
    """What a publisher advertises or a subscription requests."""

    channel: str
    predicate: Predicate

    def __post_init__(self) -> None:
        if problem := problem_with_filter(self.channel):
            raise AdmissionError("channel", problem)

    @cached_property
    def terms(self) -> list[Term]:
        """Boxes, mostly one, with the same names in the same order for the same predicate."""
        return [_tidy(term) for term in to_terms(self.predicate.tree)]

    @property
    def box(self) -> Box | None:
        """The set allowed for each attribute, if the predicate is a box; otherwise None."""
        terms = self.terms
        return terms[0].sets if len(terms) == 1 and terms[0].is_exact else None

    @cached_property
    def identity(self) -> bytes:
        """Digest that is equal for filters known to be equivalent."""
        box = self.box
        said = self.predicate.tree.text if box is None else _plain(box)
        return hashlib.blake2b(repr((self.channel, said)).encode(), digest_size=16).digest()

    def __str__(self) -> str:
        return f"{self.channel} WHERE {self.predicate}"


def covers(wide: Filter, narrow: Filter) -> bool | None:
    if not filter_covers(wide.channel, narrow.channel):
        return False
    return wide.identity == narrow.identity or covers_all(wide.terms, narrow.terms)


def covers_all(wide: list[Term], narrow: list[Term]) -> bool | None:
    """Check covering, first by single terms: finding that otherwise could exceed the limit."""
    if len(wide) > 1 and any(covers_terms([term], narrow, MAX_SIDES) for term in wide):
        return True
    return covers_terms(wide, narrow, MAX_SIDES)


def intersects(one: Filter, other: Filter) -> bool | None:
    if not patterns.intersects(one.channel, other.channel):
        return False
    return intersects_terms(one.terms, other.terms)


def _tidy(term: Term) -> Term:
    sets = {name: term.sets[name] for name in sorted(term.sets) if term.sets[name] != ANYTHING}
    return Term(sets, term.paths, term.rest)


def _plain(box: Box) -> list[object]:
    """Return a canonical form, equal in every process: 1 is 1.0, and times are microseconds."""
    return [
        (
            name,
            allowed.has_null,
            [[(plain(low), plain(high)) for low, high in part] for part in allowed.ranges],
        )
        for name, allowed in box.items()
    ]


def plain(bound: Bound | None) -> object:
    if isinstance(bound, datetime):
        return microseconds(bound)
    if isinstance(bound, int | float) and not isinstance(bound, bool):
        real = float(bound)
        return real + 0.0 if real == bound else bound
    return bound


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND
