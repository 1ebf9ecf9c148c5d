"""Availability of nodes and links, from the sightings in the ledger.

Nodes record from when until when they saw a link or another node up or down (see
`core.monitoring.sightings`): an entry of length 0 begins a state. A link is down after three missed
pings (SPEC's part H): a single lost ping is no failure. Time that nobody recorded does not count.

| column | meaning |
|---|---|
| `watched_s`, `down_s` | time observed, and time down |
| `availability` | share of the time that it was up; null if it was not observed |
| `failures` | how often it went down |
| `mean_up_s` | mean time between failures: time up for each failure, null without one |
| `mean_down_s` | mean time to repair |
| `failure_probability` | probability of being down at a random moment, as routing needs it |

The probability is never 0 or 1, however short the history: a usual link's minute is added to it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.core.monitoring.ledger import DOWN, outcome_name
from accord.core.monitoring.sightings import LINKS, NODES

USUAL_S: Final = 60.0  # weight of a usual link, and
USUAL: Final = 0.01  # its probability of failure


def sightings(ledger: DataFrame) -> DataFrame:
    """Those in a ledger: `node`, `offset`, `channel`, `observer`, `subject`, times, `is_down`."""
    seen = ledger.where(F.col("channel").isin(LINKS, NODES))
    return seen.select(
        "node",
        "offset",
        "channel",
        F.col("publisher").alias("observer"),
        F.col("destination").alias("subject"),
        F.col("received").alias("since"),
        F.col("done").alias("until"),
        (F.col("outcome") == outcome_name(DOWN)).alias("is_down"),
    )


def availability(seen: DataFrame) -> DataFrame:
    """The table above, for each `channel` (links or nodes), `observer` and `subject`."""
    lasted_s = (F.unix_micros("until") - F.unix_micros("since")) / 1e6
    is_down = F.col("is_down")
    timed = seen.withColumn("_s", F.greatest(lasted_s, F.lit(0.0)))
    counted = timed.groupBy("channel", "observer", "subject").agg(
        F.sum("_s").alias("watched_s"),
        F.sum(F.when(is_down, F.col("_s")).otherwise(0.0)).alias("down_s"),
        F.count_if(is_down & (F.col("_s") == 0)).alias("failures"),
    )
    up_s = F.col("watched_s") - F.col("down_s")
    probability = (F.col("down_s") + USUAL * USUAL_S) / (F.col("watched_s") + USUAL_S)
    return counted.select(
        "*",
        F.try_divide(up_s, "watched_s").alias("availability"),
        F.try_divide(up_s, "failures").alias("mean_up_s"),
        F.try_divide("down_s", "failures").alias("mean_down_s"),
        probability.alias("failure_probability"),
    )
