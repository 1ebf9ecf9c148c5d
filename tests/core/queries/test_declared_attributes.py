from __future__ import annotations

import pytest

from accord.core.queries.messages import (
    MAX_DECLARED,
    TYPES,
    problem_with,
    problems_among,
)


@pytest.mark.parametrize("type_", TYPES)
def test_types(type_: str) -> None:
    assert problem_with("altitude_m", type_) == ""


@pytest.mark.parametrize(
    ("name", "type_", "problem"),
    [
        ("x", "double", 'expected one of "integer", "float"'),
        ("x", None, "expected one of"),
        ("Channel", "string", "every event has a column 'channel'"),
        ("a.b", "string", "expected the name of an attribute"),
        ("", "string", "expected the name of an attribute"),
        ("x" * 101, "string", "expected the name of an attribute"),
        ("1st", "string", "expected the name of an attribute"),
    ],
)
def test_mistakes(name: str, type_: object, problem: str) -> None:
    assert problem in problem_with(name, type_)


def test_contradictions() -> None:
    declared = [("x", "float"), ("y", "string"), ("x", "float"), ("x", "string"), ("Y", "string")]
    problems = dict(problems_among(declared))
    assert list(problems) == [3, 4]
    assert 'expected "float"' in problems[3]
    assert "called y" in problems[4]


def test_too_many() -> None:
    declared = [(f"x{number}", "float") for number in range(MAX_DECLARED + 2)]
    ((position, problem),) = problems_among(declared)
    assert position == MAX_DECLARED
    assert str(MAX_DECLARED) in problem
