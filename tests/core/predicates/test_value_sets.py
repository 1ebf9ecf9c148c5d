from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import DOMAINS, values

from accord.core.model.values import Value
from accord.core.predicates import value_sets
from accord.core.predicates.evaluate import compare
from accord.core.predicates.tree import CompareOp
from accord.core.predicates.value_sets import ANYTHING, NOTHING, NULL, ValueSet

EVERY_VALUE: list[Value | None] = [
    None,
    *(value for domain in DOMAINS.values() for value in domain),
]
OPS: list[CompareOp] = ["=", "<>", "<", "<=", ">", ">="]

atoms = st.one_of(
    st.builds(value_sets.compared, st.sampled_from(OPS), values()),
    st.sampled_from(["", "a", "a\U0010ffff", "\ud7ff", "💧"]).map(value_sets.with_prefix),
    st.sampled_from([NULL, ANYTHING, NOTHING]),
)
any_set = st.recursive(
    atoms,
    lambda parts: st.one_of(
        st.builds(ValueSet.__and__, parts, parts),
        st.builds(ValueSet.__or__, parts, parts),
        st.builds(ValueSet.__sub__, parts, parts),
        parts.map(ValueSet.__invert__),
    ),
    max_leaves=5,
)


@given(st.sampled_from(OPS), values(), st.sampled_from(EVERY_VALUE))
def test_a_comparison_allows_what_it_is_true_for(
    op: CompareOp, constant: Value, value: Value | None
) -> None:
    assert (value in value_sets.compared(op, constant)) is (compare(op, value, constant) is True)


@given(st.lists(values(), min_size=1, max_size=4).map(tuple), st.sampled_from(EVERY_VALUE))
def test_lists_allow_what_they_are_true_for(listed: tuple[Value, ...], value: Value | None) -> None:
    equals = [compare("=", value, each) for each in listed]
    assert (value in value_sets.one_of(listed)) is (True in equals)
    assert (value in value_sets.none_of(listed)) is (set(equals) == {False})


@given(any_set, any_set, st.sampled_from(EVERY_VALUE))
def test_the_algebra_is_that_of_sets(a: ValueSet, b: ValueSet, value: Value | None) -> None:
    in_a, in_b = value in a, value in b
    assert (value in a & b) is (in_a and in_b)
    assert (value in a | b) is (in_a or in_b)
    assert (value in a - b) is (in_a and not in_b)
    assert (value in ~a) is not in_a


@given(any_set, any_set)
def test_equal_sets_have_one_form(a: ValueSet, b: ValueSet) -> None:
    assert (a | b) == ~(~a & ~b) == (b | a)
    assert (a - a) == NOTHING
    assert (a | ~a) == ANYTHING


@given(values())
def test_nothing_lies_between_a_value_and_the_next(value: Value) -> None:
    after = value_sets.successor(value)
    if after is not None:
        gap = value_sets.compared(">", value) & value_sets.compared("<", after)
        assert gap.is_empty
        assert value_sets.compared("=", value).point() == value


@pytest.mark.parametrize(
    ("prefix", "inside", "outside"),
    [
        ("a", ["a", "ab", "a\U0010ffff"], ["", "b", "B"]),
        ("", ["", "anything"], []),
        ("\U0010ffff", ["\U0010ffff", "\U0010ffffx"], ["a"]),
        ("a\U0010ffff", ["a\U0010ffffx"], ["b", "a"]),
        ("\ud7ff", ["\ud7ff", "\ud7ffx"], ["\ue000"]),
    ],
)
def test_a_prefix_allows_what_starts_with_it(
    prefix: str, inside: list[str], outside: list[str]
) -> None:
    allowed = value_sets.with_prefix(prefix)
    assert all(text in allowed for text in inside)
    assert not any(text in allowed for text in outside)


def test_only_a_single_value_is_a_point() -> None:
    assert value_sets.one_of((1, 2)).point() is None
    assert (value_sets.compared("=", 1) | NULL).point() is None
    assert value_sets.compared(">=", True).point() is None
    assert value_sets.compared("=", True).point() is True
