"""Batches give the answers that the live index gives event by event."""

from __future__ import annotations

import math
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.bulk.batches import DECLARED, Sample, found_in_bulk, found_live
from tests.strategies import MIXED, TYPED, attribute_maps, documents, trees

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import Predicate
from accord.pipeline.bulk import compiling, sheets
from accord.pipeline.bulk.compiling import Registered, compile_set
from accord.pipeline.bulk.matcher import Matcher

_CHANNELS: Final = ("uav/1/imagery", "uav/2/imagery", "uav", "$accord/x", "bus")
_FILTERS: Final = ("#", "uav/#", "uav/+/imagery", "uav/1/imagery", "$accord/#")
_NUMBERS: Final = ("0", "1", "2", "3", "0.5", "2.5", "-1", "-0.0", "9007199254740991")


def _tests() -> st.SearchStrategy[str]:
    """Conditions of the plain kind, on attributes that have such values, or others."""
    names = st.sampled_from([*(name for name in TYPED if name != "seen"), *MIXED[:2]])
    numbers = st.sampled_from(_NUMBERS)
    texts = st.sampled_from(["a", "ab", "5", "💧", "it''s"])
    return st.one_of(
        st.tuples(names, st.sampled_from(["=", "<", "<=", ">", ">="]), numbers).map(" ".join),
        st.tuples(names, numbers, numbers).map("{0[0]} BETWEEN {0[1]} AND {0[2]}".format),
        st.tuples(names, texts).map("{0[0]} = '{0[1]}'".format),
        st.sampled_from(["is_set", "NOT is_set", "x = TRUE"]),
    )


def _wheres() -> st.SearchStrategy[str]:
    plain = st.lists(_tests(), max_size=4).map(" AND ".join)
    return plain | trees().map(lambda tree: str(Predicate(tree)))


def _samples() -> st.SearchStrategy[list[Sample]]:
    one = st.tuples(st.sampled_from(_CHANNELS), attribute_maps(), st.none() | documents())
    return st.lists(one, min_size=1, max_size=8)


@pytest.fixture(params=["tables", "passes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to compare, and sheets for everything plain."""
    monkeypatch.setattr(sheets, "_TABLE_PAIRS", 0 if request.param == "tables" else 1 << 62)
    monkeypatch.setattr(sheets, "_STRIP_EVENTS", 2)
    monkeypatch.setattr(sheets, "_STRIP_CELLS", 4)
    monkeypatch.setattr(sheets, "_MOST_PAIRS", 6)
    monkeypatch.setattr(compiling, "_WORTHWHILE", 1)


@pytest.mark.usefixtures("way")
def test_bulk_and_live_agree() -> None:
    @settings(max_examples=40, deadline=None)
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
    assert [len(rows) for rows, _ in Matcher(predicates).find(batch, ())] == [0]


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
            Registered(key="other", where="short > 4 AND real <> 0.25"),
            Registered(key="endless", where="endless > 0"),
            Registered(key="not endless", where="endless > 0 OR endless <= 0"),
        ]
    )
    keys = predicates.keys.to_pylist()
    found = [
        (row, keys[position])
        for rows, positions in Matcher(predicates).find(batch, ["short", "real", "endless"])
        for row, position in zip(rows.tolist(), positions.tolist(), strict=True)
    ]
    assert sorted(found) == [(0, "other"), (0, "plain")]
