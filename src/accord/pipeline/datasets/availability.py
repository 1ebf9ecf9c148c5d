"""Availability of nodes and links, from what was seen of them again and again.

A sighting says that a subject did or did not answer at a moment. A link is down where it missed
several in a row (three, in SPEC's part H): single lost pings are no failure. What is seen counts
until the next sighting, but not for longer than `gap_s`: nobody looked then.

| column | meaning |
|---|---|
| `sightings`, `missed` | how many there were, and without an answer |
| `watched_s`, `down_s` | how long it was watched, and down |
| `availability` | share of the time that it was up |
| `failures` | how often it went down |
| `mean_up_s` | mean time between failures: time up for each failure, null without one |
| `mean_down_s` | mean time to repair |
| `failure_probability` | that it is down at some moment, as routing needs it |

The probability is never 0 or 1, however short the history: a subject counts as if it had been
seen up once and down once more (rule of succession).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812


def availability(sightings: DataFrame, *, missed: int = 3, gap_s: float = 60) -> DataFrame:
    """For each `subject`, from the columns `subject`, `at` (timestamp) and `is_up`."""
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
    """Add `is_down`, `has_failed` where that begins, and how long it `lasted_s`."""
    in_time = Window.partitionBy("subject").orderBy("at")
    # Between two answers all misses have seen the same number of answers before.
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
    """Nothing is known of the time behind the last sighting."""
    seconds = (F.unix_micros(until) - F.unix_micros("at")) / 1e6
    return F.when(until.isNotNull(), F.least(seconds, F.lit(float(gap_s)))).otherwise(0.0)


def sightings_of(pings: DataFrame) -> DataFrame:
    """Sightings from columns `subject`, `at`, `sent` and `answered`: up where any was answered."""
    asked = pings.where(F.col("sent") > 0)
    return asked.select("subject", "at", (F.col("answered") > 0).alias("is_up"))
