from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.predicates.like import compile_pattern, normalise_pattern, split_prefix

TEXTS = st.text("ab%_\\\n💧", max_size=8)


def as_regex(pattern: str) -> str:
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join({"%": ".*", "_": "."}.get(piece) or re.escape(piece[-1]) for piece in pieces)


@given(TEXTS.map(lambda text: normalise_pattern(text, None)), TEXTS)
def test_a_pattern_means_what_its_regular_expression_means(pattern: str, text: str) -> None:
    expected = re.fullmatch(as_regex(pattern), text, re.DOTALL) is not None
    assert compile_pattern(pattern)(text) is expected


@given(TEXTS)
def test_an_escaped_text_is_like_itself_alone(text: str) -> None:
    escaped = "".join(f"!{character}" for character in text)
    pattern = normalise_pattern(escaped, "!")
    assert compile_pattern(pattern)(text)
    assert not compile_pattern(pattern)(text + "a")
    assert split_prefix(pattern) == (text, "")


def test_a_hostile_pattern_takes_linear_time() -> None:
    is_like = compile_pattern("%a" * 50 + "%b")
    assert not is_like("a" * 60_000)


@given(st.text("ab_", min_size=1, max_size=12), st.text("ab💧", max_size=40), st.integers(0, 9_000))
def test_a_part_is_found_in_a_long_text_wherever_it_stands(
    part: str, text: str, before: int
) -> None:
    """Long enough to be gone through by the window."""
    long = "b" * before + text + "b" * (9_000 - before)
    expected = re.search(as_regex(part), long, re.DOTALL) is not None
    assert compile_pattern(f"%{part}%")(long) is expected


@pytest.mark.timeout(20)
def test_a_hostile_pattern_with_single_wildcards_takes_linear_time() -> None:
    is_like = compile_pattern("%" + "a_" * 50 + "b%")
    for _ in range(100):
        assert not is_like("a" * 65_000)
