from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.queries.messages import EventQuery, PageToken, decode_token, encode_token

ASK = EventQuery(channel="uav/#", where="a > 1", since_ms=5, is_newest_first=True, limit=7)


def test_there_and_back() -> None:
    assert decode_token(encode_token(ASK, "x")) == PageToken(ASK, "x")
    columns = {"n": "integer"}
    assert decode_token(encode_token(ASK, "x", columns)).columns == columns


def test_no_cursor_no_token() -> None:
    assert encode_token(ASK, "") == ""


@given(st.text() | st.text("abcdefghij0123456789_-"))
def test_what_is_none(text: str) -> None:
    with suppress(ValueError):
        found = decode_token(text)
        assert decode_token(encode_token(found.query, found.cursor or "x")).query == found.query


@pytest.mark.parametrize("text", ["", "x", "a" * 300_000, encode_token(ASK, "x")[:-3], "día"])
def test_damaged_ones(text: str) -> None:
    with pytest.raises(ValueError, match="expected the cursor of a page"):
        decode_token(text)
