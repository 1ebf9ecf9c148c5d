"""Delivered quality as a stream: one row per time interval, once the interval is final."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.pipeline.datasets.quality import aggregates, with_delays, with_rates


def live_quality(
    ledger: DataFrame, *by: str, every_s: int = 10, wait_s: int = 30, slide_s: int | None = None
) -> DataFrame:
    """The columns of `quality` for each `every_s` seconds from `at` on, of a streaming ledger.

    Entries may be up to `wait_s` seconds out of order (the watermark); later ones are dropped.
    """
    slide = f"{slide_s or every_s} seconds"
    window = F.window(F.col("done"), f"{every_s} seconds", slide)
    delays = with_delays(ledger.withWatermark("done", f"{wait_s} seconds"))
    aggregated = delays.groupBy(window, *by).agg(*aggregates())
    timed = aggregated.withColumn("at", F.col("window")["start"])
    return with_rates(timed, [*by, "at"], every_s)
