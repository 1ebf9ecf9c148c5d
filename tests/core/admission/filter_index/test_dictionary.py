"""Numbers for names, and for sets of values."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.admission.advertised import conjunctions

from accord.core.admission.filter_index.dictionary import (
    OTHERS,
    UNKNOWN,
    SetDictionary,
    ValueDictionary,
)
from accord.core.admission.filter_index.filters import Filter
from accord.core.admission.filter_index.patterns import Relation
from accord.core.admission.filter_index.range_sets import is_related
from accord.core.predicates.predicate import Predicate, parse
from accord.core.predicates.value_sets import ValueSet


def allowed(where: str) -> ValueSet:
    box = Filter("a", parse(where)).box
    assert box is not None
    return box["x"]


def some_sets(predicates: list[Predicate]) -> list[ValueSet]:
    boxes = [Filter("a", predicate).box or {} for predicate in predicates]
    return [each for box in boxes for each in box.values()]


def test_numbers_are_used_again_after_their_last_use() -> None:
    codes = ValueDictionary()
    assert [codes.take("a"), codes.take("b"), codes.take("a")] == [0, 1, 0]
    assert not codes.give_back(0)
    assert codes.give_back(0)
    assert codes.get("a") == UNKNOWN
    assert codes.take("c") == 0
    assert (len(codes), codes.used, codes.name(0)) == (2, 2, "c")
    codes.check_invariants()


def test_texts_in_a_range_are_found_in_any_number() -> None:
    codes = SetDictionary()
    numbers = {text: codes.take(allowed(f"x = '{text}'")) for text in map(str, range(2_000))}
    for text in ("17", "1999", "0"):
        codes.give_back(numbers.pop(text))
    codes.check_invariants()
    found = codes.related(Relation.COVERED, allowed("x LIKE '19%'")).tolist()
    assert found == sorted(number for text, number in numbers.items() if text.startswith("19"))
    assert codes.related(Relation.COVERING, allowed("x = '42'")).tolist() == [numbers["42"]]
    assert codes.related(Relation.INTERSECTING, allowed("x > 5")).tolist() == []


def test_others_than_single_texts_have_a_limit() -> None:
    codes = SetDictionary()
    for number in range(OTHERS):
        codes.take(allowed(f"x <> {number}"))
    assert codes.is_full
    assert not codes.has_room(allowed("x <> 'a'"))
    assert codes.has_room(allowed("x <> 5"))
    assert codes.has_room(allowed("x = 'a'"))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(conjunctions, max_size=8),
    st.lists(conjunctions, min_size=1, max_size=2),
    st.sampled_from(Relation),
)
def test_related_sets_are_those_of_one_by_one(
    present: list[Predicate], asking: list[Predicate], relation: Relation
) -> None:
    codes = SetDictionary()
    sets = some_sets(present)
    taken = [codes.take(each) for each in sets]
    for number in taken[::3]:
        codes.give_back(number)
    codes.check_invariants()
    left = {each: codes._codes.get(each) for each in sets}
    for asked in some_sets(asking):
        expected = sorted(
            number
            for each, number in left.items()
            if number != UNKNOWN and is_related(relation, asked, each)
        )
        assert codes.related(relation, asked).tolist() == expected
