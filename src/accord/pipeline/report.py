"""The report on delivered quality over a time range, computed in few Spark jobs.

All quality figures come from one pass over the ledger: grouping sets build the histograms by
channel, client, node, moment and subscription together. Losses, sources and predicates take one
more pass each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from accord.core.queries.messages import WatchedPredicate
from accord.core.queries.report import (
    BUCKETS,
    TOP,
    DeliveredQuality,
    Loss,
    MomentQuality,
    NamedQuality,
    PairQuality,
    PredicateUse,
    Report,
    SourceUse,
)
from accord.pipeline.datasets.losses import between, losses, of_channels, shows, source_use
from accord.pipeline.datasets.quality import HISTOGRAM, aggregates, sums, with_delays, with_rates
from accord.pipeline.datasets.selectivity import most_used, selectivity
from accord.pipeline.decode.attributes import Declared

_MIN_BUCKET_MS: Final = 1_000
_BY: Final = ("channel", "destination", "node", "bucket")
_SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "totals": (),
    "channels": ("channel",),
    "clients": ("destination",),
    "nodes": ("node",),
    "series": ("bucket",),
    "slow": ("channel", "destination"),
}


def make_report(  # noqa: PLR0913 (whose time, place and channels are all asked for)
    events: DataFrame,
    ledger: DataFrame,
    watched: Sequence[WatchedPredicate],
    *,
    since_ms: int,
    until_ms: int,
    node: str,
    channel: str = "#",
    declared: Declared = MappingProxyType({}),
) -> Report:
    """Delivered quality from `since_ms` up to `until_ms` on the channels a filter selects."""
    if since_ms >= until_ms:
        raise ValueError(f"since_ms: expected less than until_ms={until_ms}, got {since_ms}")
    began = time.monotonic()
    seconds = (until_ms - since_ms) / 1_000
    events = between(events, "received", since_ms, until_ms).where(shows(channel))
    ledger = of_channels(between(ledger, "done", since_ms, until_ms), channel)
    bucket_ms = max(-(-(until_ms - since_ms) // BUCKETS), _MIN_BUCKET_MS)
    found = _qualities(ledger, since_ms, bucket_ms, seconds)
    lost = _top(losses(ledger), "events")
    used = _top(_with_totals(source_use(events, ledger, seconds=seconds)), "events", "delivered")
    predicates = most_used(watched)
    selected = selectivity(events, predicates, seconds=seconds, declared=declared).collect()
    lists: dict[str, Sequence[Any]] = {
        "channels": [_named(row, "channel") for row in found["channels"]],
        "clients": [_named(row, "destination") for row in found["clients"]],
        "nodes": [_named(row, "node") for row in found["nodes"]],
        "losses": [_loss(row) for row in lost],
        "slow": [_pair(row) for row in found["slow"]],
        "predicates": sorted(
            (_predicate(row, predicates[row["index"]]) for row in selected),
            key=lambda each: -each.rate_hz,
        ),
        "sources": [_source(row) for row in used],
    }
    return Report(
        node=node,
        since_ms=since_ms,
        until_ms=until_ms,
        channel=channel,
        kept=used[0]["_events"] if used else 0,
        kept_bytes=used[0]["_bytes"] if used else 0,
        totals=_totals(found["totals"]),
        predicates_unmeasured=len(watched) - len(selected),
        bucket_ms=bucket_ms,
        series=tuple(_series(found["series"], since_ms, until_ms, bucket_ms)),
        shortened=tuple(name for name, rows in lists.items() if len(rows) > TOP),
        took_ms=round((time.monotonic() - began) * 1_000),
        **{name: tuple(rows[:TOP]) for name, rows in lists.items()},
    )


def _qualities(
    ledger: DataFrame, since_ms: int, bucket_ms: int, seconds: float
) -> dict[str, list[Row]]:
    """The rows of each section in order, one more than are shown."""
    bucket = F.floor((F.unix_millis("done") - since_ms) / bucket_ms).cast("int")
    delays = with_delays(ledger.withColumn("bucket", bucket))
    sets = [[*by, *HISTOGRAM] for by in _SECTIONS.values()]
    section = F.grouping_id().alias("section")
    histograms = delays.groupingSets(sets, *_BY, *HISTOGRAM).agg(section, *sums())
    of_series = F.col("section") == _section_id("series")
    of_slow = F.col("section") == _section_id("slow")
    per = F.when(of_series, F.lit(bucket_ms / 1_000)).otherwise(F.lit(seconds))
    by = ["section", *_BY]
    qualities = with_rates(histograms.groupBy(*by).agg(*aggregates()), by, per)
    first = F.when(of_slow, F.col("latency_p95_ms")).otherwise(F.col("events"))
    order = Window.partitionBy("section").orderBy(F.desc(first), F.desc("events"))
    ranked = qualities.where(~of_slow | F.col("latency_p95_ms").isNotNull()).withColumn(
        "rank", F.row_number().over(order)
    )
    rows = ranked.where(of_series | (F.col("rank") <= TOP + 1)).orderBy("rank").collect()
    return {
        name: [row for row in rows if row["section"] == _section_id(name)] for name in _SECTIONS
    }


def _section_id(name: str) -> int:
    """Spark's `grouping_id`: a bit for each omitted column, the first one highest."""
    columns = (*_BY, *HISTOGRAM)
    grouped = {*_SECTIONS[name], *HISTOGRAM}
    return sum(1 << place for place, each in enumerate(reversed(columns)) if each not in grouped)


def _top(frame: DataFrame, *order: str) -> list[Row]:
    return frame.orderBy(*(F.desc(each) for each in order)).limit(TOP + 1).collect()


def _with_totals(used: DataFrame) -> DataFrame:
    everything = Window.partitionBy(F.lit(0))
    return used.select(
        "*",
        F.sum("events").over(everything).alias("_events"),
        F.sum("bytes").over(everything).alias("_bytes"),
    )


def _totals(rows: Sequence[Row]) -> DeliveredQuality:
    """Totals; Spark returns a row of nulls for an empty table."""
    return (
        DeliveredQuality(**_fields(rows[0])) if rows and rows[0]["events"] else DeliveredQuality()
    )


def _fields(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in DeliveredQuality.__struct_fields__}


def _named(row: Row, by: str) -> NamedQuality:
    return NamedQuality(name=row[by], **_fields(row))


def _pair(row: Row) -> PairQuality:
    return PairQuality(client=row["destination"], channel=row["channel"], **_fields(row))


def _series(
    rows: Sequence[Row], since_ms: int, until_ms: int, bucket_ms: int
) -> Iterator[MomentQuality]:
    by_bucket = {row["bucket"]: row for row in rows}
    for bucket, at_ms in enumerate(range(since_ms, until_ms, bucket_ms)):
        row = by_bucket.get(bucket)
        yield MomentQuality(at_ms=at_ms, **(_fields(row) if row else {}))


def _loss(row: Row) -> Loss:
    return Loss(last_ms=_ms(row["last"]), **_shared(row, Loss))


def _source(row: Row) -> SourceUse:
    last_ms = None if row["last"] is None else _ms(row["last"])
    return SourceUse(last_ms=last_ms, **_shared(row, SourceUse))


def _predicate(row: Row, watched: WatchedPredicate) -> PredicateUse:
    return PredicateUse(
        channel=watched.channel,
        where=watched.where,
        xpath=watched.xpath,
        clients=watched.clients,
        **_shared(row, PredicateUse),
    )


def _shared(row: Row, struct: type[Loss | SourceUse | PredicateUse]) -> dict[str, Any]:
    """The columns that are also fields."""
    return {name: row[name] for name in struct.__struct_fields__ if name in row}


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)
