from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import trees

from accord.core.predicates.predicate import Predicate, parse
from accord.core.predicates.relations import covers
from accord.core.predicates.tree import Expr
from accord.pipeline.bulk.text_patterns import (
    MAX_CLAUSES,
    Bound,
    Conjunction,
    Equality,
    clauses_of,
    group_texts,
    split_text,
    trees_of,
)


def _plain(*texts: str) -> dict[int, str]:
    """What was read by its shape, as canonical text, by place."""
    families, _ = group_texts(texts)
    return {place: str(tree) for family in families for place, tree in trees_of(family)}


def test_texts_that_differ_in_constants_share_a_shape() -> None:
    first = split_text("topic = 'a' AND height > 300 AND \"2nd\" < 5")
    second = split_text("topic = 'it''s' AND height > 2.5 AND \"2nd\" < 0")
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
    assert first[1] == ["'a'", "300", "5"]
    assert second[1] == ["'it''s'", "2.5", "0"]


def test_names_keep_their_digits() -> None:
    split = split_text("a1 > 2 AND b.3 < 4 AND $5 = 6")
    assert split is not None
    assert split[1] == ["2", "4", "6"]


@pytest.mark.parametrize("number", ["0x1F", "042", "5L", "1.5e3", "12345678901234567", "5d", "5."])
def test_constants_written_specially_need_the_parser(number: str) -> None:
    assert group_texts([f"height > {number}"]) == ([], [0])


def _clauses(text: str) -> tuple[Conjunction, ...] | None:
    split = split_text(text)
    return None if split is None else clauses_of(split[0])


def test_a_conjunction_is_one_clause() -> None:
    assert _clauses("topic = 'a' AND is_set AND height BETWEEN -5 AND 10") == (
        Conjunction(
            (Equality("is_set", "boolean"), Equality("topic", "string", 0)),
            (Bound("height", "number", "<=", 2), Bound("height", "number", ">=", 1, -1)),
        ),
    )


def test_disjunctions_are_divided_into_clauses() -> None:
    assert _clauses("a = 'x' AND (b > 1 OR c < 2)") == (
        Conjunction((Equality("a", "string", 0),), (Bound("b", "number", ">", 1),)),
        Conjunction((Equality("a", "string", 0),), (Bound("c", "number", "<", 2),)),
    )
    assert _clauses("a IN ('x', 'y')") == (
        Conjunction((Equality("a", "string", 0),)),
        Conjunction((Equality("a", "string", 1),)),
    )
    assert _clauses("a <> 5") == (
        Conjunction((), (Bound("a", "number", "<", 0),)),
        Conjunction((), (Bound("a", "number", ">", 0),)),
    )


def test_times_are_bounds() -> None:
    assert _clauses("seen >= TIMESTAMP '2026-11-16T10:00:00Z'") == (
        Conjunction((), (Bound("seen", "timestamp", ">=", 0),)),
    )
    assert _clauses("seen = TIMESTAMP '2026-11-16T10:00:00.5Z'") == (
        Conjunction((), (Bound("seen", "timestamp", ">=", 0), Bound("seen", "timestamp", "<=", 0))),
    )


def test_the_number_of_clauses_is_bounded() -> None:
    fits = " AND ".join(f"(a{n} > 1 OR b{n} > 1)" for n in range(6))
    assert len(_clauses(fits) or ()) == 2**6 == MAX_CLAUSES
    assert _clauses(f"{fits} AND (x > 1 OR y > 1)") is None
    assert _clauses(f"a IN ({', '.join(map(str, range(MAX_CLAUSES + 1)))})") is None


@pytest.mark.parametrize(
    "text",
    [
        "a LIKE 'x%'",
        "a > 5 + 3",
        "a + 5 > 3",
        "5 = 5 AND a > 3",
        "a < 'x'",
        "a <> 'x'",
        "a NOT IN (1, 2)",
        "a = 5 OR b LIKE 'x%'",
        "a = 5 AND b IS NULL",
        "a > TIMESTAMP '2026-01-01T00:00:00+01:00'",
        "a > TIMESTAMP '2026-13-01T00:00:00Z'",
        "a > TIMESTAMP '1500-01-01T00:00:00Z'",
        "XPATH '/r/n > 5'",
        "a IS NULL",
        "a > ",
        "a = 'x",
    ],
)
def test_other_shapes_need_the_parser(text: str) -> None:
    assert group_texts([text]) == ([], [0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a = 5",
        "a = -5",
        "5 < a",
        "NOT a < 5",
        "is_set",
        "NOT is_set",
        "is_set = FALSE",
        "a = - - 5 AND b = 'it''s'",
        "a=5and b=6",
        '"an odd `name` 5" > 5',
        "a BETWEEN 1 AND 2.5 AND (b = 'x' AND c >= 0)",
        "a = -0.0",
        "a = 5 OR b = 6",
        "a = 6 OR a = 5",
        "NOT (a > 5 AND b > 6)",
        "a IN ('x', 'y''z')",
        "a > TIMESTAMP '2026-01-01T00:00:00Z' AND b < timestamp '2026-01-01T00:00:00.25Z'",
    ],
)
def test_what_is_plain_is_read_as_the_parser_reads_it(text: str) -> None:
    assert _plain(text) == {0: str(parse(text))}


def test_places_are_kept() -> None:
    families, others = group_texts(["a > 1", "a LIKE '1%'", "a > 3", "b = 'x'"])
    assert [family.places for family in families] == [[0, 2], [3]]
    assert others == [1]


def test_what_is_to_be_skipped_is_left_to_the_parser() -> None:
    families, others = group_texts(["a > 1", "a > 2"], skip=[True, False])
    assert [family.places for family in families] == [[1]]
    assert others == [0]


@given(st.lists(trees(), max_size=5))
def test_patterns_and_parser_agree(conditions: list[Expr]) -> None:
    texts = [str(Predicate(condition)) for condition in conditions]
    for place, text in _plain(*texts).items():
        read, expected = parse(text), parse(texts[place])
        assert covers(read, expected) is not False
        assert covers(expected, read) is not False
