"""All advertised filters, by number: which are related to another one, and their figures together.

Filters that are boxes are in the index; the few others are odd. A filter that asks may be either. A
disjunction covers what its terms cover together, and that is found in two steps: what one of them
covers alone the index knows; of the rest only filters that several of them touch can be covered,
and those are compared one by one, up to a limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accord.core.admission.filter_index.filter_index import FilterIndex, RelatedRows
from accord.core.admission.filter_index.filters import Filter, covers_all
from accord.core.admission.filter_index.general_filters import GeneralFilter, GeneralFilters
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.tables import NOTHING, Sums
from accord.core.predicates.terms import Term

MAX_COMPARED: Final = 2_000

Nodes = frozenset[str] | None


@dataclass(frozen=True, slots=True)
class RelatedFilters:
    """Filters that are related to one.

    `unknown` may or may not be. `is_loose` says that there was too much to compare.
    """

    boxes: RelatedRows | None
    odd: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    is_loose: bool = False


class FilterRelations:
    def __init__(self) -> None:
        self.index = FilterIndex()
        self.odd = GeneralFilters()
        self.compared = 0  # boxes one by one, because the index could not tell

    def __len__(self) -> int:
        return len(self.index) + len(self.odd)

    # ------------------------------------------------------------------------------------ filters

    def is_odd(self, filter_: Filter) -> bool:
        box = filter_.box
        return box is None or not self.index.has_room(box)

    def add(self, number: int, filter_: Filter, node: str, own: Sums) -> None:
        """A filter that is not there yet, and what it has of its own."""
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
        """It has so much more of its own."""
        covering = self.covering(filter_)
        if number in self.odd:
            odd = self.odd[number]
            odd.own = odd.own.plus(change)
            if number not in covering.odd:  # nobody could tell, but it is so
                covering.odd.append(number)
        else:
            self.index.gain_own(number, change.rate, change.count)
        self.gain(covering, change)

    def move(self, number: int, channel: str, node: str | None) -> None:
        """It is advertised by other nodes than before; by several, if None."""
        if number not in self.odd:
            box = self.index.box(number)
            figures = self.index.remove(number)
            self.index.add(number, channel, node, box, figures)

    def own(self, number: int) -> Sums:
        if number in self.odd:
            return self.odd[number].own
        return Sums(*self.index.figures(number)[:2])

    def total(self, number: int) -> Sums:
        """Rate and count of all that it covers."""
        if number not in self.odd:
            return Sums(*self.index.figures(number)[2:])
        odd = self.odd[number]
        return self.sum_own(self.covered(odd.filter)) if odd.is_loose else odd.total

    # ---------------------------------------------------------------------------------- relations

    def covered(self, filter_: Filter, nodes: Nodes = None) -> RelatedFilters:
        """Of boxes only those that are advertised at `nodes`, or at several, if given."""
        odd = self.odd.related(Relation.COVERED, filter_)
        # Terms with other conditions cover no box, which has none.
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
        """One that covers it and is covered by it, where the two are not written alike."""
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
        """Of boxes that are advertised at one node each."""
        return {} if group.boxes is None else self.index.sum_by_node(group.boxes)

    def several(self, group: RelatedFilters) -> list[int]:
        """The boxes that are advertised at several nodes."""
        return [] if group.boxes is None else self.index.several(group.boxes)

    def most(self, group: RelatedFilters) -> Sums:
        """The greatest rate and count of any; 0 of none."""
        found = [self.odd[number].total for number in group.odd if not self.odd[number].is_loose]
        if group.boxes is not None:
            found.append(self.index.most(group.boxes))
        rates, counts = [each.rate for each in found], [each.count for each in found]
        return Sums(max(rates, default=0), max(counts, default=0))

    def least(self, group: RelatedFilters) -> Sums | None:
        """The smallest rate and count of any; None of none."""
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
