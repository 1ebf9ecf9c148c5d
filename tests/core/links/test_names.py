from __future__ import annotations

import pytest

from accord.core.links.options import name_problem


@pytest.mark.parametrize("name", ["a", "los-angeles.1", "zürich", "x" * 64])
def test_names(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        ("x" * 65, "has 65 bytes, at most 64"),
        ("ü" * 33, "has 66 bytes"),
        ("two words", "spaces or control characters"),
        ("line\n", "spaces or control characters"),
        ("\x1b[2J", "spaces or control characters"),
        ("no\u00a0break", "spaces or control characters"),
        ("\u202e", "spaces or control characters"),
        ("\ud800", "no valid text"),
    ],
)
def test_what_no_node_is_called(name: str, problem: str) -> None:
    assert problem in name_problem(name)
