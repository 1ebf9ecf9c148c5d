"""Causes of loss: why events did not arrive, or not as they were published.

The ledger's detail gives the reason per event with its own values: `deadline_ms=5000`, the event
that replaced it, an attribute's value. A cause is the detail without those values.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from accord.core.monitoring.ledger import BY, DEADLINE, FROM_BYTES

_LENGTH: Final = 120
_FACTS: Final = rf"(?:^|; )(?:{DEADLINE}|{FROM_BYTES}|{BY})=[^;]*"
_VALUES: Final = r"'[^']*'|\"[^\"]*\"|[0-9]+(?:\.[0-9]+)?"
_USUAL: Final = {
    "late": "arrived after its deadline",
    "expired": "could not arrive before its deadline",
    "replaced": "a newer event took its place",
    "shaped": "made smaller",
}


def losses(ledger: DataFrame) -> DataFrame:
    """For each outcome, cause, policy and channel: events, clients, share of all, and the last."""
    lost = ledger.where(F.col("outcome") != "delivered")
    caused = lost.groupBy("outcome", cause().alias("cause"), "policy", "channel").agg(
        F.sum("count").alias("events"),
        F.approx_count_distinct("destination").alias("clients"),
        F.max("done").alias("last"),
    )
    everything = Window.partitionBy(F.lit(0))
    share = F.col("events") / F.sum("events").over(everything)
    return caused.select("*", share.alias("share"))


def cause() -> Column:
    """The words of a detail, or the default ones of its outcome."""
    words = F.regexp_replace(F.col("detail"), _FACTS, "")
    general = F.regexp_replace(F.regexp_replace(words, "^; ", ""), _VALUES, "…")
    usual = F.lit("")
    for outcome, text in _USUAL.items():
        usual = F.when(F.col("outcome") == outcome, F.lit(text)).otherwise(usual)
    return F.when(general == "", usual).otherwise(general.substr(1, _LENGTH))
