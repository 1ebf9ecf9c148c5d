from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.pipeline.query.checks import InvalidQueryError
from accord.pipeline.query.scan_ranges import rank_of, read_cursor, write_cursor

NUMBERS = st.integers(0, 2**63 - 1)


@given(
    NUMBERS, NUMBERS, NUMBERS, st.none() | st.integers(1, 2**62), st.binary(min_size=8, max_size=8)
)
def test_reads_what_it_wrote(
    ms: int, offset: int, before: int, left: int | None, digest: bytes
) -> None:
    text = write_cursor(digest, (ms, offset), before_offset=before, left=left)
    assert text.isascii()
    assert "=" not in text
    cursor = read_cursor(text, digest)
    assert (cursor.position, cursor.before_offset, cursor.limit) == ((ms, offset), before, left)


@given(st.text(max_size=200))
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidQueryError) as caught:
        read_cursor(text, b"12345678")
    assert caught.value.place == "cursor"


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_changed_cursor_is_refused(position: int, change: int) -> None:
    text = write_cursor(b"12345678", (1_763_280_000_000, 42), before_offset=99, left=7)
    position %= len(text)
    changed = text[:position] + chr(ord(text[position]) ^ change) + text[position + 1 :]
    with pytest.raises(InvalidQueryError):
        read_cursor(changed, b"12345678")


def test_cursor_of_another_question() -> None:
    text = write_cursor(b"12345678", (1, 2), before_offset=3, left=None)
    with pytest.raises(InvalidQueryError, match="another query"):
        read_cursor(text, b"87654321")


def test_lower_ranks_come_sooner() -> None:
    places = [(1, 5), (1, 6), (2, 0)]
    assert sorted(places, key=lambda place: rank_of(place, is_newest_first=False)) == places
    newest = sorted(places, key=lambda place: rank_of(place, is_newest_first=True))
    assert newest == places[::-1]
