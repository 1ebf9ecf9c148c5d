from __future__ import annotations

import re

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
