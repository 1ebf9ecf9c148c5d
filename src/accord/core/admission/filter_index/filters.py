"""Filters of events: a channel filter and a predicate.

A filter covers another if both its parts do; it intersects another if both its parts do. Where
predicates can't be decided the answer is unknown, which counts as not covering.

Most predicates are a box: one set of values for each of some attributes, and nothing else. Two
boxes match the same events exactly if their sets are the same, however they were written, so a box
has an identity beyond its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from accord.core.admission.errors import AdmissionError
from accord.core.admission.filter_index import patterns
from accord.core.model.channels import filter_covers, problem_with_filter
from accord.core.predicates.predicate import Predicate
from accord.core.predicates.relations import covers_terms, intersects_terms
from accord.core.predicates.terms import Term, to_terms
from accord.core.predicates.value_sets import ANYTHING, Bound, ValueSet

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
MAX_SIDES: Final = 256  # in one comparison: anybody may advertise and subscribe

Box = Mapping[str, ValueSet]


@dataclass(frozen=True)
class Filter:
    """What a publisher advertises, or a subscription asks for."""

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
        """What the predicate allows of each attribute, if that is all it says."""
        terms = self.terms
        return terms[0].sets if len(terms) == 1 and terms[0].is_exact else None

    @cached_property
    def identity(self) -> bytes:
        """The same for filters that are known to be the same."""
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
    """Also where one of many terms does it alone, which could be too much to find otherwise."""
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
    """The same for equal boxes in every process: 1 and 1.0 are equal, and so are time zones."""
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
