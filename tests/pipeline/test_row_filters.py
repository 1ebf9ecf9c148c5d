from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringEndsWith,
    StringStartsWith,
)
from tests.pipeline.journals import START_MS, kept

from accord.journal.record import MAX_OFFSET
from accord.pipeline.source_options import ReadOptions
from accord.pipeline.spark_source import RowFilters

ALL = ReadOptions(journals={})
START = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START_MS)


def filters(*asked: Filter) -> RowFilters:
    made = RowFilters()
    made.add(asked)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 (as tasks get it)
    assert isinstance(again, RowFilters)
    return again


@pytest.mark.parametrize(
    ("asked", "first", "end"),
    [
        ([EqualTo(("offset",), 5)], 5, 6),
        ([GreaterThan(("offset",), 5)], 6, MAX_OFFSET),
        ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], 5, 9),
        ([LessThanOrEqual(("offset",), 9)], 0, 10),
        ([In(("offset",), (7, 3))], 3, 8),
        ([Not(EqualTo(("offset",), 5))], 0, MAX_OFFSET),
        ([IsNotNull(("offset",))], 0, MAX_OFFSET),
    ],
)
def test_offsets_narrow_what_is_read(asked: list[Filter], first: int, end: int) -> None:
    made = filters(*asked)
    assert (made.first, made.end) == (first, end)
    assert made.test(ALL) is None


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        (EqualTo(("channel",), "a/b"), [2]),
        (In(("channel",), ("a/b", "a/c")), [2, 3]),
        (StringStartsWith(("channel",), "a/"), [2, 3]),
        (EqualTo(("number",), 1), [1]),
        (LessThanOrEqual(("number",), 1), [0, 1]),
        (GreaterThanOrEqual(("received",), START + timedelta(milliseconds=20)), [2, 3]),
        (LessThan(("received",), START + timedelta(microseconds=10_001)), [0, 1]),
        (EqualTo(("publisher",), "nobody"), []),
    ],
)
def test_events_are_tested_as_spark_would(asked: Filter, numbers: list[int]) -> None:
    test = filters(asked).test(ALL)
    assert test is not None
    events = [kept(0), kept(1), kept(2, channel="a/b"), kept(3, channel="a/c")]
    assert [event.number for event in events if test(event)] == numbers


@pytest.mark.parametrize(
    "asked",
    [
        EqualTo(("channel",), None),
        EqualTo(("number",), "1"),
        EqualTo(("received",), datetime(2025, 1, 1)),
        StringEndsWith(("channel",), "b"),
        Not(EqualTo(("channel",), "a/b")),
        EqualTo(("altitude_m",), 5),
        EqualTo(("attributes", "x"), 5),
        EqualTo(("key",), "k"),
    ],
)
def test_what_is_not_understood_is_left_to_spark(asked: Filter) -> None:
    assert filters(asked).test(ALL) is None


def test_all_must_hold() -> None:
    test = filters(EqualTo(("channel",), "a/b"), GreaterThan(("number",), 5)).test(ALL)
    assert test is not None
    assert not test(kept(5, channel="a/b"))
    assert test(kept(6, channel="a/b"))


def test_options_ask_by_channel_and_time() -> None:
    events = [kept(0), kept(1), kept(2, channel="a/b"), kept(3, channel="$x/b"), kept(4)]

    def selected(options: ReadOptions) -> list[int]:
        test = filters().test(options)
        return [event.number for event in events if test is None or test(event)]

    assert selected(ReadOptions(journals={}, channel="uav/#")) == [0, 1, 4]
    assert selected(ReadOptions(journals={}, channel="+/b")) == [2]
    assert selected(ReadOptions(journals={}, since_ms=START_MS + 10)) == [1, 2, 3, 4]
    assert selected(ReadOptions(journals={}, until_ms=START_MS + 10)) == [0]
    both = ReadOptions(journals={}, channel="uav/+", since_ms=START_MS + 1, until_ms=START_MS + 40)
    assert selected(both) == [1]


def test_nodes_are_left_out() -> None:
    assert filters().nodes is None
    assert filters(EqualTo(("node",), "a")).nodes == frozenset("a")
    assert filters(In(("node",), ("a", "b")), EqualTo(("node",), "b")).nodes == frozenset("b")
