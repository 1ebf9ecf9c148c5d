"""All advertised filters by number: those related to a given one, and aggregates over them.

Box filters are in the index; the few others are general filters. The filter looked up may be
either. A disjunction covers what its terms cover together, which is found in two steps: the index
finds what single terms cover; of the rest, only filters that intersect several terms can be
covered, and these are compared one by one, up to a limit.

General filters: disjunctions over several attributes, patterns, arithmetic, XPath.

Their number is limited, because they are compared one by one wherever `Relations` cannot decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accord.core.admission.filter_index.filter_index import FilterIndex, RelatedRows
from accord.core.admission.filter_index.filters import (
    MAX_SIDES,
    Filter,
    covers,
    covers_all,
    intersects,
)
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.tables import NOTHING, Sums
from accord.core.predicates.relation_index import Relations
from accord.core.predicates.terms import Term


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


MAX_COMPARED: Final = 2_000

Nodes = frozenset[str] | None


@dataclass(frozen=True, slots=True)
class RelatedFilters:
    """Filters related to a given one.

    `unknown` are undecided. With `is_loose` there were too many to compare.
    """

    boxes: RelatedRows | None
    odd: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    is_loose: bool = False


class FilterRelations:
    """Box filters and general filters together."""

    def __init__(self) -> None:
        self.index = FilterIndex()
        self.odd = GeneralFilters()
        self.compared = 0  # boxes compared one by one

    def __len__(self) -> int:
        return len(self.index) + len(self.odd)

    # ------------------------------------------------------------------------------------ filters

    def is_odd(self, filter_: Filter) -> bool:
        box = filter_.box
        return box is None or not self.index.has_room(box)

    def add(self, number: int, filter_: Filter, node: str, own: Sums) -> None:
        """Add a new filter with its own sums."""
        covered = self.covered(filter_)
        total = self.sum_own(covered).plus(own)
        self.gain(self.covering(filter_), own)
        if self.is_odd(filter_):
            self.odd.add(number, GeneralFilter(filter_, own, total, covered.is_loose))
        else:
            assert filter_.box is not None
            figures = (own.rate, own.count, total.rate, total.count)
            self.index.add(number, filter_.channel, node, filter_.box, figures)

    def remove(self, number: int, filter_: Filter, own: Sums) -> None:
        if number in self.odd:
            self.odd.remove(number)
        else:
            self.index.remove(number)
        self.gain(self.covering(filter_), Sums(-own.rate, -own.count))

    def change(self, number: int, filter_: Filter, change: Sums) -> None:
        """Add to a filter's own sums."""
        covering = self.covering(filter_)
        if number in self.odd:
            odd = self.odd[number]
            odd.own = odd.own.plus(change)
            if number not in covering.odd:  # it covers itself, even if that is not provable
                covering.odd.append(number)
        else:
            self.index.gain_own(number, change.rate, change.count)
        self.gain(covering, change)

    def move(self, number: int, channel: str, node: str | None) -> None:
        """Set the node that advertises it; None for several."""
        if number not in self.odd:
            box = self.index.box(number)
            figures = self.index.remove(number)
            self.index.add(number, channel, node, box, figures)

    def own(self, number: int) -> Sums:
        if number in self.odd:
            return self.odd[number].own
        return Sums(*self.index.figures(number)[:2])

    def total(self, number: int) -> Sums:
        """Return rate and count over all that it covers."""
        if number not in self.odd:
            return Sums(*self.index.figures(number)[2:])
        odd = self.odd[number]
        return self.sum_own(self.covered(odd.filter)) if odd.is_loose else odd.total

    # ---------------------------------------------------------------------------------- relations

    def covered(self, filter_: Filter, nodes: Nodes = None) -> RelatedFilters:
        """Return what it covers; of boxes only those at `nodes` or at several, if given."""
        odd = self.odd.related(Relation.COVERED, filter_)
        # A term with conditions other than value sets covers no box.
        exact = [term for term in filter_.terms if term.is_exact]
        boxes: RelatedRows | None = None
        is_loose = False
        if len(exact) == 1:
            boxes = self._select(Relation.COVERED, filter_, exact[0], nodes)
        elif exact:
            boxes, is_loose = self._covered_by_several(filter_, exact, nodes)
        return RelatedFilters(boxes, odd.sure, odd.unknown, is_loose)

    def covering(self, filter_: Filter) -> RelatedFilters:
        odd = self.odd.related(Relation.COVERING, filter_)
        parts = [self._select(Relation.COVERING, filter_, term) for term in filter_.terms]
        if len(parts) > 1:
            parts = [self.index.both(parts)]
        return RelatedFilters(parts[0] if parts else None, odd.sure, odd.unknown)

    def intersecting(self, filter_: Filter, nodes: Nodes = None) -> RelatedFilters:
        odd = self.odd.related(Relation.INTERSECTING, filter_)
        relation = Relation.INTERSECTING
        parts = [self._select(relation, filter_, term, nodes) for term in filter_.terms]
        if len(parts) > 1:
            parts = [self.index.either(parts)]
        return RelatedFilters(parts[0] if parts else None, odd.sure, odd.unknown)

    def same(self, filter_: Filter) -> int | None:
        """Return an equivalent filter that is written differently, if there is one."""
        if filter_.box is not None and not len(self.odd):
            return None
        covered, covering = self.covered(filter_), self.covering(filter_)
        for number in covered.odd:
            if number in covering.odd:
                return number
        if filter_.box is not None or covered.boxes is None or covering.boxes is None:
            return None
        both = self.numbers(RelatedFilters(self.index.both([covered.boxes, covering.boxes])))
        return both[0] if both else None

    # ------------------------------------------------------------------------------------ figures

    def sum_own(self, group: RelatedFilters) -> Sums:
        sums = self.sum_boxes(group)
        for number in group.odd:
            sums = sums.plus(self.odd[number].own)
        return sums

    def sum_boxes(self, group: RelatedFilters) -> Sums:
        return NOTHING if group.boxes is None else self.index.sum_own(group.boxes)

    def sum_by_node(self, group: RelatedFilters) -> dict[str, Sums]:
        """Return sums by node, of boxes that are advertised at a single node."""
        return {} if group.boxes is None else self.index.sum_by_node(group.boxes)

    def several(self, group: RelatedFilters) -> list[int]:
        """Return the boxes that are advertised at several nodes."""
        return [] if group.boxes is None else self.index.several(group.boxes)

    def most(self, group: RelatedFilters) -> Sums:
        """Return the greatest rate and count of any; 0 if there are none."""
        found = [self.odd[number].total for number in group.odd if not self.odd[number].is_loose]
        if group.boxes is not None:
            found.append(self.index.most(group.boxes))
        rates, counts = [each.rate for each in found], [each.count for each in found]
        return Sums(max(rates, default=0), max(counts, default=0))

    def least(self, group: RelatedFilters) -> Sums | None:
        """Return the smallest rate and count of any; None if there are none."""
        found = [self.odd[number].total for number in group.odd if not self.odd[number].is_loose]
        boxes = None if group.boxes is None else self.index.least(group.boxes)
        if boxes is not None:
            found.append(boxes)
        if not found:
            return None
        return Sums(min(each.rate for each in found), min(each.count for each in found))

    def numbers(self, group: RelatedFilters) -> list[int]:
        boxes = [] if group.boxes is None else self.index.numbers(group.boxes)
        return boxes + group.odd

    def gain(self, group: RelatedFilters, change: Sums) -> None:
        if group.boxes is not None:
            self.index.gain(group.boxes, change.rate, change.count)
        for number in group.odd:
            odd = self.odd[number]
            odd.total = odd.total.plus(change)

    def check_invariants(self) -> None:
        self.index.check_invariants()
        self.odd.check_invariants()

    # ------------------------------------------------------------------------------------- inside

    def _select(
        self, relation: Relation, filter_: Filter, term: Term, nodes: Nodes = None
    ) -> RelatedRows:
        return self.index.select(relation, filter_.channel, term.sets, nodes)

    def _covered_by_several(
        self, filter_: Filter, exact: list[Term], nodes: Nodes
    ) -> tuple[RelatedRows, bool]:
        alone = self.index.either(
            [self._select(Relation.COVERED, filter_, term, nodes) for term in exact]
        )
        touched = [self._select(Relation.INTERSECTING, filter_, term, nodes) for term in exact]
        on_channel = self._select(Relation.COVERED, filter_, Term(), nodes)
        candidates = self.index.both([on_channel, self.index.twice(touched)])
        known = set(self.index.numbers(alone))
        numbers = [each for each in self.index.numbers(candidates) if each not in known]
        compared = numbers[:MAX_COMPARED]
        self.compared += len(compared)
        found = [each for each in compared if covers_all(exact, [Term(self.index.box(each))])]
        together = self.index.only(candidates, found)
        return self.index.either([alone, together]), len(numbers) > len(compared)
