from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.frames import START_MS, entry, event, event_frame, ledger_frame

from accord.core.queries.messages import WatchedPredicate
from accord.core.queries.report import TOP, DeliveredQuality
from accord.pipeline.report import make_report

MINUTE_MS = 60_000


def test_a_report_on_a_minute(spark: SparkSession) -> None:
    ledger = ledger_frame(
        spark,
        entry(waited_ms=10, count=6, bytes=600),
        entry("late", received_ms=2_000, waited_ms=90, destination="patrol-2"),
        entry("expired", received_ms=2_000, waited_ms=400, node="n2", detail="deadline_ms=5000"),
        entry(channel="", received_ms=59_999, publisher="clerk"),
        entry(received_ms=MINUTE_MS),
        entry(channel="cas/image"),
    )
    high = {"altitude": {"integer": 400}}
    events = event_frame(
        spark,
        *(event(ms, attributes=high) for ms in (-1, 0, 10)),
        event(59_000),
        event(channel="cas/image"),
    )
    watched = [
        WatchedPredicate("uav/#", "altitude > 300", "", 2),
        WatchedPredicate("uav/#", "altitude >", "", 1),
        WatchedPredicate("#", "", "", 1),
    ]
    report = make_report(
        events,
        ledger,
        watched,
        since_ms=START_MS,
        until_ms=START_MS + MINUTE_MS,
        node="n1",
        channel="uav/#",
    )
    assert (report.kept, report.kept_bytes, report.bucket_ms) == (3, 300, 1_000)
    totals = report.totals
    assert (totals.events, totals.arrived, totals.undelivered, totals.bytes) == (9, 8, 1, 800)
    assert (totals.rate_hz, totals.latency_p50_ms, totals.in_time) == (8 / 60, 10, 7 / 9)
    assert [(each.name, each.events) for each in report.channels] == [("uav/imagery", 8), ("", 1)]
    assert [(each.name, each.events) for each in report.clients] == [
        ("patrol-1", 8),
        ("patrol-2", 1),
    ]
    assert [(each.name, each.in_time) for each in report.nodes] == [("n1", 7 / 8), ("n2", 0.0)]
    assert [(each.client, each.channel, each.latency_p95_ms) for each in report.slow] == [
        ("patrol-2", "uav/imagery", 90),
        ("patrol-1", "uav/imagery", 10),
        ("patrol-1", "", 0),
    ]
    (late, expired) = sorted(report.losses, key=lambda each: each.last_ms)
    assert (late.outcome, late.events, late.share) == ("late", 1, 0.5)
    assert (expired.outcome, expired.last_ms) == ("expired", START_MS + 2_400)
    assert [(each.where, each.matched, each.selectivity) for each in report.predicates] == [
        ("", 3, 1.0),
        ("altitude > 300", 2, 2 / 3),
    ]
    assert report.predicates_unmeasured == 1
    assert [(each.publisher, each.events, each.delivered) for each in report.sources] == [
        ("uav-1", 3, 7),
        ("clerk", 0, 1),
    ]
    assert report.sources[0].last_ms == START_MS + 59_000
    assert len(report.series) == 60
    assert [each.at_ms for each in report.series[:2]] == [START_MS, START_MS + 1_000]
    assert [each.events for each in report.series] == [6, 0, 2, *[0] * 56, 1]
    assert (report.series[0].rate_hz, report.series[1].in_time) == (6.0, None)
    assert report.shortened == ()


def test_a_refused_subscription_is_no_lost_event(spark: SparkSession) -> None:
    refusal = {"number": 0, "publisher": "", "bytes": 0, "detail": "subscription: bandwidth"}
    ledger = ledger_frame(
        spark, entry(), entry("refused", detail="not allowed"), entry("refused", **refusal)
    )
    report = make_report(
        event_frame(spark), ledger, [], since_ms=START_MS, until_ms=START_MS + 1, node="n1"
    )
    assert (report.totals.events, report.totals.refused, report.totals.in_time) == (2, 1, 1 / 2)
    assert [each.cause for each in report.losses] == ["not allowed"]


def test_lists_are_bounded_and_say_so(spark: SparkSession) -> None:
    ledger = ledger_frame(spark, *(entry(channel=f"c{n}", count=n + 1) for n in range(TOP + 5)))
    report = make_report(
        event_frame(spark, event()), ledger, [], since_ms=START_MS, until_ms=START_MS + 1, node="n"
    )
    assert len(report.channels) == len(report.slow) == len(report.sources) == TOP
    assert report.channels[0].name == f"c{TOP + 4}"
    assert report.totals.events == (TOP + 5) * (TOP + 6) // 2
    assert (report.kept, report.kept_bytes) == (1, 100)
    assert report.shortened == ("channels", "slow", "sources")


def test_a_report_on_nothing(spark: SparkSession) -> None:
    nothing = event_frame(spark), ledger_frame(spark)
    report = make_report(*nothing, [], since_ms=0, until_ms=10, node="n")
    assert report.totals == DeliveredQuality()
    assert (report.kept, report.channels, report.losses, report.predicates) == (0, (), (), ())
    assert len(report.series) == 1


def test_a_time_that_ends_before_it_begins_is_refused(spark: SparkSession) -> None:
    nothing = event_frame(spark), ledger_frame(spark)
    with pytest.raises(ValueError, match="since_ms: expected less than until_ms=5"):
        make_report(*nothing, [], since_ms=5, until_ms=5, node="n")
