"""Rows that come and go, strays and leaves, against a walk over all of them."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.admission.advertised import CHANNELS, filter_of, random_filter

from accord.core.admission.filter_index.filter_index import MAX_SIDES, FilterIndex, RelatedRows
from accord.core.admission.filter_index.filters import Filter, covers, intersects
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.tables import Sums

NODES = ("denver", "orlando", None)


class Pair:
    """An index, and the same as a dictionary."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 (to be replayed)
        self.index = FilterIndex()
        self.rows: dict[int, tuple[Filter, str | None, int]] = {}

    def add(self, number: int) -> None:
        filter_, node = random_filter(self.random), self.random.choice(NODES)
        box = filter_.box
        if box is None or not filter_.terms:
            return
        rate = self.random.randrange(10)
        self.index.add(number, filter_.channel, node, box, (rate, 1, rate, 1))
        self.rows[number] = filter_, node, rate

    def remove(self, number: int) -> None:
        _, _, rate = self.rows.pop(number)
        assert self.index.remove(number)[:2] == (rate, 1)

    def select(
        self, relation: Relation, asked: Filter, nodes: frozenset[str] | None = None
    ) -> tuple[RelatedRows, list[int]]:
        box = asked.box
        assert box is not None
        found = self.index.select(relation, asked.channel, box, nodes)
        expected = [
            number
            for number, (filter_, node, _) in self.rows.items()
            if _is_related(relation, asked, filter_)
            and (nodes is None or node is None or node in nodes)
        ]
        return found, sorted(expected)

    def check(self, found: RelatedRows, expected: list[int]) -> None:
        assert sorted(self.index.numbers(found)) == expected
        rates = [self.rows[number][2] for number in expected]
        assert self.index.sum_own(found) == Sums(sum(rates), len(rates))
        several = [number for number in expected if self.rows[number][1] is None]
        assert sorted(self.index.several(found)) == several


def _is_related(relation: Relation, asked: Filter, other: Filter) -> bool:
    if relation is Relation.COVERED:
        return covers(asked, other) is True
    if relation is Relation.COVERING:
        return covers(other, asked) is True
    return intersects(asked, other) is not False


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_come_and_go(seed: int) -> None:
    pair = Pair(seed)
    random = pair.random
    for number in range(300):
        pair.add(number)
        if random.random() < 0.2 and pair.rows:
            pair.remove(random.choice(list(pair.rows)))
        if number % 30 == 0:
            pair.index.check_invariants()
            for relation in Relation:
                asked = random_filter(random)
                nodes = random.choice((None, frozenset({"denver"}), frozenset({"nobody"})))
                pair.check(*pair.select(relation, asked, nodes))
    for number in list(pair.rows):
        filter_ = pair.rows[number][0]
        assert pair.index.box(number) == filter_.box
        pair.remove(number)
    pair.index.check_invariants()
    assert len(pair.index) == pair.index.strays == 0


@pytest.mark.parametrize("seed", range(4))
def test_what_is_found_can_be_combined(seed: int) -> None:
    pair = Pair(100 + seed)
    for number in range(200):
        pair.add(number)
    parts = [
        pair.select(relation, filter_of(where, channel))
        for relation, where, channel in (
            (Relation.INTERSECTING, "x > 20", "a/b"),
            (Relation.COVERED, "x > 10 AND y < 40", "a/+"),
            (Relation.INTERSECTING, "y < 30", "#"),
        )
    ]
    found = [part for part, _ in parts]
    wanted = [set(numbers) for _, numbers in parts]
    index = pair.index
    pair.check(index.either(found), sorted(wanted[0] | wanted[1] | wanted[2]))
    pair.check(index.both(found), sorted(wanted[0] & wanted[1] & wanted[2]))
    several = [n for n in pair.rows if sum(n in part for part in wanted) > 1]
    pair.check(index.twice(found), sorted(several))
    some = sorted(wanted[0])[::2]
    pair.check(index.only(found[0], some), some)


def test_rates_and_counts_are_changed_where_they_are_asked_for() -> None:
    pair = Pair(7)
    for number in range(200):
        pair.add(number)
    asked = filter_of("x > 20 AND y < 30", "a/b")
    covering, expected = pair.select(Relation.COVERING, asked)
    before = {number: pair.index.figures(number)[2:] for number in pair.rows}
    pair.index.gain(covering, 5, 2)
    for number, (rate, count) in before.items():
        more = (5, 2) if number in expected else (0, 0)
        assert pair.index.figures(number)[2:] == (rate + more[0], count + more[1])
    figures = [pair.index.figures(number)[2:] for number in expected]
    assert pair.index.most(covering) == Sums(*(max(part) for part in zip(*figures, strict=True)))
    assert pair.index.least(covering) == Sums(*(min(part) for part in zip(*figures, strict=True)))
    number = expected[0]
    pair.index.gain_own(number, 100, 1)
    own_rate = pair.rows[number][2]
    assert pair.index.figures(number)[:2] == (own_rate + 100, 2)
    pair.index.check_invariants()


def test_nothing_is_found_where_nothing_is() -> None:
    index = FilterIndex()
    box = filter_of("x > 1").box
    assert box is not None
    for relation in Relation:
        for channel in CHANNELS:
            found = index.select(relation, channel, box)
            assert index.numbers(found) == []
            assert index.sum_own(found) == Sums(0, 0)
            assert index.least(found) is None


def test_boxes_with_many_sides_have_no_room() -> None:
    index = FilterIndex()
    for count, has_room in ((MAX_SIDES, True), (MAX_SIDES + 1, False)):
        box = filter_of(" AND ".join(f"x{number} > 1" for number in range(count))).box
        assert box is not None
        assert index.has_room(box) == has_room
