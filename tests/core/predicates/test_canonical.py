from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import truth
from tests.strategies import attribute_maps, documents, trees

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.evaluate import compile_node
from accord.core.predicates.predicate import Predicate, canonical, parse, parse_xpath
from accord.core.predicates.tree import Expr


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("5 < a", "a > 5"),
        ("NOT a < 5", "a >= 5"),
        ("a BETWEEN 1 AND 2", "a >= 1 AND a <= 2"),
        ("NOT (a = 1 AND b = 2)", "a <> 1 OR b <> 2"),
        ("a = 1 OR a = 2", "a IN (2, 1)"),
        ("a <> 1 AND a <> 2", "a NOT IN (1, 2, 2)"),
        ("a IN (1)", "a = 1"),
        ("a = 3.0", "a = 3"),
        ("a = 2 + 1", "a = 3"),
        ("b = 1 AND a = 1", "a = 1 AND b = 1 AND a = 1"),
        ("flag", "flag = TRUE"),
        ("NOT flag", "flag <> TRUE"),
        ("a LIKE 'x'", "a = 'x'"),
        ("a LIKE 'x!%%' ESCAPE '!'", r"a LIKE 'x\%%' ESCAPE '\'"),
        ("a LIKE '%_%'", "a LIKE '_%%'"),
        ("a = 1 AND TRUE", "a = 1"),
        ("a = 1 OR TRUE", ""),
        ("a = 1 AND 'x' = 1", "FALSE"),
        ("a = 1 OR 0 / 0 = 0", "a = 1"),
        ("(a > 1) = TRUE", "a > 1"),
        ("(a > 1) <> TRUE", "a <= 1"),
        ("a + b > 1", "1 < a + b"),
        ("NOT NOT a = 1", "a = 1"),
        ("XPATH '5 < /r/n'", "XPATH '/r/n > 5'"),
        ("XPATH 'not(not(/r/n))'", "XPATH 'r/n'"),
    ],
)
def test_equal_conditions_become_equal(written: str, same: str) -> None:
    assert parse(written) == parse(same)
    assert parse(written).digest == parse(same).digest


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a = 1", "a = TRUE"),
        ("a = 1", "a = '1'"),
        ("a IN (0, 1)", "a IN (FALSE, TRUE)"),
        ("a = 'x'", "A = 'x'"),
        ("a LIKE '%'", "a IS NOT NULL"),
        ("a = 1 AND b = 2 OR c = 3", "a = 1 AND (b = 2 OR c = 3)"),
    ],
)
def test_unlike_conditions_stay_unlike(left: str, right: str) -> None:
    assert parse(left) != parse(right)


@given(trees(), attribute_maps(), st.none() | documents())
def test_the_canonical_form_matches_the_same_events(
    tree: Expr, values: dict[str, Value], document: Document | None
) -> None:
    written = canonical(tree)
    is_match = truth(tree, values, document) is True
    assert (truth(written, values, document) is True) is is_match
    assert (compile_node(written)(values, document) is True) is is_match
    assert canonical(written) == written


@given(trees())
def test_the_printed_form_parses_back(tree: Expr) -> None:
    predicate = Predicate(tree)
    assert parse(str(predicate)) == predicate


def test_the_digest_is_the_same_in_every_process() -> None:
    text = "b IN ('x', 'y', 3) AND (a > 1 OR XPATH '//n = 2')"
    code = f"from accord.predicates import parse; print(parse({text!r}).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {parse(text).digest}


def test_names_that_only_look_like_keywords_are_quoted() -> None:
    predicate = parse('"LI\u212aE" = 1')
    assert parse(str(predicate)) == predicate


def test_a_predicate_survives_pickling() -> None:
    predicate = parse("a IN (1, 'x') AND XPATH 'count(//n) > 1'")
    assert pickle.loads(pickle.dumps(predicate)) == predicate  # noqa: S301


def test_namespaces_survive_printing() -> None:
    predicate = parse_xpath("/g:report/g:altitude > 5", {"g": "urn:x'y"})
    assert str(predicate) == "XPATH '/n0:report/n0:altitude > 5' USING n0 = 'urn:x''y'"
    assert parse(str(predicate)) == predicate
    assert predicate == parse_xpath("h:report/h:altitude > 5", {"h": "urn:x'y"})
