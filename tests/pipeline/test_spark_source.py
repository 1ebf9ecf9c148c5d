from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.brokers import start_accord
from tests.pipeline.journals import START_MS, ledger_record, records, retire, write_journal

import accord
import accord.pipeline
from accord.pipeline.source_options import ReadOptions
from accord.pipeline.spark_errors import summary
from accord.pipeline.spark_source import JournalPartition, JournalsStreamReader

PATIENCE_S = 90


@pytest.fixture(autouse=True)
def _formats(spark: SparkSession) -> None:
    accord.pipeline.register(spark)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """300 events on two channels, and one record of the ledger."""
    commits = [records(n, n + 50, size=50) for n in range(0, 200, 50)]
    commits += [[ledger_record(0, 3)], records(201, 301, channel="weather")]
    return write_journal(tmp_path / "journal", commits, segment_bytes=10_000)


def read(spark: SparkSession, place: Path, **options: str) -> DataFrame:
    return spark.read.format("accord").options(**options).load(str(place))


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.number for row in frame.select("number").collect())


def test_a_journal_is_a_table_of_events(spark: SparkSession, journal: Path) -> None:
    events = read(spark, journal, node="denver", declared='{"altitude_m": "integer"}')
    row = events.where("number = 7").collect()[0]
    assert (row.node, row.offset, row.channel, row.publisher) == (
        "denver",
        7,
        "uav/imagery",
        "camera",
    )
    assert bytes(row.payload) == b"7:" + b"x" * 50
    assert row.altitude_m == 7
    assert row.attributes["platform"].string == "uav-0"
    micros = events.where("number = 7").select(F.unix_micros("received")).collect()[0][0]
    assert micros == (START_MS + 70) * 1000
    assert numbers(events) == [*range(200), *range(201, 301)]


def test_the_ledger_is_a_table_too(spark: SparkSession, journal: Path) -> None:
    rows = read(spark, journal, table="ledger").orderBy("number").collect()
    assert [(row.offset, row.number, row.outcome) for row in rows] == [
        (200, None, "delivered"),
        (200, 1, "delivered"),
        (200, 2, "delivered"),
    ]


def test_columns_may_be_few(spark: SparkSession, journal: Path) -> None:
    events = read(spark, journal, columns="channel,offset")
    assert events.columns == ["offset", "channel"]
    assert events.count() == 300


def test_conditions_are_those_of_spark(spark: SparkSession, journal: Path) -> None:
    events = read(spark, journal, rowsPerTask="70")
    assert numbers(events.where("offset >= 20 and offset < 25")) == [20, 21, 22, 23, 24]
    assert numbers(events.where("channel = 'weather' and number < 204")) == [201, 202, 203]
    assert numbers(events.where("channel like 'wea%'")) == [*range(201, 301)]
    assert numbers(events.where("number in (3, 250)")) == [3, 250]
    assert numbers(events.where("number = 3 or number = 4")) == [3, 4]
    late = F.timestamp_millis(F.lit(START_MS + 10 * 298))
    assert numbers(events.where(F.col("received") >= late)) == [298, 299, 300]
    assert numbers(events.where("offset = 1000")) == []
    assert numbers(events.where("not channel = 'weather' and offset > 197")) == [198, 199]


def test_one_frame_serves_several_queries(spark: SparkSession, journal: Path) -> None:
    events = read(spark, journal, columns="offset,number")
    assert numbers(events.where("number = 7")) == [7]
    assert events.count() == 300
    left, right = events.where("number < 5"), events.where("number >= 3 and number < 100")
    assert numbers(left.join(right, "offset").select(left.number)) == [3, 4]


def test_conditions_read_less_where_that_is_asked_for(spark: SparkSession, journal: Path) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        few = read(spark, journal, pushFilters="true", columns="offset,number,channel,received")
        late = F.timestamp_millis(F.lit(START_MS + 10 * 298))
        rows = few.where("channel = 'weather'").where(F.col("received") >= late)
        assert numbers(rows) == [298, 299, 300]
        tasks = read(spark, journal, pushFilters="true", rowsPerTask="50", columns="offset")
        assert tasks.where("offset >= 295").rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert read(spark, journal, rowsPerTask="50", columns="offset").rdd.getNumPartitions() >= 6


def test_events_are_selected_by_channel_and_time(spark: SparkSession, journal: Path) -> None:
    assert numbers(read(spark, journal, channel="+", until="2025-11-16T08:00:02.030Z")) == [
        201,
        202,
    ]


def test_a_part_by_offsets(spark: SparkSession, journal: Path) -> None:
    events = read(spark, journal, from_offset="190", before_offset="203")
    assert numbers(events) == [*range(190, 200), 201, 202]


def test_several_journals_are_one_table(spark: SparkSession, tmp_path: Path, journal: Path) -> None:
    other = write_journal(tmp_path / "other", [records(0, 5)])
    places = json.dumps({"denver": str(journal), "boston": str(other)})
    events = spark.read.format("accord").option("journals", places).load()
    counts = {row.node: row["count"] for row in events.groupBy("node").count().collect()}
    assert counts == {"denver": 300, "boston": 5}
    assert events.where("node = 'boston'").count() == 5


def test_what_was_retired_fails_or_is_passed_over(spark: SparkSession, journal: Path) -> None:
    retire(journal, 150)
    kept = numbers(read(spark, journal))
    assert 0 < kept[0] <= 150
    with pytest.raises(PySparkException) as caught:
        read(spark, journal, from_offset="0").count()
    assert "were retired; with the option failOnLoss=false" in summary(caught.value)
    assert numbers(read(spark, journal, from_offset="0", failOnLoss="false")) == kept


def test_a_wrong_option_is_told(spark: SparkSession, journal: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, journal, table="evnts").count()
    assert "option table: expected events or ledger, got 'evnts'" in summary(caught.value)


def run_now(frame: DataFrame, checkpoint: Path, work: Callable[[DataFrame, int], None]) -> None:
    query = (
        frame.writeStream.foreachBatch(work)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()


def test_a_journal_is_a_stream(spark: SparkSession, journal: Path, tmp_path: Path) -> None:
    options = {"maxRowsPerTrigger": "120", "columns": "number"}
    stream = spark.readStream.format("accord").options(**options).load(str(journal))
    batches: list[list[int]] = []

    def take(rows: DataFrame, _: int) -> None:
        batches.append(numbers(rows))

    run_now(stream, tmp_path / "checkpoint", take)
    assert batches == [[*range(120)], [*range(120, 200), *range(201, 240)], [*range(240, 301)]]
    write_journal(journal, [records(301, 303)])
    run_now(stream, tmp_path / "checkpoint", take)
    assert batches[3:] == [[301, 302]]


def reader(**places: Path) -> JournalsStreamReader:
    options = ReadOptions(journals={name: str(place) for name, place in places.items()})
    return JournalsStreamReader(options, options.schema())


def test_journals_share_a_batch(tmp_path: Path) -> None:
    long = write_journal(tmp_path / "long", [records(0, 100)])
    short = write_journal(tmp_path / "short", [records(0, 10)])
    both = reader(long=long, short=short)
    start = both.initialOffset()
    assert start == {"long": 0, "short": 0}
    assert both.latestOffset(start, ReadMaxRows(40)) == {"long": 30, "short": 10}
    assert both.latestOffset(start, ReadAllAvailable()) == {"long": 100, "short": 10}
    end = {"long": 30, "short": 10}
    assert both.partitions(start, end) == [
        JournalPartition("long", str(long), 0, 30),
        JournalPartition("short", str(short), 0, 10),
    ]
    assert both.latestOffset({"long": 100, "short": 10}, ReadMaxRows(1)) == {
        "long": 100,
        "short": 10,
    }


def test_journals_may_come_and_go(tmp_path: Path) -> None:
    first = write_journal(tmp_path / "first", [records(0, 10)])
    second = write_journal(tmp_path / "second", [records(0, 20)])
    later = reader(second=second)
    assert later.latestOffset({"first": 5}, ReadAllAvailable()) == {"first": 5, "second": 20}
    pieces = later.partitions({"first": 5}, {"first": 5, "second": 20})
    assert pieces == [JournalPartition("second", str(second), 0, 20)]
    assert reader(first=first).latestOffset({"first": 5}, ReadAllAvailable()) == {"first": 10}


def test_rows_are_published_and_what_was_read_can_be(
    spark: SparkSession, journal: Path, tmp_path: Path
) -> None:
    with start_accord() as broker:
        url = f"mqtt://{broker.host}:{broker.port}"
        with accord.connect_sync(url) as session:
            subscription = session.subscribe("#")
            rows: list[dict[str, Any]] = [
                {"channel": "a/1", "payload": "text", "speed": 1.5, "armed": True},
                {"channel": "a/2", "payload": None, "speed": None, "armed": False},
            ]
            frame = spark.createDataFrame([Row(**row) for row in rows])
            frame.write.format("accord").option("url", url).mode("append").save()
            found = {event.channel: event for event in take(subscription, 2)}
            assert found["a/1"].payload == b"text"
            assert found["a/1"].attributes == {"speed": 1.5, "armed": True}
            assert found["a/2"].payload == b""
            assert found["a/2"].attributes == {"armed": False}

            stream = spark.readStream.format("accord").load(str(journal))
            query = (
                stream.where("channel = 'weather'")
                .writeStream.format("accord")
                .option("url", url)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            try:
                assert query.awaitTermination(PATIENCE_S)
            finally:
                query.stop()
            events = take(subscription, 100)
            assert sorted(int(event.payload[:-1]) for event in events) == [*range(201, 301)]
            assert {event.attributes["altitude_m"] for event in events} == {*range(201, 301)}


def take(subscription: Any, count: int) -> list[Any]:
    events = [subscription.get(timeout_s=30) for _ in range(count)]
    assert None not in events
    return events
