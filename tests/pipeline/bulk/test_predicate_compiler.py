from __future__ import annotations

import pyarrow as pa
import pytest

from accord.core.model.errors import PredicateError
from accord.core.predicates.tree import TRUE, Expr
from accord.pipeline.bulk import predicate_compiler
from accord.pipeline.bulk.predicate_compiler import (
    Registered,
    RegistrationError,
    Texts,
    compile_set,
    compile_table,
)


def test_clauses_on_the_same_attributes_share_a_table() -> None:
    predicates = compile_set(
        [
            Registered(key="a", where="topic = 'x' AND height > 5"),
            Registered(key="b", where="height < 7 AND topic = 'y'"),
            Registered(key="c", where="topic = 'x' AND height BETWEEN 1 AND 2"),
        ]
    )
    (table,) = predicates.tables
    assert table.equalities == (("topic", "string"),)
    assert table.axes == (("height", "number"),)
    assert len(table.positions) == 3
    assert len(table.starts) == 3  # two groups
    assert predicates.indexed == ()


def test_what_no_event_can_match_is_left_out() -> None:
    predicates = compile_set([Registered(key="a", where="height > 5 AND height < 5")])
    assert [len(table.positions) for table in predicates.tables] == [0]


def test_the_narrowest_range_comes_first() -> None:
    registered = [
        Registered(key=f"{n}", where=f"wide > {n} AND narrow BETWEEN {n} AND {n + 1}")
        for n in range(10)
    ]
    (table,) = compile_set(registered).tables
    assert [name for name, _ in table.axes] == ["narrow", "wide"]


def test_few_clauses_go_to_the_index_where_there_is_one_anyway() -> None:
    registered = [
        Registered(key="a", where="height > 5"),
        Registered(key="b", where="height > 5 OR topic LIKE 'x%'"),
    ]
    predicates = compile_set(registered)
    assert predicates.tables == ()
    assert [each.position for each in predicates.indexed] == [0, 1]
    assert predicates.indexed_names == {"height", "topic"}
    assert not predicates.has_paths


def test_the_number_of_tables_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate_compiler, "MAX_TABLES", 2)
    monkeypatch.setattr(predicate_compiler, "_MIN_CLAUSES", 2)
    names = ["a", "a", "a", "b", "b", "c", "c", "d"]
    registered = [Registered(key=f"{n}", where=f"{name} > 1") for n, name in enumerate(names)]
    predicates = compile_set(registered)
    assert [table.axes for table in predicates.tables] == [
        (("a", "number"),),
        (("b", "number"),),
    ]
    assert [each.position for each in predicates.indexed] == [5, 6, 7]


def test_the_most_important_come_first() -> None:
    registered = [Registered(key=f"{n}", importance=n % 3) for n in range(6)]
    assert compile_set(registered).keys.to_pylist() == ["2", "5", "1", "4", "0", "3"]


def test_a_predicate_has_a_clause_for_each_alternative() -> None:
    predicates = compile_set(
        [
            Registered(key="either", where="topic = 'x' AND height > 5 OR speed < 3"),
            Registered(key="one", where="speed < 4"),
        ]
    )
    assert sorted(len(table.positions) for table in predicates.tables) == [1, 2]
    assert predicates.has_alternatives.tolist() == [True, False]
    assert predicates.names == {"topic", "height", "speed"}
    assert predicates.indexed == ()


def test_versions_tell_sets_apart() -> None:
    first = [Registered(key="a", where="x > 1"), Registered(key="b", where="x > 2")]
    assert compile_set(first).version == compile_set(first).version
    assert compile_set(first).version != compile_set(first[:1]).version
    assert len({compile_set([each]).version for each in first}) == 2


def test_mistakes_say_whose_they_are() -> None:
    good = Registered(key="good", where="x > 1")
    for bad, problem in (
        (Registered(key="bad", where="x > "), "ends too early"),
        (Registered(key="bad", where="x > 1e999"), "beyond the range"),
        (Registered(key="bad", xpath="/r["), "."),
        (Registered(key="bad", channel="a/#/b"), "as the last level only"),
        (Registered(key="good"), "registered more than once"),
    ):
        with pytest.raises(RegistrationError, match=problem) as raised:
            compile_set([good, bad])
        assert raised.value.key == bad.key


def test_tables_need_all_columns_and_values() -> None:
    table = pa.table({"key": ["a"], "channel": ["#"], "where": [""], "xpath": [""]})
    with pytest.raises(ValueError, match="expected a column 'importance'"):
        compile_table(table)
    table = table.append_column("importance", pa.array([None], pa.int64()))
    with pytest.raises(ValueError, match="expected importance to be given"):
        compile_table(table)


def test_texts_may_be_parsed_by_workers() -> None:
    asked: list[Texts] = []

    def parse_all(texts: Texts) -> list[Expr | PredicateError]:
        asked.append(texts)
        return [TRUE for _ in texts]

    table = pa.table(
        {
            "key": ["a", "b"],
            "channel": ["#", "#"],
            "where": ["x IS NULL", "x = 1"],
            "xpath": ["", "/r"],
            "importance": [0, 0],
        }
    )
    assert len(compile_table(table, parse_all).indexed) == 2
    assert asked == [[("x IS NULL", ""), ("x = 1", "/r")]]
