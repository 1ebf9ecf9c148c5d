from __future__ import annotations

import pytest

from accord.core.admission.filter_index.constraints import ConstraintTest, Floats, Mask
from accord.core.admission.filter_index.filter_index import FilterIndex
from accord.core.admission.filter_index.filters import Box, Filter
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.tables import Sums
from accord.core.predicates.predicate import parse

CHANNELS = 20


def box(where: str) -> Box:
    found = Filter("any", parse(where)).box
    assert found is not None
    return found


@pytest.fixture
def index() -> FilterIndex:
    """Filters that limit an attribute each, besides one that all limit: strays."""
    index = FilterIndex()
    for number in range(200):
        limits = box(f"price > {number % 10} AND a{number} = 1")
        index.add(number, f"market/{number % CHANNELS}", "orlando", limits, (1_000, 1, 0, 0))
    assert index.strays == 200
    return index


def test_sides_are_compared_on_channels_that_fit_only(
    index: FilterIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    holds = ConstraintTest.holds

    def counted(test: ConstraintTest, low: Floats, high: Floats) -> Mask:
        compared.append(len(low))
        return holds(test, low, high)

    monkeypatch.setattr(ConstraintTest, "holds", counted)
    related = index.select(Relation.INTERSECTING, "market/3", box("price < 3"))
    assert compared == [200 // CHANNELS]
    assert index.sum_own(related) == Sums(0, 0), "theirs are all above 3"
    related = index.select(Relation.INTERSECTING, "market/+", box("price < 4"))
    assert compared == [200 // CHANNELS, 200]
    assert index.sum_own(related) == Sums(80_000, 80), "price > 0, 1, 2, 3"


def test_channels_come_and_go_between_questions(index: FilterIndex) -> None:
    def count(channel: str) -> int:
        found = index.select(Relation.INTERSECTING, channel, box("price > 100"))
        return index.sum_own(found).count

    assert count("market/3") == 10
    for number in range(3, 200, CHANNELS):
        index.remove(number)
    assert (count("market/3"), count("market/4")) == (0, 10)
    index.add(3, "news/3", "orlando", box("price > 1 AND b = 1"), (1_000, 1, 0, 0))
    assert (count("news/3"), count("market/3"), count("#")) == (1, 0, 191)
    index.check_invariants()
