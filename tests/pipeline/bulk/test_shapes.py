from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import trees

from accord.core.predicates.predicate import Predicate, parse
from accord.core.predicates.tree import Expr
from accord.pipeline.bulk.shapes import Bound, Point, plan_of, sort_texts, split_text, trees_of


def _plain(*texts: str) -> dict[int, str]:
    """What was read by its shape, as canonical text, by place."""
    families, _ = sort_texts(texts)
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
    assert sort_texts([f"height > {number}"]) == ([], [0])


def test_plan_says_what_is_asked_for() -> None:
    split = split_text("topic = 'a' AND is_set AND height BETWEEN -5 AND 10")
    assert split is not None
    plan = plan_of(split[0])
    assert plan is not None
    assert plan.points == (Point("is_set", "boolean"), Point("topic", "string", 0))
    assert plan.bounds == (Bound("height", "<=", 2, 1), Bound("height", ">=", 1, -1))


@pytest.mark.parametrize(
    "text",
    [
        "a = 5 OR b = 6",
        "a <> 5",
        "NOT (a > 5 AND b > 6)",
        "a IN ('x', 'y')",
        "a LIKE 'x%'",
        "a > 5 + 3",
        "a + 5 > 3",
        "5 = 5 AND a > 3",
        "a = 'x' AND a = 'y'",
        "a = 5 AND a < 6",
        "a < 'x'",
        "a > TIMESTAMP '2026-01-01T00:00:00Z'",
        "XPATH '/r/n > 5'",
        "a IS NULL",
        "a > ",
        "a = 'x",
    ],
)
def test_other_shapes_need_the_parser(text: str) -> None:
    assert sort_texts([text]) == ([], [0])


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
    ],
)
def test_what_is_plain_is_read_as_the_parser_reads_it(text: str) -> None:
    assert _plain(text) == {0: str(parse(text))}


def test_places_are_kept() -> None:
    families, others = sort_texts(["a > 1", "a > 1 OR b > 2", "a > 3", "b = 'x'"])
    assert [family.places for family in families] == [[0, 2], [3]]
    assert others == [1]


def test_what_is_to_be_skipped_is_left_to_the_parser() -> None:
    families, others = sort_texts(["a > 1", "a > 2"], skip=[True, False])
    assert [family.places for family in families] == [[1]]
    assert others == [0]


@given(st.lists(trees(), max_size=5))
def test_shapes_and_parser_agree(conditions: list[Expr]) -> None:
    texts = [str(Predicate(condition)) for condition in conditions]
    for place, text in _plain(*texts).items():
        assert text == str(parse(texts[place]))
