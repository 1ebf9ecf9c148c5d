"""Delivered quality: how much arrived, how fast, and how much of it in time.

A ledger entry stands for `count` events with the same outcome at the same time, so everything is
weighted by it. Percentiles come from a histogram of bounded size: each bin is one percent wider
than the one before, which is exact up to 98 ms and within half a percent beyond. Building it is an
aggregation that Spark compiles.

| column | of the events in a group |
|---|---|
| `events` | all of them, once for each destination |
| `delivered`, `late`, … | how many of each outcome; late and shaped ones have arrived, too |
| `bytes`, `rate_hz`, `bytes_per_s` | of those that arrived |
| `latency_p50_ms`, … | from receipt to delivery, of those that arrived |
| `queueing_p50_ms`, … | the part of it in the outbox |
| `in_time` | arrived and not late, of all that should have arrived |

Not counted as expected: events replaced by a newer one, and events the node refused, which have no
destination. Refused subscriptions, which the ledger has too, are no events.

`live_quality` is the same as a stream: one row per time interval, once the interval is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.core.monitoring.ledger import OUTCOMES, STATES

ARRIVED: Final = ("delivered", "late", "shaped")
SHARES: Final = (0.5, 0.95, 0.99)
_BINS: Final = 100  # for each factor of e
_LATENCY: Final = "_latency_bin"
_QUEUEING: Final = "_queueing_bin"
_IS_TAKEN: Final = "_is_taken"
HISTOGRAM: Final = ("outcome", _IS_TAKEN, _LATENCY, _QUEUEING)


def quality(ledger: DataFrame, *by: str, seconds: float) -> DataFrame:
    """Quality for each combination of the columns `by`; rates are over `seconds`."""
    return summarize(histogram(with_delays(ledger), *by), *by, seconds=seconds)


def quality_over_time(ledger: DataFrame, *by: str, every_s: int = 3_600) -> DataFrame:
    """The same for each interval of `every_s` seconds, starting `at`, by time of outcome."""
    at = F.window(F.col("done"), f"{every_s} seconds")["start"]
    return quality(ledger.withColumn("at", at), *by, "at", seconds=every_s)


def outcomes(ledger: DataFrame) -> DataFrame:
    """The entries about events: not those about links and nodes, nor refused subscriptions."""
    is_other = (F.col("number") == 0) & (F.col("publisher") == "")
    return ledger.where(~F.col("outcome").isin(*STATES) & ~is_other)


def with_delays(ledger: DataFrame) -> DataFrame:
    """Add the delays of each entry of events; null if it did not arrive."""
    has_arrived = F.col("outcome").isin(*ARRIVED)
    return outcomes(ledger).select(
        "*",
        F.when(has_arrived, _bin_of("received")).alias(_LATENCY),
        F.when(has_arrived, _bin_of("queued")).alias(_QUEUEING),
        ((F.col("outcome") != "refused") | (F.col("destination") != "")).alias(_IS_TAKEN),
    )


def histogram(delays: DataFrame, *by: str) -> DataFrame:
    """Count events and bytes by outcome and delay."""
    return delays.groupBy(*by, *HISTOGRAM).agg(*sums())


def sums() -> list[Column]:
    return [F.sum("count").alias("count"), F.sum("bytes").alias("bytes")]


def summarize(histogram: DataFrame, *by: str, seconds: float) -> DataFrame:
    aggregated = histogram.groupBy(*by).agg(*aggregates())
    return with_rates(aggregated, by, seconds)


def aggregates() -> list[Column]:
    """Aggregates over entries or their histogram, from which `with_rates` computes the columns."""
    count = F.col("count")
    is_due = (F.col("outcome") != "replaced") & F.col(_IS_TAKEN)
    return [
        F.sum(count).alias("events"),
        *(_sum_where(F.col("outcome") == name, count).alias(name) for name in OUTCOMES),
        _sum_where(F.col("outcome").isin(*ARRIVED), F.col("bytes")).alias("bytes"),
        _sum_where(is_due, count).alias("_due"),
        _percentiles(_LATENCY).alias("_latency"),
        _percentiles(_QUEUEING).alias("_queueing"),
    ]


def with_rates(aggregated: DataFrame, by: Sequence[str], seconds: float | Column) -> DataFrame:
    arrived = F.col("delivered") + F.col("late") + F.col("shaped")
    return aggregated.select(
        *by,
        "events",
        *OUTCOMES,
        "bytes",
        (arrived / seconds).alias("rate_hz"),
        (F.col("bytes") / seconds).alias("bytes_per_s"),
        *(
            F.col(f"_{name}")[index].alias(f"{name}_p{round(share * 100)}_ms")
            for name in ("latency", "queueing")
            for index, share in enumerate(SHARES)
        ),
        F.try_divide(F.col("delivered") + F.col("shaped"), F.col("_due")).alias("in_time"),
    )


def _sum_where(condition: Column, value: Column) -> Column:
    return F.sum(F.when(condition, value).otherwise(F.lit(0)))


def _percentiles(column: str) -> Column:
    shares = F.array(*(F.lit(share) for share in SHARES))
    return F.percentile(_delay_ms(F.col(column)), shares, F.col("count"))


def _bin_of(since: str) -> Column:
    """Histogram bin of a delay; negative ones, from a clock set back, count as 0."""
    delay_ms = F.greatest(F.unix_millis("done") - F.unix_millis(since), F.lit(0))
    return F.floor(F.log1p(delay_ms) * _BINS).cast("int")


def _delay_ms(bin_: Column) -> Column:
    """The integer in the middle of a bin."""
    return F.round(F.exp((bin_ + 0.5) / _BINS)) - 1


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
