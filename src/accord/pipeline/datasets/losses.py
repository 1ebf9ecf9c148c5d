"""Analyses of delivery: causes of loss, slow subscriptions, and use of sources.

The ledger's detail gives the reason per event with its own values: `deadline_ms=5000`, the event
that replaced it, an attribute's value. A cause is the detail without those values.

Slow subscriptions are the clients that wait longest, by channel. The use of a source is what a
publisher sends to channels, and how much of it is delivered. Rows are selected by channel filter
and time range.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from accord.core.model.channels import RESPONSES, problem_with_filter
from accord.core.model.former_names import CAUSES
from accord.core.monitoring.ledger import BUDGET, BY, DEADLINE, FROM_BYTES
from accord.pipeline.datasets.quality import ARRIVED, outcomes, quality

_LENGTH: Final = 120
_FACTS: Final = rf"(?:^|; )(?:{DEADLINE}|{FROM_BYTES}|{BY}|{BUDGET})=[^;]*"
_VALUES: Final = r"'[^']*'|\"[^\"]*\"|[0-9]+(?:\.[0-9]+)?"
_USUAL: Final = {
    "late": "arrived after its deadline",
    "expired": "could not arrive before its deadline",
    "replaced": "a newer event took its place",
    "shaped": "made smaller",
}


def losses(ledger: DataFrame) -> DataFrame:
    """For each outcome, cause, policy and channel: events, clients, share of all, and the last."""
    lost = outcomes(ledger).where(F.col("outcome") != "delivered")
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
    present = _with_present_names(F.regexp_replace(words, "^; ", ""))
    general = F.regexp_replace(present, _VALUES, "…")
    usual = F.lit("")
    for outcome, text in _USUAL.items():
        usual = F.when(F.col("outcome") == outcome, F.lit(text)).otherwise(usual)
    return F.when(general == "", usual).otherwise(general.substr(1, _LENGTH))


def _with_present_names(words: Column) -> Column:
    """Archives of earlier builds have causes under their former names."""
    found = words
    for former, name in CAUSES.items():
        rest = words.substr(len(former) + 1, _LENGTH)
        found = F.when(words.startswith(former), F.concat(F.lit(name), rest)).otherwise(found)
    return found


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


CHANNEL: Final = "channel"
_LEVEL: Final = "[^/]*"


def selects(pattern: str, column: str = CHANNEL) -> Column:
    """Whether the channel filter `pattern` selects `column`; ValueError if it is invalid."""
    if problem := problem_with_filter(pattern):
        raise ValueError(f"channel: {problem}")
    channel = F.col(column)
    levels = pattern.split("/")
    is_open = levels[-1] == "#"
    fixed = levels[:-1] if is_open else levels
    if "+" in fixed:
        selected = channel.rlike(_regex(fixed, is_open))
    elif not is_open:
        return channel == pattern
    elif fixed:
        above = "/".join(fixed)
        return channel.startswith(above + "/") | (channel == above)
    else:
        selected = F.lit(True)
    # System channels are only selected by an explicit first level.
    return selected & ~channel.startswith("$") if levels[0] in ("+", "#") else selected


def shows(pattern: str, column: str = CHANNEL) -> Column:
    """Whether a view of `pattern` shows `column`: internal channels only by name."""
    shown = selects(pattern, column)
    is_named = not pattern.startswith(("+", "#"))
    return shown if is_named else shown & ~F.col(column).startswith(RESPONSES)


def _regex(levels: list[str], is_open: bool) -> str:
    parts = (_LEVEL if level == "+" else re.escape(level) for level in levels)
    return rf"(?s)\A{'/'.join(parts)}{'(/.*)?' if is_open else ''}\z"


def between(frame: DataFrame, column: str, since_ms: int, until_ms: int) -> DataFrame:
    """Rows whose timestamp in `column` is in [`since_ms`, `until_ms`)."""
    since, until = (F.timestamp_millis(F.lit(ms)) for ms in (since_ms, until_ms))
    return frame.where((F.col(column) >= since) & (F.col(column) < until))


def of_channels(ledger: DataFrame, pattern: str) -> DataFrame:
    """Entries for channels that `pattern` shows; entries for several channels always count."""
    return ledger.where(shows(pattern) | (F.col(CHANNEL) == ""))
