from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from tests.pipeline.frames import entry, ledger_frame

from accord.core.monitoring.sightings import LINKS, NODES
from accord.pipeline.datasets.availability import availability, sightings
from accord.pipeline.datasets.losses import losses, uses
from accord.pipeline.datasets.quality import quality


def seen(subject: str, state: str, since_s: int, until_s: int, **fields: Any) -> dict[str, Any]:
    """An entry as `core.monitoring.sightings` makes it."""
    usual = {"channel": LINKS, "publisher": "denver", "destination": subject, "count": 0}
    times = {"received_ms": since_s * 1_000, "queued_ms": until_s * 1_000, "bytes": 0}
    return entry(state, **(usual | times | fields))


def test_failures_are_counted_where_they_begin(spark: SparkSession) -> None:
    frame = ledger_frame(
        spark,
        entry(),
        seen("boise", "up", 0, 0),
        seen("boise", "up", 0, 30),
        seen("boise", "down", 30, 30),
        seen("boise", "down", 30, 40),
        seen("boise", "down", 40, 50),
        seen("boise", "up", 50, 50),
        seen("boise", "up", 50, 60),
        seen("boise", "up", 0, 90, publisher="orlando"),
        seen("boise", "down", 0, 0, channel=NODES),
    )
    found = {
        (row["channel"], row["observer"]): row
        for row in availability(sightings(frame)).collect()
        if row["subject"] == "boise"
    }
    assert len(found) == 3
    flapping = found[LINKS, "denver"]
    assert (flapping["watched_s"], flapping["down_s"], flapping["failures"]) == (60, 20, 1)
    assert flapping["availability"] == 2 / 3
    assert (flapping["mean_up_s"], flapping["mean_down_s"]) == (40.0, 20.0)
    assert flapping["failure_probability"] == (20 + 0.6) / (60 + 60)
    good, new = found[LINKS, "orlando"], found[NODES, "denver"]
    assert (good["availability"], good["failures"], good["mean_up_s"]) == (1.0, 0, None)
    assert good["failure_probability"] == 0.6 / 150
    assert (new["availability"], new["failures"], new["failure_probability"]) == (None, 1, 0.01)


def test_sightings_are_no_deliveries(spark: SparkSession) -> None:
    frame = ledger_frame(spark, entry(), entry("shed"), seen("boise", "down", 0, 0))
    assert [row["channel"] for row in quality(frame, "channel", seconds=1).collect()] == [
        "uav/imagery"
    ]
    assert [row["events"] for row in losses(frame).collect()] == [1]
    assert uses(frame).count() == 1
