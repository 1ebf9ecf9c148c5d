"""Brokering on Spark gives what the live index gives, also after a change and in a stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.bulk.batches import DECLARED, Sample, batch_of, found_live

from accord.core.model.document import Document
from accord.core.model.values import Value
from accord.pipeline.bulk_brokering import (
    BrokeringError,
    FolderError,
    MatchSink,
    PredicateFolder,
    Registered,
    RegistrationError,
    broker_stream,
    compile_frame,
    compile_set,
    match,
    to_events,
)

_EVENTS = 3_000
_USERS = "channel NOT LIKE '$%'"  # what '#' selects


def _registered(random: Random, count: int) -> list[Registered]:
    """Mostly plain, some not, on several channels."""
    made = []
    for number in range(count):
        low, label = random.randint(0, 90), random.choice("abcdefgh")
        where = f"label = '{label}' AND level BETWEEN {low} AND {low + 10}"
        if number % 5 == 1:
            where = f"level > {low} AND ratio < {low / 100}"
        elif number % 20 == 2:
            where = f"label LIKE '{label}%' OR level > {low} AND NOT is_set"
        elif number % 20 == 3:
            where = ""
        made.append(
            Registered(
                key=f"predicate-{number}",
                channel=random.choice(["#", "uav/#", "uav/+", "uav/1", "bus"]),
                where=where,
                xpath="/r/n > 5" if number % 50 == 4 else "",
                importance=number % 3,
            )
        )
    return made


def _samples(random: Random) -> list[Sample]:
    documents = [None, Document(b"<r><n>5</n></r>"), Document(b"<r><n>5</n><n>6</n></r>")]
    made: list[Sample] = []
    for _ in range(_EVENTS):
        values: dict[str, Value] = {
            "label": random.choice("abcdefghij"),
            "level": random.choice([random.randint(0, 100), random.random() * 100]),
        }
        if random.random() < 0.5:
            values |= {"ratio": random.random(), "is_set": random.random() < 0.5}
        channel = random.choice(["uav/1", "uav/2", "bus", "$accord/x"])
        made.append((channel, values, random.choice(documents)))
    return made


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return _samples(Random(1))  # noqa: S311


@pytest.fixture(scope="module")
def registered() -> list[Registered]:
    return _registered(Random(2), 400)  # noqa: S311


@pytest.fixture(scope="module")
def events(spark: SparkSession, samples: Sequence[Sample]) -> DataFrame:
    frame = spark.createDataFrame(pa.Table.from_batches([batch_of(samples, DECLARED)]))
    return frame.repartition(2)


def _pairs(matched: DataFrame) -> list[tuple[int, str]]:
    return sorted((row.number, row.predicate) for row in matched.collect())


def _expected(registered: Sequence[Registered], samples: Sequence[Sample]) -> list[tuple[int, str]]:
    found = found_live(registered, samples)
    return sorted((number, key) for number, keys in enumerate(found) for key in keys)


def test_every_match_is_a_row(
    events: DataFrame, registered: list[Registered], samples: list[Sample]
) -> None:
    matched = match(events, compile_set(registered), columns=["number"])
    assert matched.columns == ["number", "predicate"]
    assert _pairs(matched) == _expected(registered, samples)


def test_or_every_event_has_a_list_with_the_most_important_first(
    events: DataFrame, registered: list[Registered], samples: list[Sample]
) -> None:
    matched = match(events, compile_set(registered), explode=False)
    assert matched.columns == [*events.columns, "predicates"]
    importance = {each.key: each.importance for each in registered}
    rows = matched.select("number", "channel", "predicates").collect()
    assert len(rows) == len(samples)
    expected = found_live(registered, samples)
    for row in rows:
        assert set(row.predicates) == expected[row.number]
        assert row.channel == samples[row.number][0]
        ranks = [-importance[key] for key in row.predicates]
        assert ranks == sorted(ranks)


def test_predicates_may_come_from_a_table(
    spark: SparkSession, events: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accord.pipeline.bulk_brokering._WORTH_A_JOB", 2)
    conditions = [("either", "level > 90 OR ratio IS NULL"), ("other", "label LIKE 'a%' OR is_set")]
    frame = spark.createDataFrame(
        [*conditions, ("plain", "level > 90")], "key string, where string"
    )
    predicates = compile_frame(frame)
    assert len(predicates) == 3
    trees = {str(each.tree) for each in predicates.indexed}
    assert "is_set = TRUE OR label LIKE 'a%'" in trees
    high = match(events, predicates).where("predicate = 'plain'")
    assert high.count() == events.where(f"level > 90 AND {_USERS}").count()
    bad = spark.createDataFrame([("bad", "level > "), *conditions], "key string, where string")
    with pytest.raises(RegistrationError, match=r"predicate 'bad'.*ends too early"):
        compile_frame(bad)


def test_a_stream_goes_on_with_newer_predicates(
    spark: SparkSession, events: DataFrame, tmp_path: Path
) -> None:
    source = tmp_path / "events"
    events.where("number < 1000").write.parquet(str(source))
    folder = PredicateFolder(tmp_path / "predicates")
    with pytest.raises(FolderError, match="no predicates in"):
        match(events, folder)
    folder.publish(compile_set([Registered(key="high", where="level > 90")]))
    stream = spark.readStream.schema(events.schema).parquet(str(source))
    query = broker_stream(
        stream,
        folder,
        MatchSink(
            checkpoint=str(tmp_path / "checkpoint"),
            format="memory",
            options={"queryName": "matches"},
        ),
    )
    try:
        query.processAllAvailable()
        found = spark.table("matches")
        assert {*_channels(found)} == {"matched/high"}
        assert found.count() == events.where(f"number < 1000 AND level > 90 AND {_USERS}").count()
        newer = [Registered(key="low/#", where="level < 10"), Registered(key="x", where="FALSE")]
        folder.publish(compile_set(newer))
        events.where("number >= 1000").write.mode("append").parquet(str(source))
        query.processAllAvailable()
        found = spark.table("matches")
        assert {*_channels(found)} == {"matched/high", "matched/low/_"}
        low = found.where("predicate = 'low/#'")
        assert low.count() == events.where(f"number >= 1000 AND level < 10 AND {_USERS}").count()
        assert {row.matched_on for row in low.select("matched_on").distinct().collect()} == {
            "uav/1", "uav/2", "bus",
        }  # fmt: skip
    finally:
        query.stop()


def _channels(frame: DataFrame) -> list[str]:
    return [row.channel for row in frame.select("channel").distinct().collect()]


def test_frames_that_hold_no_events_are_refused(spark: SparkSession) -> None:
    predicates = compile_set([])
    with pytest.raises(BrokeringError, match="expected a column 'channel', got id"):
        match(spark.range(1), predicates)
    odd = spark.range(1).selectExpr("id AS channel")
    with pytest.raises(BrokeringError, match="channel: expected string, got bigint"):
        match(odd, predicates)
    taken = spark.range(1).selectExpr("'a' AS channel", "id AS Predicate")
    with pytest.raises(BrokeringError, match="expected no column 'predicate'"):
        match(taken, predicates)
    lists = spark.range(1).selectExpr("'a' AS channel", "array(id) AS many")
    with pytest.raises(BrokeringError, match="many: expected strings, numbers"):
        match(lists, predicates, declared=["many"])


def test_columns_of_all_types_that_convert_are_attributes(spark: SparkSession) -> None:
    events = spark.range(1).selectExpr(
        "'bus' AS channel",
        "CAST('0.10' AS DECIMAL(10, 2)) AS price",
        "DATE '2026-01-02' AS day_of_sale",
        "TIMESTAMP_NTZ '2026-01-02 03:00:00' AS local",
        "CAST(7 AS TINYINT) AS tiny",
    )
    wheres = [
        "price = 0.1 AND tiny = 7",
        "price > 0.05 AND price < 0.2",
        "day_of_sale = TIMESTAMP '2026-01-02T00:00:00Z'",
        "day_of_sale > TIMESTAMP '2026-01-01T23:59:59Z' OR price = 1",
        "local >= TIMESTAMP '2026-01-02T03:00:00Z'",
        "price LIKE '0%' OR price IN (0.1, 0.2) AND day_of_sale IS NOT NULL",
    ]
    predicates = compile_set(Registered(key=where, where=where) for where in [*wheres, "price > 1"])
    assert {row.predicate for row in match(events, predicates).collect()} == set(wheres)


def test_predicates_on_columns_of_other_types_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = spark.range(1).selectExpr("'bus' AS channel", "array(id) AS many", "id AS one")
    unaffected = compile_set([Registered(key="a", where="one = 0")])
    assert match(events, unaffected).count() == 1
    affected = compile_set([Registered(key="a", where="one = 0 AND many IS NULL")])
    problem = r"many: a predicate refers to this column; expected strings, .* got array<bigint>"
    with pytest.raises(BrokeringError, match=problem):
        match(events, affected)
    folder = PredicateFolder(tmp_path)
    folder.publish(affected)
    with pytest.raises(BrokeringError, match=problem):
        match(events, folder)


def test_columns_of_the_event_table_have_its_types(spark: SparkSession) -> None:
    events = spark.range(1).selectExpr("'bus' AS channel", "map('a', 'b') AS attributes")
    with pytest.raises(BrokeringError, match=r"attributes: expected map<.* got map<string,string>"):
        match(events, compile_set([]))


def test_matches_are_addressed_to_their_predicates(spark: SparkSession) -> None:
    matched = spark.createDataFrame([("uav/1", "a+b")], "channel string, predicate string")
    (row,) = to_events(matched, "found/").collect()
    assert (row.channel, row.matched_on, row.predicate) == ("found/a_b", "uav/1", "a+b")
