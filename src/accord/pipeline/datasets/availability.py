"""Availability of nodes and links, from repeated observations.

A sighting records whether a subject replied at a moment. A link is down after several consecutive
misses (three, in SPEC's part H): a single lost ping is no failure. A sighting holds until the next
one, but for `gap_s` at most: beyond that the subject was not observed.

| column | meaning |
|---|---|
| `sightings`, `missed` | number of sightings, and of those without a reply |
| `watched_s`, `down_s` | time observed, and time down |
| `availability` | share of the time that it was up |
| `failures` | how often it went down |
| `mean_up_s` | mean time between failures: time up for each failure, null without one |
| `mean_down_s` | mean time to repair |
| `failure_probability` | probability of being down at a random moment, as routing needs it |

The probability is never 0 or 1, however short the history: each subject is credited with one more
sighting up and one more down (rule of succession).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812


def availability(sightings: DataFrame, *, missed: int = 3, gap_s: float = 60) -> DataFrame:
    """The table for each `subject`, from columns `subject`, `at` (timestamp) and `is_up`."""
    states = with_states(sightings, missed=missed, gap_s=gap_s)
    is_down = F.col("is_down")
    counted = states.groupBy("subject").agg(
        F.count(F.lit(1)).alias("sightings"),
        F.count_if(~F.col("is_up")).alias("missed"),
        F.sum("lasted_s").alias("watched_s"),
        F.sum(F.when(is_down, F.col("lasted_s")).otherwise(0.0)).alias("down_s"),
        F.count_if(is_down).alias("_down"),
        F.count_if("has_failed").alias("failures"),
    )
    up_s = F.col("watched_s") - F.col("down_s")
    return counted.select(
        "subject",
        "sightings",
        "missed",
        "watched_s",
        "down_s",
        F.try_divide(up_s, "watched_s").alias("availability"),
        "failures",
        F.try_divide(up_s, "failures").alias("mean_up_s"),
        F.try_divide("down_s", "failures").alias("mean_down_s"),
        ((F.col("_down") + 1) / (F.col("sightings") + 2)).alias("failure_probability"),
    )


def with_states(sightings: DataFrame, *, missed: int, gap_s: float) -> DataFrame:
    """Add `is_down`, `has_failed` at each start of it, and its duration `lasted_s`."""
    in_time = Window.partitionBy("subject").orderBy("at")
    # All misses between two replies have the same number of replies before them.
    answers = F.sum(F.col("is_up").cast("int")).over(in_time)
    row_of_misses = Window.partitionBy("subject", "_answers", "is_up")
    is_down = ~F.col("is_up") & (F.count(F.lit(1)).over(row_of_misses) >= missed)
    return (
        sightings.withColumn("_answers", answers)
        .withColumn("is_down", is_down)
        .select(
            "subject",
            "at",
            "is_up",
            "is_down",
            (F.col("is_down") & ~F.lag("is_down", 1, False).over(in_time)).alias("has_failed"),
            _lasted_s(F.lead("at").over(in_time), gap_s).alias("lasted_s"),
        )
    )


def _lasted_s(until: Column, gap_s: float) -> Column:
    """Time until the next sighting; unknown after the last one."""
    seconds = (F.unix_micros(until) - F.unix_micros("at")) / 1e6
    return F.when(until.isNotNull(), F.least(seconds, F.lit(float(gap_s)))).otherwise(0.0)


def sightings_of(pings: DataFrame) -> DataFrame:
    """Sightings from columns `subject`, `at`, `sent` and `answered`: up if any was answered."""
    asked = pings.where(F.col("sent") > 0)
    return asked.select("subject", "at", (F.col("answered") > 0).alias("is_up"))
