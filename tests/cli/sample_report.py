"""A report as a pipeline makes it, with a bit of everything."""

from __future__ import annotations

import math
from typing import Any, Final

from accord.core.queries.report import (
    DeliveredQuality,
    Loss,
    MomentQuality,
    NamedQuality,
    PairQuality,
    PredicateUse,
    Report,
    SourceUse,
)

UNTIL_MS: Final = 1_700_003_600_000
SINCE_MS: Final = UNTIL_MS - 3_600_000
NASTY: Final = "<script>alert('$x_1$ & \"y\"')</script>\x1b[31m/π"


def figures(events: int) -> dict[str, Any]:
    return {
        "events": events,
        "delivered": events * 9 // 10,
        "late": events // 20,
        "shaped": events // 50,
        "expired": events // 100,
        "shed": events // 100,
        "replaced": events // 100,
        "bytes": events * 1_000,
        "rate_hz": events / 3_600,
        "bytes_per_s": events * 1_000 / 3_600,
        "latency_p50_ms": 0.8,
        "latency_p95_ms": 12.5,
        "latency_p99_ms": 2_140.0,
        "queueing_p50_ms": 0.2,
        "queueing_p95_ms": 9.0,
        "queueing_p99_ms": 1_900.0,
        "in_time": 0.9999,
    }


def series() -> list[MomentQuality]:
    moments = []
    for number in range(60):
        at_ms = SINCE_MS + number * 60_000
        if 20 <= number < 24:  # nothing at all
            moments.append(MomentQuality(at_ms=at_ms))
            continue
        facts = figures(round(2_000 + 900 * math.sin(number / 7)))
        facts["latency_p99_ms"] = 40 + 2_000 * math.exp(-((number - 40) ** 2) / 8)
        facts["in_time"] = 1 - 0.2 * math.exp(-((number - 40) ** 2) / 8)
        moments.append(MomentQuality(at_ms=at_ms, **facts))
    return moments


def loss(outcome: str, cause: str, channel: str, events: int) -> Loss:
    return Loss(
        outcome=outcome,
        cause=cause,
        channel=channel,
        events=events,
        clients=3,
        share=events / 4_000,
        last_ms=UNTIL_MS - 90_000,
    )


def sample_report() -> Report:
    names = ("uav/imagery", "blue-force/position", "report/intel", "weather", NASTY, "")
    many = [f"sensor/{number}" for number in range(12)]
    return Report(
        node="denver",
        since_ms=SINCE_MS,
        until_ms=UNTIL_MS,
        took_ms=812,
        kept=120_000,
        kept_bytes=120_000_000,
        totals=DeliveredQuality(**figures(120_000)),
        channels=tuple(
            NamedQuality(name=name, **figures(50_000 >> number))
            for number, name in enumerate((*names, *many))
        ),
        clients=(
            NamedQuality(name="dispatcher", **figures(60_000)),
            NamedQuality(name="mobile-7", **figures(30_000)),
            NamedQuality(name="", events=40, refused=40),
        ),
        nodes=(NamedQuality(name="denver", **figures(120_000)),),
        losses=(
            loss("late", "after its deadline", "uav/imagery", 2_500),
            loss("shed", "the outbox was full", "weather", 900),
            loss("shaped", "images within the limit of the link", "uav/imagery", 400),
            loss("expired", "", NASTY, 120),
            loss("refused", "not authorized to publish", "", 40),
        ),
        slow=(
            PairQuality(client="mobile-7", channel="uav/imagery", **figures(4_000)),
            PairQuality(client=NASTY, channel=NASTY, **figures(400)),
            PairQuality(client="", channel="", events=3),
        ),
        predicates=(
            PredicateUse(
                channel="uav/#",
                where="altitude_m > 300 AND platform = 'UAV'",
                xpath="",
                clients=4,
                seen=40_000,
                matched=1_200,
                bytes=9_000_000,
                selectivity=0.03,
                rate_hz=0.33,
                bytes_per_s=2_500.0,
            ),
            PredicateUse(
                channel=NASTY,
                where="",
                xpath="/report/seen > 1",
                clients=1,
                seen=0,
                matched=0,
                bytes=0,
                selectivity=None,
                rate_hz=0.0,
                bytes_per_s=0.0,
            ),
        ),
        predicates_unmeasured=7,
        sources=(
            SourceUse(
                publisher="camera-1",
                channel="uav/imagery",
                events=40_000,
                bytes=80_000_000,
                rate_hz=11.1,
                last_ms=UNTIL_MS - 30,
                delivered=160_000,
                destinations=4,
            ),
            SourceUse(publisher=NASTY, channel="weather"),
        ),
        bucket_ms=60_000,
        series=tuple(series()),
        shortened=("channels",),
    )
