"""Use of sources: what publishers send to channels, and how much of it is delivered."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.pipeline.datasets.quality import ARRIVED


def sources(events: DataFrame, *, seconds: float) -> DataFrame:
    """For each publisher and channel: kept events, bytes, rates over `seconds`, last seen."""
    return events.groupBy("publisher", "channel").agg(
        *_amounts(seconds), F.max("received").alias("last")
    )


def uses(ledger: DataFrame) -> DataFrame:
    """For each publisher and channel: deliveries, their bytes, and about how many clients."""
    arrived = ledger.where(F.col("outcome").isin(*ARRIVED))
    return arrived.groupBy("publisher", "channel").agg(
        F.sum("count").alias("delivered"),
        F.sum("bytes").alias("delivered_bytes"),
        F.approx_count_distinct("destination").alias("destinations"),
    )


def source_use(events: DataFrame, ledger: DataFrame, *, seconds: float) -> DataFrame:
    """Both joined, including what was not kept or not delivered."""
    both = sources(events, seconds=seconds).join(uses(ledger), ["publisher", "channel"], "full")
    numbers = ["events", "bytes", "delivered", "delivered_bytes", "destinations"]
    return both.fillna(0, [*numbers, "rate_hz", "bytes_per_s"])


def channel_rates(events: DataFrame, *, every_s: int = 60) -> DataFrame:
    """For each channel and `every_s` seconds, starting `at`: kept events, bytes and rates."""
    at = F.window(F.col("received"), f"{every_s} seconds")["start"].alias("at")
    return events.groupBy("channel", at).agg(*_amounts(every_s))


def _amounts(seconds: float) -> list[Column]:
    per_second = 1 / max(seconds, 0.001)
    events, size = F.count(F.lit(1)), F.sum("payload_bytes")
    return [
        events.alias("events"),
        size.alias("bytes"),
        (events * per_second).alias("rate_hz"),
        (size * per_second).alias("bytes_per_s"),
    ]
