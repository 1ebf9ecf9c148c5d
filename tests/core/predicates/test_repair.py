"""What a selector with a syntax error may have been meant to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.model.errors import PredicateError
from accord.core.predicates.predicate import parse
from accord.core.predicates.repair import MAX_LENGTH, suggest_repair


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("a == 4", "a = 4"),
        ("a==4 && b=='x'", "a=4 AND b='x'"),
        ("a & b || c", "a AND b OR c"),
        ("!a", "NOT a"),
        ("a => 3", "a >= 3"),
        ("a = 'x", "a = 'x'"),
        ("a = ‘x’", "a = 'x'"),
        ("(a = 1", "(a = 1)"),
        ("((a == 1", "((a = 1))"),
        ("a = 1)", "a = 1"),
        ("a in ('x', 'y'", "a in ('x', 'y')"),
        ("load_mw > 4 ADN b = 1", "load_mw > 4 AND b = 1"),
        ("a lik 'x%'", "a LIKE 'x%'"),
    ],
)
def test_repairs(text: str, repaired: str) -> None:
    assert suggest_repair(text) == repaired
    parse(repaired)


@pytest.mark.parametrize("text", ["a = ", "a bogus b", "> 4", "5", "(" * 100, "a ==" * 400, "@#%"])
def test_what_has_no_repair(text: str) -> None:
    assert suggest_repair(text) == ""


@pytest.mark.parametrize("text", ["", "a = 1", "a LIKE 'x%' AND NOT b"])
def test_what_needs_none(text: str) -> None:
    assert suggest_repair(text) == ""


@given(st.text("ab1 =&|!<>'\"()ANDORnot‘’", max_size=40))
def test_repairs_are_predicates(text: str) -> None:
    repaired = suggest_repair(text)
    if repaired:
        parse(repaired)
        with pytest.raises(PredicateError):
            parse(text)


def test_long_texts_are_not_tried() -> None:
    assert suggest_repair("a == 1".ljust(MAX_LENGTH + 1)) == ""
