from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.datasets.test_availability import seen
from tests.pipeline.frames import START_MS, entry, event, event_frame, ledger_frame

from accord.core.model.estimator import HORIZON_MS, SILENT
from accord.core.monitoring.measurement_registry import MeasurementRegistry
from accord.core.monitoring.sightings import NODES
from accord.core.queries.messages import Measure, MeasuredValues, WatchedPredicate
from accord.pipeline.measurement_publisher import DAY_MS, MeasurementPublisher, Rates

NOW_MS = START_MS + 2_000  # what is younger than two seconds may not be archived


def values(measured: MeasuredValues | None) -> dict[tuple[str, str, str], float]:
    assert measured is not None
    registry = MeasurementRegistry()
    for each in measured.values:
        registry.put(each.kind, each.subject, each.name, each.value, at_ms=each.at_ms)
    return {
        (each.kind, each.subject, each.name): each.value
        for kind in ("channel", "predicate", "publisher", "link", "node")
        for each in registry.select(kind, now_ms=measured.values[0].at_ms)
    }


def evenly(rate_hz: int, since_s: int, until_s: int, **fields: Any) -> Iterable[dict[str, Any]]:
    """Events between so many seconds before START_MS."""
    for number in range(rate_hz * (since_s - until_s)):
        yield event(-1_000 * since_s + number * 1_000 // rate_hz + 1, **fields)


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = Rates()
    for second in range(1, 61):
        rates.add({"a": (20, 2_000), "b": (1, 0)}, at_ms=second * 1_000)
    found = rates.take(now_ms=60_000)
    assert found["a"].hz == 20
    assert found["a"].bytes_per_s == 2_000
    assert 20 < found["a"].bound_hz < 23
    # What has fallen silent is told once, then forgotten.
    assert rates.take(now_ms=63_000 + HORIZON_MS) == {"a": SILENT, "b": SILENT}
    assert rates.take(now_ms=63_000 + HORIZON_MS) == {}


def test_batches_that_take_long_count_when_their_events_came() -> None:
    rates, began_ms, since_ms = Rates(), 100_000, 99_500
    for took_ms in (1_000, 4_000, 1_000, 6_000, 500, 3_000):
        events = 60 * (began_ms - since_ms) // 1_000  # since the batch before began
        rates.add({"a": (events, 0)}, at_ms=began_ms + took_ms, took_ms=took_ms)
        if began_ms > 100_000:
            for later_ms in (0, took_ms // 2):
                rate = rates.take(now_ms=began_ms + took_ms + later_ms)["a"]
                assert rate.hz == pytest.approx(60, rel=0.1)
        since_ms, began_ms = began_ms, began_ms + took_ms
    assert rates.take(now_ms=began_ms + 60_000)["a"].hz < 12


def test_a_batch_after_a_pause_is_not_spread_over_it() -> None:
    rates = Rates()
    rates.add({"a": (1, 0)}, at_ms=100_000)
    for batch in range(8):
        rates.add({"a": (30, 0)}, at_ms=160_000 + 500 * batch)
    assert rates.take(now_ms=163_500)["a"].hz == pytest.approx(60, rel=0.1)


def test_channels_beyond_the_bound_are_left_out() -> None:
    rates = Rates(most=2)
    rates.add({"empty": (0, 0), "a": (1, 1), "b": (1, 1), "c": (1, 1)}, at_ms=1)
    rates.add({"c": (1, 1), "a": (1, 1)}, at_ms=2)
    assert rates.take(now_ms=2).keys() == {"a", "b"}


def test_fresh_values_come_every_few_seconds_and_at_a_step() -> None:
    feedback = MeasurementPublisher(fresh_every_ms=5_000, slow_every_ms=60_000)
    assert MeasurementPublisher().fresh(now_ms=100_000) is None
    assert not feedback.is_due(now_ms=100_000)
    for second in range(100, 121):
        feedback.count({"a": (10, 10), "b": (10, 10)}, at_ms=second * 1_000)
        feedback.fresh(now_ms=second * 1_000)
    assert feedback.is_due(now_ms=120_000)  # as both began
    feedback.count({"a": (10, 10), "b": (10, 10)}, at_ms=121_000)
    assert feedback.fresh(now_ms=121_000) is None
    for second in (122, 123):
        feedback.count({"a": (100, 100), "b": (10, 10)}, at_ms=second * 1_000)
        told = feedback.fresh(now_ms=second * 1_000)
        assert told is not None
        assert {each.subject for each in told.values} == {"a"}
    assert values(told)["channel", "a", "rate_hz"] >= 70
    told = feedback.fresh(now_ms=125_000)
    assert told is not None
    assert {each.subject for each in told.values} == {"a", "b"}


def test_slow_values_come_from_the_recent_part_of_the_tables(spark: SparkSession) -> None:
    feedback = MeasurementPublisher(slow_every_ms=60_000)
    feedback.watch(
        [WatchedPredicate("uav/#", "altitude > 300", ""), WatchedPredicate("nobody", "", "")]
    )
    high = {"altitude": {"integer": 400}}
    events = event_frame(
        spark,
        event(-HORIZON_MS - 1, attributes=high),
        *evenly(1, 60, 0, publisher="slow"),
        *evenly(20, 10, 0, attributes=high),
        event(1),  # perhaps not all of its time is archived
    )
    ledger = ledger_frame(
        spark, *(entry(received_ms=-1_000) for _ in range(30)), entry("expired", received_ms=-500)
    )
    assert not feedback.is_due(now_ms=NOW_MS - 60_000)
    assert feedback.is_due(now_ms=NOW_MS)
    measured = feedback.measure(events, ledger, now_ms=NOW_MS)
    found = values(measured)
    source, predicate = '["uav-1","uav/imagery"]', '["uav/#","altitude > 300",""]'
    silent = '["nobody","",""]'
    # Ten seconds old: not divided by five minutes.
    assert found["publisher", source, "rate_hz"] == pytest.approx(20, rel=0.25)
    assert found["publisher", source, "bytes_per_s"] == pytest.approx(2_000, rel=0.25)
    assert found["publisher", '["slow","uav/imagery"]', "rate_hz"] == pytest.approx(1, rel=0.25)
    assert found["predicate", predicate, "rate_hz"] == pytest.approx(20, rel=0.25)
    assert 20 <= found["predicate", predicate, "rate_bound_hz"] < 30
    assert found["predicate", predicate, "selectivity"] == pytest.approx(20 / 21, abs=0.02)
    assert found["predicate", silent, "rate_hz"] == 0
    assert ("predicate", silent, "selectivity") not in found
    assert found["channel", "uav/imagery", "rate_hz"] == pytest.approx(21, rel=0.25)
    assert found["publisher", source, "delivered_hz"] == 0.1
    assert found["publisher", source, "in_time"] == pytest.approx(30 / 31)
    feedback.count({"uav/imagery": (1, 1)}, at_ms=NOW_MS)
    feedback.watch([])
    again = feedback.measure(events, ledger, now_ms=NOW_MS)
    assert {each.kind for each in again.values} == {"publisher"}
    assert not feedback.is_due(now_ms=NOW_MS + 60_000)  # nothing was archived since
    assert feedback.is_due(now_ms=NOW_MS + HORIZON_MS)
    feedback.count({}, at_ms=NOW_MS + 1_000)
    assert not feedback.is_due(now_ms=NOW_MS + 59_999)
    assert feedback.is_due(now_ms=NOW_MS + 60_000)


def test_availability_becomes_what_routing_needs(spark: SparkSession) -> None:
    feedback, nothing = MeasurementPublisher(), event_frame(spark, event(-2 * HORIZON_MS))
    flapping = [
        seen("boise", state, second, second + 5, node="denver", offset=7)
        for second, state in zip(range(-100, -25, 5), ["up", "down"] * 8, strict=False)
    ]
    assert feedback.since_ms(now_ms=NOW_MS)[1] == NOW_MS - DAY_MS
    first = values(feedback.measure(nothing, ledger_frame(spark, *flapping), now_ms=NOW_MS))
    link = '["denver","boise"]'
    assert first["link", link, "failure_probability"] == (35 + 0.6) / (75 + 60)
    assert first["link", link, "availability"] == 40 / 75
    # The ledger is read once, from where it was not read yet.
    assert feedback.since_ms(now_ms=NOW_MS)[1] > NOW_MS - DAY_MS // 2
    ledger = ledger_frame(
        spark,
        *flapping,
        seen("boise", "up", -25, 0, node="denver", offset=8),
        seen("orlando", "down", -25, 0, node="denver", offset=9, channel=NODES),
    )
    measured = feedback.measure(nothing, ledger, now_ms=NOW_MS)
    assert values(measured)["link", link, "availability"] == 65 / 100
    assert values(measured)["node", '["denver","orlando"]', "availability"] == 0
    assert Measure("link", link, "failure_probability", 35.6 / 160, NOW_MS) in measured.values
    # A day later nothing of it counts.
    later = feedback.measure(nothing, ledger, now_ms=NOW_MS + DAY_MS)
    assert later.values == ()
