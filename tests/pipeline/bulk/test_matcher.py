"""Batches give the answers that the live index gives event by event."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.bulk.batches import DECLARED, Sample, found_in_bulk, found_live
from tests.strategies import MIXED, TYPED, attribute_maps, documents, trees

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate, parse
from accord.pipeline.bulk import clause_table_builder, clause_tables, matcher, predicate_compiler
from accord.pipeline.bulk.matcher import Matcher
from accord.pipeline.bulk.predicate_compiler import Registered, compile_set

_CHANNELS: Final = ("uav/1/imagery", "uav/2/imagery", "uav", "$accord/x", "bus")
_FILTERS: Final = ("#", "uav/#", "uav/+/imagery", "uav/1/imagery", "$accord/#")
_NUMBERS: Final = ("0", "1", "2", "3", "0.5", "2.5", "-1", "-0.0", "9007199254740991")


def _tests() -> st.SearchStrategy[str]:
    """Conditions of the plain kind, on attributes that have such values, or others."""
    names = st.sampled_from([*(name for name in TYPED if name != "seen"), *MIXED[:2]])
    numbers = st.sampled_from(_NUMBERS)
    texts = st.sampled_from(["a", "ab", "5", "💧", "it''s"])
    times = st.sampled_from(["2026-03-29T01:30:00Z", "1969-12-31T23:59:59.999999Z"])
    return st.one_of(
        st.tuples(names, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers).map(" ".join),
        st.tuples(names, numbers, numbers).map("{0[0]} BETWEEN {0[1]} AND {0[2]}".format),
        st.tuples(names, texts).map("{0[0]} = '{0[1]}'".format),
        st.sampled_from(["is_set", "NOT is_set", "x = TRUE"]),
        st.tuples(names, numbers, numbers).map("{0[0]} NOT BETWEEN {0[1]} AND {0[2]}".format),
        st.tuples(names, texts, texts).map("{0[0]} IN ('{0[1]}', '{0[2]}')".format),
        st.tuples(
            st.sampled_from(["seen", *MIXED[:2]]), st.sampled_from(["=", "<>", "<", ">="]), times
        ).map("{0[0]} {0[1]} TIMESTAMP '{0[2]}'".format),
    )


def _wheres() -> st.SearchStrategy[str]:
    plain = st.lists(_tests(), max_size=4).map(" AND ".join)
    both = st.lists(_tests(), min_size=1, max_size=3).map(" OR ".join).map("({})".format)
    mixed = st.lists(both, min_size=1, max_size=3).map(" AND ".join)
    return plain | mixed | trees().map(lambda tree: str(Predicate(tree)))


def _samples() -> st.SearchStrategy[list[Sample]]:
    one = st.tuples(st.sampled_from(_CHANNELS), attribute_maps(), st.none() | documents())
    return st.lists(one, min_size=1, max_size=8)


@pytest.fixture(params=["summaries", "words"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups read by their summaries or directly, all limits small, tables wherever possible."""
    is_summarised = request.param == "summaries"
    monkeypatch.setattr(clause_tables, "_SUMMARISED", 1 if is_summarised else 1 << 62)
    monkeypatch.setattr(clause_tables, "_MAX_WORDS", 2)
    monkeypatch.setattr(clause_tables, "_MAX_CODE", 4)
    monkeypatch.setattr(clause_table_builder, "_BITMAP_BITS", 1)
    monkeypatch.setattr(clause_table_builder, "_MIN_CELLS", 3)
    monkeypatch.setattr(matcher, "_MAX_ROWS", 5)
    monkeypatch.setattr(matcher, "_MAX_PAIRS", 6)
    monkeypatch.setattr(predicate_compiler, "_MIN_CLAUSES", 1)


@pytest.mark.usefixtures("way")
def test_bulk_and_live_agree() -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(_wheres(), st.sampled_from(_FILTERS)), max_size=12), _samples())
    def agree(conditions: list[tuple[str, str]], samples: list[Sample]) -> None:
        registered = [
            Registered(key=f"k{n}", where=where, channel=channel, importance=n % 3)
            for n, (where, channel) in enumerate(conditions)
        ]
        expected = found_live(registered, samples)
        predicates = compile_set(registered)
        assert found_in_bulk(predicates, samples, {}) == expected
        assert found_in_bulk(predicates, samples, DECLARED) == expected

    agree()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", range(3))
def test_large_groups_agree_with_evaluation_one_by_one(seed: int) -> None:
    """Several hundred ranges and disjunctions in a group, on events that lack some values."""
    random = Random(seed)  # noqa: S311
    registered = [Registered(key=f"k{n}", where=_wide(random)) for n in range(500)]
    samples: list[Sample] = [("bus", _some_values(random), None) for _ in range(40)]
    predicates = compile_set(registered)
    assert not predicates.indexed
    parsed = {each.key: parse(each.where) for each in registered}
    assert found_in_bulk(predicates, samples, {}) == [
        {key for key, predicate in parsed.items() if predicate.evaluate(values)}
        for _, values, _ in samples
    ]


def _some_values(random: Random) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name in ("count", "level", "x"):
        if random.random() < 0.9:
            kinds: list[Value] = [random.randint(0, 20), random.random() * 20, "text"]
            values[name] = random.choice(kinds)
    return values


def _wide(random: Random) -> str:
    tests = [
        f"{name} BETWEEN {low} AND {low + random.choice([0, 1, 5])}"
        for name in random.sample(("count", "level", "x"), random.randint(1, 3))
        for low in [random.randint(-1, 20)]
    ]
    return random.choice([" AND ", " OR "]).join(tests)


@pytest.mark.usefixtures("way")
def test_integers_that_no_float_holds_are_compared_exactly() -> None:
    registered = [
        Registered(key="below", where="count < 9007199254740993 AND count > 3"),
        Registered(key="equal", where="count = 9007199254740993"),
        Registered(key="positive", where="count > 3"),
        Registered(key="both", where="count > 3 AND limit <= 4"),
    ]
    large: list[dict[str, Value]] = [
        {"count": 2**53, "limit": 4},
        {"count": 2**53 + 1, "limit": 4},
        {"count": 5, "limit": -(2**53) - 1},
        {"count": 5, "limit": 5},
    ]
    samples: list[Sample] = [("bus", values, None) for values in large]
    expected = [
        {"below", "positive", "both"},
        {"equal", "positive", "both"},
        {"below", "positive", "both"},
        {"below", "positive"},
    ]
    assert found_live(registered, samples) == expected
    for declared in ({}, DECLARED):
        assert found_in_bulk(compile_set(registered), samples, declared) == expected


def test_xpath_predicates_look_into_metadata() -> None:
    samples: list[Sample] = [
        ("bus", {"count": 1}, Document(b"<r><n>5</n><n>7</n></r>")),
        ("bus", {"count": 1}, Document(b"<r><n>5</n></r>")),
        ("bus", {"count": 1}, None),
    ]
    registered = [
        Registered(key="path", xpath="/r/n > 6"),
        Registered(key="engine", xpath="count(//n) = 1"),
        Registered(key="both", xpath="/r/n > 4", where="count = 1"),
        Registered(key="neither", xpath="/r/n > 4", where="count = 2"),
        Registered(key="in words", where="XPATH '/r/n = 7' AND count = 1"),
    ]
    found = found_in_bulk(compile_set(registered), samples, DECLARED)
    assert found == [{"path", "both", "in words"}, {"engine", "both"}, set()]


def test_metadata_that_is_no_xml_is_none() -> None:
    batch = pa.record_batch({"channel": ["bus"], "metadata": pa.array([b"<r"], pa.binary())})
    predicates = compile_set([Registered(key="path", xpath="/r")])
    assert [len(rows) for _, (rows, _) in Matcher(predicates).find(batch, ())] == [0]


def test_columns_of_narrower_types_are_numbers_too() -> None:
    batch = pa.record_batch(
        {
            "channel": ["bus", "bus", None],
            "short": pa.array([5, None, 5], pa.int16()),
            "real": pa.array([0.5, 0.5, 0.5], pa.float32()),
            "endless": pa.array([math.inf, math.nan, math.inf]),
        }
    )
    predicates = compile_set(
        [
            Registered(key="plain", where="short > 4 AND real = 0.5"),
            Registered(key="other", where="short > 4 AND real <> 0.25 AND short IS NOT NULL"),
            Registered(key="endless", where="endless > 0"),
            Registered(key="not endless", where="endless > 0 OR endless <= 0"),
        ]
    )
    keys = predicates.keys.to_pylist()
    found = [
        (row, keys[position])
        for _, (rows, positions) in Matcher(predicates).find(batch, ["short", "real", "endless"])
        for row, position in zip(rows.tolist(), positions.tolist(), strict=True)
    ]
    assert sorted(found) == [(0, "other"), (0, "plain")]


@pytest.mark.parametrize("minimum", [1, 1 << 30])
def test_decimals_are_numbers_and_dates_are_times(
    minimum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tables, and in the index."""
    monkeypatch.setattr(predicate_compiler, "_MIN_CLAUSES", minimum)
    batch = pa.record_batch(
        {
            "channel": ["bus"] * 4,
            "price": pa.array(
                [*map(Decimal, ("172873.58", "5.00", "-7.25")), None], pa.decimal128(9, 2)
            ),
            "large": pa.array(
                [*map(Decimal, (2**53 + 1, 2**63 - 1, 10**30)), None], pa.decimal128(38, 0)
            ),
            "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), date(1969, 12, 31), None]),
            "local": pa.array([datetime(2026, 1, 1, 12), None, None, None], pa.timestamp("us")),
        }
    )
    wheres = {
        "price = 172873.58": {0},
        "price = 5": {1},
        "price < 0": {2},
        "price <> 5": {0, 2},
        "price > 172873.5799999 AND price < 172873.5800001": {0},
        "large = 9007199254740993": {0},
        "large > 9007199254740992 AND large <= 9223372036854775807": {0, 1},
        "large > 5": {0, 1, 2},
        "large = 1e30": {2},
        "day = TIMESTAMP '2026-01-01T00:00:00Z'": {0},
        "day > TIMESTAMP '2026-01-01T00:00:00Z'": {1},
        "day < TIMESTAMP '2026-01-01T23:59:59Z'": {0, 2},
        "local > TIMESTAMP '2026-01-01T11:59:59Z' AND local < TIMESTAMP '2026-01-01T12:00:01Z'": {
            0
        },
        "price IS NULL": {3},
    }
    predicates = compile_set(Registered(key=where, where=where) for where in wheres)
    keys = predicates.keys.to_pylist()
    found: dict[str, set[int]] = {where: set() for where in wheres}
    for _, (rows, positions) in Matcher(predicates).find(batch, ["price", "large", "day", "local"]):
        for row, position in zip(rows.tolist(), positions.tolist(), strict=True):
            found[keys[position]].add(row)
    assert found == wheres


def test_values_that_a_declared_column_cannot_hold_count_too() -> None:
    samples: list[Sample] = [("bus", {"count": 7.9}, None), ("bus", {"count": " 7"}, None)]
    registered = [
        Registered(key="number", where="count > 7 AND count < 8"),
        Registered(key="text", where="count = ' 7'"),
        Registered(key="index", where="count LIKE '%7' OR count > 7.5"),
    ]
    expected = [{"number", "index"}, {"text", "index"}]
    assert found_live(registered, samples) == expected
    assert found_in_bulk(compile_set(registered), samples, DECLARED) == expected
