"""Covering and intersection, against all events over domains that hold every case there is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies import trees

from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate, parse
from accord.core.predicates.relation_index import Related, Relations
from accord.core.predicates.relations import covers, intersects
from accord.core.predicates.tree import And, Attribute, Compare, Expr, In, IsNull, Like, Literal, Or
from accord.core.predicates.value_sets import successor

MOST = int(sys.float_info.max)  # XPath has no exponents
CONSTANTS: list[Value] = [1, 2, 2.5, "a", "ab", True, False]
# Below, on, right after, between and above all constants: no other value behaves differently.
VALUES: list[Value | None] = [
    None, 0, 1, successor(1), 1.5, 2, successor(2), 2.5, successor(2.5), 3,
    "", "a", "a\0", "aa", "ab", "ab\0", "abz", "ac", "b", True, False,
]  # fmt: skip
EVENTS: list[dict[str, Value]] = [
    {name: value for name, value in (("x", x), ("y", y)) if value is not None}
    for x, y in product(VALUES, VALUES)
]

names = st.sampled_from(["x", "y"]).map(Attribute)
constants = st.sampled_from(CONSTANTS)
simple: st.SearchStrategy[Expr] = st.one_of(
    st.builds(
        Compare, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), names, constants.map(Literal)
    ),
    st.builds(In, names, st.lists(constants, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(Like, names, st.sampled_from(["a%", "ab%", "%"]), st.booleans()),
    st.builds(IsNull, names, st.booleans()),
)
conjunctions = st.lists(simple, min_size=1, max_size=4).map(
    lambda items: Predicate(And(tuple(items)))
)
combinations = st.recursive(
    simple,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(lambda items: And(tuple(items))),
        st.lists(parts, min_size=1, max_size=3).map(lambda items: Or(tuple(items))),
    ),
    max_leaves=5,
).map(Predicate)


def matching(predicate: Predicate) -> set[int]:
    return {n for n, event in enumerate(EVENTS) if predicate.evaluate(event) is True}


@settings(max_examples=300)
@given(conjunctions, conjunctions)
def test_conjunctions_are_related_exactly(p: Predicate, q: Predicate) -> None:
    assert covers(p, q) is (matching(p) >= matching(q))
    assert intersects(p, q) is bool(matching(p) & matching(q))


@settings(max_examples=300)
@given(combinations, combinations)
def test_disjunctions_are_related_exactly_too(p: Predicate, q: Predicate) -> None:
    assert covers(p, q) is (matching(p) >= matching(q))
    assert intersects(p, q) is bool(matching(p) & matching(q))


@given(combinations, combinations)
def test_what_covers_and_is_covered_matches_the_same(p: Predicate, q: Predicate) -> None:
    if covers(p, q) and covers(q, p):
        assert matching(p) == matching(q)


@pytest.mark.parametrize(
    ("p", "q", "is_covered", "is_intersecting"),
    [
        ("price > 0", "price > 3 AND name = 'DEU'", True, True),
        ("price > 5", "price > 3 AND name = 'DEU'", False, True),
        ("price > 5", "price < 5", False, False),
        ("price < 5 OR price >= 5", "price BETWEEN 0 AND 10", True, True),
        ("a = 1 OR b = 1", "a = 1 AND c = 2", True, True),
        ("a > 9007199254740992", "a > 9007199254740993", True, True),
        ("a > 9007199254740993", "a > 9007199254740992", False, True),
        ("a LIKE '%x'", "a LIKE '%x' AND b = 1", True, None),
        ("a LIKE '%x'", "a LIKE 'b%'", None, None),
        ("a + b > 1", "a + b > 1 AND a = 2", True, None),
        ("XPATH '/r/n > 3'", "XPATH '/r/n > 5' AND a = 1", True, None),
        ("XPATH '/r/n'", "XPATH '/r/n = \"x\"'", True, None),
        ("XPATH '/r/n != 3'", "XPATH '/r/n > 5'", True, None),
        ("XPATH '/r/n > 3 and /r/n < 5'", "XPATH '/r/n = 4'", True, None),
        ("XPATH '/r/n > 5'", "XPATH '/r/n > 3'", None, None),
        ("TRUE", "XPATH 'count(//n) > 1'", True, None),
        ("a = 1", "FALSE", True, False),
        ("FALSE", "a < -1.7976931348623157e308", True, False),
        (f"XPATH '/a = {MOST}'", f"XPATH '/a >= {MOST}'", None, None),
    ],
)
def test_answers(p: str, q: str, is_covered: bool | None, is_intersecting: bool | None) -> None:
    assert covers(parse(p), parse(q)) is is_covered
    assert intersects(parse(p), parse(q)) is is_intersecting


@given(st.lists(combinations | trees().map(Predicate), max_size=8), combinations, st.data())
def test_many_are_related_as_one_by_one(
    many: list[Predicate], asked: Predicate, data: st.DataObject
) -> None:
    relations = Relations()
    for number, predicate in enumerate(many):
        relations.add(number, predicate)
    gone = data.draw(st.sets(st.sampled_from(range(len(many)))) if many else st.just(set()))
    for number in gone:
        relations.remove(number)
    kept = {number: p for number, p in enumerate(many) if number not in gone}
    assert len(relations) == len(kept)
    questions: list[tuple[Related, Callable[[Predicate], bool | None]]] = [
        (relations.covering(asked), lambda p: covers(p, asked)),
        (relations.covered_by(asked), lambda p: covers(asked, p)),
        (relations.intersecting(asked), lambda p: intersects(p, asked)),
    ]
    for found, ask in questions:
        answers = {number: ask(p) for number, p in kept.items()}
        assert sorted(found.yes) == [n for n, answer in answers.items() if answer is True]  # type: ignore[type-var]
        assert all(answers[number] is None for number in found.unknown)  # type: ignore[index]
    undecided = [n for n, p in kept.items() if intersects(p, asked) is None]
    assert sorted(relations.intersecting(asked).unknown) == undecided  # type: ignore[type-var]


def test_predicates_on_very_many_attributes_are_compared_in_bounded_memory() -> None:
    names = [f"n{number}" for number in range(1_400)]
    many = parse(" AND ".join(names[:200]) + " OR " + " AND ".join(names[200:]))
    assert covers(many, parse("zzz")) is False
    assert covers(parse("zzz"), many) is False
    boxes = " OR ".join(f"(a{n} > 0 AND b{n} > 0 AND c{n} > 0)" for n in range(9))
    assert covers(parse(f"{boxes} OR z > 0"), parse("z > 1")) is None, "more than is looked into"


def test_rows_left_behind_are_cleared_away() -> None:
    relations = Relations()
    for number in range(5_000):
        relations.add(number, parse(f"a > {number}"))
    for number in range(4_900):
        relations.remove(number)
    assert relations.covering(parse("a > 4901")).yes == [4_900, 4_901]
    assert 4_899 not in relations
    with pytest.raises(KeyError):
        relations.remove(4_899)
    with pytest.raises(ValueError, match="registered already"):
        relations.add(4_901, parse("a = 1"))
