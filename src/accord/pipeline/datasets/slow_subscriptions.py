"""Slow subscriptions: which clients wait longest for which channels."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from accord.pipeline.datasets.quality import quality


def slow_subscriptions(ledger: DataFrame, *, seconds: float, at_least: int = 1) -> DataFrame:
    """Quality by client and channel, with its `rank`: the highest delays first.

    Clients that received fewer than `at_least` events of a channel are omitted.
    """
    pairs = quality(ledger, "destination", "channel", seconds=seconds)
    arrived = F.col("delivered") + F.col("late") + F.col("shaped")
    return ranked(pairs.where(arrived >= max(at_least, 1)))


def ranked(pairs: DataFrame) -> DataFrame:
    slowest = Window.partitionBy(F.lit(0)).orderBy(
        F.desc("latency_p95_ms"), F.desc("queueing_p95_ms"), F.desc("events")
    )
    return pairs.withColumn("rank", F.row_number().over(slowest))
