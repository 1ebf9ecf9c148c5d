from __future__ import annotations

from typing import Any

import pytest

from accord.core.queries.messages import EventQuery, PageQuery
from accord.pipeline.query.checks import MAX_BYTES, MAX_ROWS, InvalidQueryError, check


def question(**fields: Any) -> PageQuery:
    return PageQuery(id=1, ask=EventQuery(**({"channel": "#"} | fields)))


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"channel": "a/#/b"}, "channel"),
        ({"channel": ""}, "channel"),
        ({"where": "altitude >"}, "where"),
        ({"where": "a = '" + "x" * 100_000 + "'"}, "where"),
        ({"xpath": "/m["}, "xpath"),
        ({"since_ms": 2, "until_ms": 1}, "since"),
        ({"since_ms": -1}, "since"),
        ({"until_ms": 2**63}, "until"),
        ({"limit": 0}, "limit"),
        ({"from_offset": -1}, "from_offset"),
        ({"before_offset": -1}, "before_offset"),
        ({"number": -1}, "number"),
    ],
)
def test_mistakes_are_told_with_their_place(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidQueryError) as caught:
        check(question(**fields))
    assert caught.value.place == place
    assert caught.value.problem


def test_a_predicate_says_what_was_expected() -> None:
    with pytest.raises(InvalidQueryError, match="expected"):
        check(question(where="altitude >"))


@pytest.mark.parametrize(
    ("rows", "bytes_", "place"),
    [(0, 1, "rows"), (MAX_ROWS + 1, 1, "rows"), (1, 0, "bytes"), (1, MAX_BYTES + 1, "bytes")],
)
def test_pages_have_limits(rows: int, bytes_: int, place: str) -> None:
    with pytest.raises(InvalidQueryError) as caught:
        check(PageQuery(id=1, ask=EventQuery(channel="#"), rows=rows, bytes=bytes_))
    assert caught.value.place == place


def test_selector_and_xpath_must_both_hold() -> None:
    both = check(question(where="a = 1", xpath="/m/b = 2"))
    assert " AND " in str(both.predicate)
    assert both.has_predicate
    assert not check(question()).has_predicate


def test_digest_is_that_of_the_question_only() -> None:
    first = check(question(where="a = 1"))
    again = check(PageQuery(id=9, ask=EventQuery(channel="#", where="a = 1"), rows=7))
    other = check(question(where="a = 2"))
    assert first.digest == again.digest != other.digest
