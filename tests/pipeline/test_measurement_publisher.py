from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.pipeline.frames import START_MS, at, event, event_frame

from accord.core.queries.messages import Measure, MeasuredValues, WatchedPredicate
from accord.pipeline.measurement_publisher import MeasurementPublisher, Rates, measure_availability


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = Rates(window_ms=10_000)
    rates.add({"a": (20, 2_000), "b": (10, 0)}, at_ms=1_000)
    rates.add({"a": (30, 1_000)}, at_ms=6_000)
    assert rates.take(now_ms=7_000) == [
        Measure("channel", "a", "rate_hz", 5.0, 7_000),
        Measure("channel", "a", "bytes_per_s", 300.0, 7_000),
        Measure("channel", "b", "rate_hz", 1.0, 7_000),
        Measure("channel", "b", "bytes_per_s", 0.0, 7_000),
    ]
    assert rates.take(now_ms=10_999)[0].value == 5.0
    assert [each.value for each in rates.take(now_ms=11_000)] == [3.0, 100.0, 0.0, 0.0]
    # What has fallen silent is told once, then forgotten.
    assert [each.subject for each in rates.take(now_ms=11_001)] == ["a", "a"]
    assert [each.value for each in rates.take(now_ms=16_000)] == [0.0, 0.0]
    assert rates.take(now_ms=16_001) == []


def test_channels_beyond_the_bound_are_left_out() -> None:
    rates = Rates(most=2)
    rates.add({"empty": (0, 0), "a": (1, 1), "b": (1, 1), "c": (1, 1)}, at_ms=0)
    rates.add({"c": (1, 1), "a": (1, 1)}, at_ms=1)
    assert {each.subject for each in rates.take(now_ms=1)} == {"a", "b"}


def test_fresh_values_come_every_few_seconds() -> None:
    feedback = MeasurementPublisher(fresh_every_ms=5_000)
    feedback.count({"a": (10, 10)}, at_ms=100_000)
    measured = feedback.fresh(now_ms=100_000)
    assert measured is not None
    assert measured.values[0] == Measure("channel", "a", "rate_hz", 1.0, 100_000)
    assert feedback.fresh(now_ms=104_999) is None
    assert feedback.fresh(now_ms=105_000) is not None
    assert MeasurementPublisher().fresh(now_ms=100_000) is None


def test_slow_values_come_from_the_recent_part_of_the_tables(spark: SparkSession) -> None:
    feedback = MeasurementPublisher(recent_ms=10_000, slow_every_ms=60_000)
    feedback.watch(
        [WatchedPredicate("uav/#", "altitude > 300", ""), WatchedPredicate("nobody", "", "")]
    )
    high = {"altitude": {"integer": 400}}
    events = event_frame(
        spark, event(-10_001, attributes=high), event(-10, attributes=high), event()
    )
    now_ms = START_MS + 1
    assert not feedback.is_due(now_ms=now_ms - 60_000)
    assert feedback.is_due(now_ms=now_ms)
    measured = feedback.measure(events, now_ms=now_ms)
    source, predicate = '["uav-1","uav/imagery"]', '["uav/#","altitude > 300",""]'
    silent = '["nobody","",""]'
    assert measured == MeasuredValues(
        (
            Measure("publisher", source, "rate_hz", 0.2, now_ms),
            Measure("publisher", source, "bytes_per_s", 20.0, now_ms),
            Measure("channel", "uav/imagery", "rate_hz", 0.2, now_ms),
            Measure("channel", "uav/imagery", "bytes_per_s", 20.0, now_ms),
            Measure("predicate", predicate, "selectivity", 0.5, now_ms),
            Measure("predicate", predicate, "rate_hz", 0.1, now_ms),
            Measure("predicate", predicate, "bytes_per_s", 10.0, now_ms),
            Measure("predicate", silent, "rate_hz", 0.0, now_ms),
            Measure("predicate", silent, "bytes_per_s", 0.0, now_ms),
        )
    )
    feedback.count({"uav/imagery": (1, 1)}, at_ms=now_ms)
    feedback.watch([])
    again = feedback.measure(events, now_ms=now_ms)
    assert {each.kind for each in again.values} == {"publisher"}
    assert not feedback.is_due(now_ms=now_ms + 59_999)
    assert feedback.is_due(now_ms=now_ms + 60_000)


def test_availability_becomes_what_routing_needs(spark: SparkSession) -> None:
    seen = {"subject": ["a-b", "a-b"], "at": [at(0), at(1_000)], "is_up": [True, True]}
    measured = measure_availability(spark.createDataFrame(pa.table(seen)), "link", now_ms=7)
    assert measured.values == (
        Measure("link", "a-b", "availability", 1.0, 7),
        Measure("link", "a-b", "failure_probability", 0.25, 7),
    )
