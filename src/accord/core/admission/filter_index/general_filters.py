"""General filters: disjunctions over several attributes, patterns, arithmetic, XPath.

Their number is limited, because they are compared one by one wherever `Relations` cannot decide.
"""

from __future__ import annotations

from dataclasses import dataclass

from accord.core.admission.filter_index.filters import MAX_SIDES, Filter, covers, intersects
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.tables import Sums
from accord.core.predicates.relation_index import Relations


@dataclass(slots=True)
class GeneralFilter:
    """A general filter with the figures that box filters have in the index.

    With `is_loose` there were too many to compare, and the total may be too small.
    """

    filter: Filter
    own: Sums
    total: Sums
    is_loose: bool = False


@dataclass(frozen=True, slots=True)
class RelatedGeneralFilters:
    """Numbers of related filters, and of undecided ones."""

    sure: list[int]
    unknown: list[int]


NONE_RELATED = RelatedGeneralFilters([], [])


class GeneralFilters:
    """All general filters by number."""

    def __init__(self) -> None:
        self._relations = Relations(MAX_SIDES)
        self._filters: dict[int, GeneralFilter] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, number: int) -> bool:
        return number in self._filters

    def __getitem__(self, number: int) -> GeneralFilter:
        return self._filters[number]

    def add(self, number: int, odd: GeneralFilter) -> None:
        self._relations.add(number, odd.filter.predicate)
        self._filters[number] = odd

    def remove(self, number: int) -> None:
        self._relations.remove(number)
        del self._filters[number]

    def related(self, relation: Relation, asking: Filter) -> RelatedGeneralFilters:
        if not self._filters:
            return NONE_RELATED
        ask = (
            self._relations.covered_by,
            self._relations.covering,
            self._relations.intersecting,
        )[relation]
        found = ask(asking.predicate)
        related = RelatedGeneralFilters([], [])
        for number in (*found.yes, *found.unknown):
            assert isinstance(number, int)
            # Compared again, so that the result is the same from either filter's side.
            answer = _answer(relation, asking, self._filters[number].filter)
            if answer is not False:
                (related.sure if answer else related.unknown).append(number)
        return related

    def check_invariants(self) -> None:
        assert len(self._relations) == len(self._filters)
        for odd in self._filters.values():
            assert odd.own.count > 0
            assert odd.is_loose or odd.total.count >= odd.own.count


def _answer(relation: Relation, asking: Filter, other: Filter) -> bool | None:
    if relation is Relation.COVERED:
        return covers(asking, other)
    if relation is Relation.COVERING:
        return covers(other, asking)
    return intersects(asking, other)
