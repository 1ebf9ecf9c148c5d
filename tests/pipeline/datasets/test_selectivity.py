from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.pipeline.frames import event, event_batch, event_frame

from accord.core.model.document import Document
from accord.core.queries.messages import WatchedPredicate
from accord.pipeline.datasets.selectivity import CHARACTERS, MatchCounter, most_used, selectivity

WATCHED = (
    WatchedPredicate("uav/#", "altitude > 300", ""),
    WatchedPredicate("#", "", ""),
    WatchedPredicate("#", "altitude >", ""),  # says nothing
    WatchedPredicate("uav/#", "", "/r/n = 2"),
    WatchedPredicate("nobody/there", "altitude > 300", ""),
    WatchedPredicate("#", "platform = 'UAV'", "/r/n = 1"),
)


def test_all_predicates_are_counted_in_one_pass(spark: SparkSession) -> None:
    document = Document(b"<r><n>1</n></r>")
    paths = [(path, list(found)) for path, found in document.paths.items()]
    high = {"altitude": {"integer": 400}}
    events = event_frame(
        spark,
        event(attributes=high, payload_bytes=50),
        event(attributes={"altitude": {"float": 200.5}}),
        event(attributes={"platform": {"string": "UAV"}}, metadata=document.source, paths=paths),
        event(attributes=high, channel="cas/image"),
        event(attributes={}, channel="$SYS/up"),
    )
    rows = {row["index"]: row for row in selectivity(events, WATCHED, seconds=2).collect()}
    found = {index: (row["seen"], row["matched"], row["bytes"]) for index, row in rows.items()}
    assert found == {
        0: (3, 1, 50),
        1: (4, 4, 350),
        3: (3, 0, 0),
        4: (0, 0, 0),
        5: (4, 1, 100),
    }
    first = rows[0]
    assert (first["selectivity"], first["rate_hz"], first["bytes_per_s"]) == (1 / 3, 0.5, 25.0)
    assert rows[4]["selectivity"] is None


def test_a_declared_attribute_is_found_in_its_column(spark: SparkSession) -> None:
    frame = event_frame(spark, event(), event()).withColumn("altitude", F.lit(400).cast("bigint"))
    declared = {"altitude": "integer"}
    (row,) = selectivity(frame, WATCHED[:1], seconds=1, declared=declared).collect()
    assert (row["seen"], row["matched"]) == (2, 2)


def test_without_predicates_there_is_nothing(spark: SparkSession) -> None:
    assert selectivity(event_frame(spark, event()), [], seconds=1).collect() == []


def test_predicates_of_many_clients_come_first() -> None:
    watched = [
        WatchedPredicate("a", "", "", 1),
        WatchedPredicate("b", "", "", 9),
        WatchedPredicate("c", "", "", 1),
    ]
    assert [each.channel for each in most_used(watched, 2)] == ["b", "a"]


def test_long_predicates_leave_room_for_others() -> None:
    watched = [
        WatchedPredicate("a", "x" * CHARACTERS, "", 9),
        WatchedPredicate("b", "y", "", 8),
        WatchedPredicate("c", "", ""),
    ]
    assert [each.channel for each in most_used(watched)] == ["a", "c"]


def test_when_time_is_up_the_rest_is_taken_to_be_alike() -> None:
    document = b"<r><n>1</n></r>"
    batch = event_batch(*[event(metadata=document)] * 128, *[event()] * 1_152)
    batch = batch.append_column("_slot", pa.array([1] * 1_280, pa.int32()))
    counting = MatchCounter.of([WatchedPredicate("uav/#", "", "/r/n = 1")], (), 2)
    (all_seen,) = counting([batch])
    zero = {"index": 0, "slot": 0, "seen": 0, "matched": 0, "bytes": 0}
    one = {"index": 0, "slot": 1, "seen": 1_280, "matched": 128, "bytes": 12_800}
    assert all_seen.to_pylist() == [zero, one]
    (hurried,) = replace(counting, budget_s=0.0)([batch, batch])
    one = {"index": 0, "slot": 1, "seen": 2_560, "matched": 1_280, "bytes": 128_000}
    assert hurried.to_pylist() == [zero, one]
