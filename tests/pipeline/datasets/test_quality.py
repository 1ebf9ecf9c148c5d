from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.frames import at, entry, ledger_frame

from accord.pipeline.datasets.losses import slow_subscriptions
from accord.pipeline.datasets.quality import quality, quality_over_time


def test_each_entry_counts_for_all_its_events(spark: SparkSession) -> None:
    ledger = ledger_frame(
        spark,
        entry(waited_ms=10, count=18, bytes=1_800),
        entry("late", queued_ms=20, waited_ms=70),
        entry("shaped", waited_ms=40, bytes=50),
        entry("replaced", waited_ms=9_000),
        entry("expired", waited_ms=5_000, count=2),
        entry("shed", count=3),
        entry("refused"),
        entry("refused", destination="", detail="bad attributes"),
    )
    (row,) = quality(ledger, "channel", seconds=10).collect()
    assert row["events"] == 28
    outcomes = ("delivered", "late", "shaped", "replaced", "expired", "shed", "refused")
    assert [row[outcome] for outcome in outcomes] == [18, 1, 1, 1, 2, 3, 2]
    assert (row["bytes"], row["rate_hz"], row["bytes_per_s"]) == (1_950, 2.0, 195.0)
    # Of 18 × 10, 40 and 90: the middle is 10, and p99 lies between the 19th and the 20th.
    assert (row["latency_p50_ms"], row["queueing_p50_ms"]) == (10, 10)
    assert round(row["latency_p99_ms"], 1) == 80.5
    assert round(row["queueing_p99_ms"], 1) == 64.3
    # Neither the replaced one nor the one without a destination was to arrive.
    assert row["in_time"] == 19 / 26


def test_nothing_arrived_nothing_to_say(spark: SparkSession) -> None:
    ledger = ledger_frame(spark, entry("replaced"), entry("shed", channel="b"))
    rows = {row["channel"]: row for row in quality(ledger, "channel", seconds=1).collect()}
    replaced, shed = rows["uav/imagery"], rows["b"]
    assert (replaced["latency_p50_ms"], replaced["in_time"]) == (None, None)
    assert (shed["queueing_p95_ms"], shed["in_time"], shed["rate_hz"]) == (None, 0.0, 0.0)


def test_quality_of_each_hour_begins_with_the_hour_of_utc(spark: SparkSession) -> None:
    next_ms = 1_600_000  # the start is 13:33:20
    ledger = ledger_frame(
        spark,
        entry(waited_ms=next_ms - 1),
        entry(received_ms=next_ms, count=36),
        entry(received_ms=next_ms, channel=""),
    )
    rows = quality_over_time(ledger, "channel", every_s=3_600).orderBy("at", "channel").collect()
    starts = [at(next_ms - 3_600_000), at(next_ms), at(next_ms)]
    assert [row["at"].timestamp() for row in rows] == [start.timestamp() for start in starts]
    assert [(row["channel"], row["events"]) for row in rows] == [
        ("uav/imagery", 1),
        ("", 1),
        ("uav/imagery", 36),
    ]
    assert rows[2]["rate_hz"] == 0.01


def test_delays_are_exact_up_to_98_ms_and_good_to_half_a_percent(spark: SparkSession) -> None:
    delays = [*range(99), 500, 12_345, 10**10]
    entries = [entry(waited_ms=delay, channel=f"{delay:011}") for delay in delays]
    # A clock that was set back in between.
    frame = ledger_frame(spark, *entries, entry(queued_ms=500, waited_ms=-700, channel="z"))
    rows = quality(frame, "channel", seconds=1).orderBy("channel").collect()
    *found, set_back = (row["latency_p50_ms"] for row in rows)
    assert found[:99] == [*range(99)]
    assert found[99:] == pytest.approx([500, 12_345, 10**10], rel=0.006)
    assert set_back == 0


def test_subscriptions_are_ranked_by_their_delays(spark: SparkSession) -> None:
    ledger = ledger_frame(
        spark,
        entry(destination="a", waited_ms=50, count=5),
        entry(destination="b", queued_ms=600, waited_ms=100, count=5),
        entry(destination="c", waited_ms=700, count=5),
        entry(destination="c", channel="other", waited_ms=5, count=5),
        entry(destination="d", waited_ms=9_000, count=4),
        entry("expired", destination="e", waited_ms=9_000, count=9),
    )
    rows = slow_subscriptions(ledger, seconds=1, at_least=5).orderBy("rank").collect()
    assert [(row["rank"], row["destination"], row["channel"]) for row in rows] == [
        (1, "c", "uav/imagery"),
        (2, "b", "uav/imagery"),
        (3, "a", "uav/imagery"),
        (4, "c", "other"),
    ]
