from __future__ import annotations

from pyspark.sql import SparkSession
from tests.pipeline.frames import at, entry, ledger_frame

from accord.core.monitoring.ledger import deadline_detail, replacement_detail, shape_detail
from accord.pipeline.datasets.losses import losses


def test_causes_are_told_without_the_figures_of_single_events(spark: SparkSession) -> None:
    ledger = ledger_frame(
        spark,
        entry(count=100),
        entry("expired", detail=deadline_detail(5_000), count=3, policy="Surv"),
        entry("expired", detail=deadline_detail(4_000), destination="b", policy="Surv"),
        entry("replaced", detail=replacement_detail(77)),
        entry("replaced", detail=replacement_detail(78)),
        entry("shaped", detail=shape_detail(70_000, "scaled to 640x480")),
        entry("shaped", detail=shape_detail(70_001, "scaled to 320x240")),
        entry("shed", detail="queue full", waited_ms=500),
        entry("shed", detail="queue full", waited_ms=300),
        entry("shed", detail="queue full", channel=""),
        entry("refused", detail="speed: expected a number, got 'fast'", destination=""),
        entry("refused", detail="speed: expected a number, got 'slow'", destination=""),
        entry("late", detail=deadline_detail(5_000) + "; link down"),
        entry("shed", detail="a member does not keep up", channel="earlier"),
        entry("shed", detail="slow member", channel="earlier"),
        entry("shed", detail="the past of a node can't be had: b is gone", channel="earlier"),
    )
    rows = losses(ledger).collect()
    found = {
        (row["outcome"], row["cause"], row["policy"], row["channel"]): row["events"] for row in rows
    }
    assert found == {
        ("expired", "could not arrive before its deadline", "Surv", "uav/imagery"): 4,
        ("replaced", "a newer event took its place", "", "uav/imagery"): 2,
        ("shaped", "scaled to …x…", "", "uav/imagery"): 2,
        ("shed", "queue full", "", "uav/imagery"): 2,
        ("shed", "queue full", "", ""): 1,
        ("refused", "speed: expected a number, got …", "", "uav/imagery"): 2,
        ("late", "link down", "", "uav/imagery"): 1,
        ("shed", "slow member", "", "earlier"): 2,
        ("shed", "history unavailable: b is gone", "", "earlier"): 1,
    }
    (expired,) = (row for row in rows if row["outcome"] == "expired")
    assert (expired["clients"], expired["share"]) == (2, 4 / 17)
    (full,) = (row for row in rows if row["cause"] == "queue full" and row["channel"])
    assert full["last"].timestamp() == at(500).timestamp()
