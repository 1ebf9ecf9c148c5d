from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.core.predicates.predicate import parse, parse_xpath
from accord.pipeline.decode.attributes import Declared, to_row
from accord.pipeline.query.spark_predicate import to_column
from accord.pipeline.spark_tables import spark_events
from accord.pipeline.tables import ATTRIBUTES, METADATA, PATHS, columns_for


def schema(declared: Declared) -> StructType:
    """The columns that predicates see, those of attributes by the attributes' names."""
    whole = spark_events(declared)
    return StructType([whole[name] for name in (*declared, ATTRIBUTES, METADATA, PATHS)])


def frame(
    spark: SparkSession,
    *events: dict[str, Value],
    document: str | None = None,
    declared: Declared | None = None,
) -> DataFrame:
    parsed = None if document is None else Document(document.encode())
    rows = [to_row(event, parsed, declared or {}) for event in events]
    return spark.createDataFrame(rows, schema(declared or {})).coalesce(1)


def truths(events: DataFrame, *selectors: str, declared: Declared | None = None) -> list[Any]:
    """What each selector says of the only event."""
    present = columns_for(declared or {}, ())
    columns = [to_column(parse(selector), present) for selector in selectors]
    return list(events.select(*columns).collect()[0])


def test_an_absent_attribute_is_unknown(spark: SparkSession) -> None:
    event = frame(spark, {"altitude": 420})
    assert truths(
        event,
        "altitude > 300",
        "speed > 300",
        "NOT speed > 300",
        "speed > 300 OR altitude > 300",
        "speed IS NULL",
        "(speed > 300) IS NULL",
    ) == [True, None, None, True, True, True]


def test_unlike_kinds_do_not_compare(spark: SparkSession) -> None:
    event = frame(spark, {"a": "5", "b": 5, "c": True})
    assert truths(event, "a = 5", "b = 5.0", "c = TRUE", "a = b", "a <> 5", "b IN (5, '6')") == [
        None,
        True,
        True,
        None,
        None,
        True,
    ]
    assert truths(event, "b IN (6, '5')", "b NOT IN (6, '5')", "b NOT IN (6, 7)") == [
        None,
        None,
        True,
    ]


@pytest.mark.parametrize("declared", [{}, {"n": "integer", "f": "float"}])
def test_integers_and_floats_compare_exactly(spark: SparkSession, declared: Declared) -> None:
    event = frame(spark, {"n": 2**53 + 1, "f": 2.0**53}, declared=declared)
    assert truths(
        event,
        "n > f",
        "n = f",
        "f < n",
        "f < 9007199254740993",
        "f = 9007199254740993",
        "n IN (9007199254740992, 9007199254740994)",
        declared=declared,
    ) == [True, False, True, True, False, False]
    largest = frame(spark, {"n": 2**63 - 1, "f": 2.0**63}, declared=declared)
    assert truths(largest, "n < f", "n = f", "n < 9223372036854775808.0", declared=declared) == [
        True,
        False,
        True,
    ]


def test_arithmetic_without_a_finite_result_is_unknown(spark: SparkSession) -> None:
    event = frame(spark, {"a": 1e308, "zero": 0, "text": "x"})
    assert truths(
        event,
        "a / zero > 1",
        "a * 10 > a",
        "1 / (a * 10) = 0",
        "(a * 10 - a * 10) IS NULL",
        "text + 1 > 0",
        "-a < 0",
        "a + zero = a",
    ) == [None, None, None, True, None, True, True]


def test_like_sees_characters_and_lines(spark: SparkSession) -> None:
    event = frame(spark, {"a": "drop 💧\nof 100%"})
    assert truths(
        event,
        "a LIKE 'drop _\n%'",
        "a LIKE 'drop __of%'",
        "a LIKE '%100\\%' ESCAPE '\\'",
        "a LIKE '%o%o%o%'",
        "a NOT LIKE 'drop%'",
        "a LIKE 'DROP%'",
    ) == [True, True, True, False, False, False]


def test_a_hostile_pattern_takes_no_longer(spark: SparkSession) -> None:
    event = frame(spark, {"a": "a" * 50_000})
    assert truths(event, f"a LIKE '{'%a' * 30}%b%'") == [False]


def test_strings_are_ordered_by_code_point(spark: SparkSession) -> None:
    assert truths(frame(spark, {"a": "\uffff"}), "a < '💧'", "a > 'z'") == [True, True]


def test_timestamps_compare_by_instant(spark: SparkSession) -> None:
    declared = {"seen": "timestamp"}
    event = frame(spark, {"seen": datetime(2026, 3, 29, 1, 30, 0, 1, UTC)}, declared=declared)
    assert truths(
        event,
        "seen > TIMESTAMP '2026-03-29T01:30:00Z'",
        "seen = TIMESTAMP '2026-03-29T03:30:00.000001+02:00'",
        "seen < TIMESTAMP '1200-02-29T00:00:00Z'",
        declared=declared,
    ) == [True, True, False]


def test_xpath_is_true_if_any_node_satisfies_it(spark: SparkSession) -> None:
    event = frame(spark, {}, document="<r><n>5</n><n> 7.5 </n><n>high</n></r>")
    conditions = ["/r/n > 7", "/r/n != 5", "not(/r/n = 6)", "/r/m", "/r/n < 5", "count(/r/n) = 3"]
    columns = [to_column(parse_xpath(condition)) for condition in conditions]
    assert list(event.select(*columns).collect()[0]) == [True, True, True, False, False, True]
    without = frame(spark, {})
    assert list(without.select(*columns).collect()[0]) == [None] * 6


def test_metadata_may_name_its_encoding(spark: SparkSession) -> None:
    source = "<?xml version='1.0' encoding='iso-8859-1'?><r><n>é</n></r>".encode("iso-8859-1")
    row = to_row({}, Document(source), {})
    event = spark.createDataFrame([row], schema({}))
    column = to_column(parse_xpath("string-length(/r/n) = 1 and starts-with(/r/n, 'é')"))
    assert event.select(column).collect()[0][0] is True


def test_a_thousand_alternatives(spark: SparkSession) -> None:
    declared = {"a": "integer"}
    event = frame(spark, {"a": 1_000}, declared=declared)
    alternatives = " OR ".join(f"a < {n}" for n in range(1_000))
    assert truths(event, f"{alternatives} OR a = 1000", declared=declared) == [True]


def test_conditions_on_declared_columns_are_pushed_down(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = str(tmp_path_factory.mktemp("archive"))
    declared = {"altitude": "integer", "speed": "float", "platform": "string"}
    event: dict[str, Value] = {"altitude": 420, "platform": "UAV", "speed": 12.5}
    frame(spark, event, declared=declared).write.parquet(path, mode="overwrite")
    for selector, pushed in (
        ("altitude > 300.5", "GreaterThan(altitude,300)"),
        ("platform LIKE 'U%'", "StringStartsWith(platform,U)"),
        ("speed < 9007199254740993", "LessThan(speed,9.007199254740994E15)"),
    ):
        condition = to_column(parse(selector), columns_for(declared, ()), declared)
        selected = spark.read.parquet(path).where(condition)
        assert pushed in selected._jdf.queryExecution().toString()
        assert selected.count() == 1
