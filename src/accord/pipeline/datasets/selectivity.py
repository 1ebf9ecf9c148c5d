"""Selectivity: which share of the events on its channels a registered predicate selects.

All predicates are counted in one pass over the events: the pass becomes one row, which then is
turned by a quarter, so that each predicate has a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.core.errors import PredicateError
from accord.core.predicates.predicate import parse, parse_xpath
from accord.edges.pipeline.messages import Watched
from accord.pipeline.attributes import Declared
from accord.pipeline.columns import to_column
from accord.pipeline.datasets.selection import selects

PREDICATES: Final = 100  # in one pass


def selectivity(
    events: DataFrame,
    watched: Sequence[Watched],
    *,
    seconds: float,
    declared: Declared = MappingProxyType({}),
) -> DataFrame:
    """For each of `watched` by its `index`: events seen and matched, bytes, rates over `seconds`.

    Only the first PREDICATES are looked at; what can't be understood has no row.
    """
    rows = []
    for index, each in enumerate(watched[:PREDICATES]):
        try:
            rows.append(_counted(index, each, declared))
        except (PredicateError, ValueError):
            continue
    if not rows:
        rows = [_nothing()]
    counted = events.agg(F.array(*rows).alias("rows")).select(F.inline("rows"))
    per_second = 1 / max(seconds, 0.001)
    return counted.where(F.col("index") >= 0).select(
        "*",
        F.try_divide("matched", "seen").alias("selectivity"),
        (F.col("matched") * per_second).alias("rate_hz"),
        (F.col("bytes") * per_second).alias("bytes_per_s"),
    )


def most_used(watched: Sequence[Watched], most: int = PREDICATES) -> list[Watched]:
    """Those of the most clients first."""
    return sorted(watched, key=lambda each: -each.clients)[:most]


def condition(watched: Watched, declared: Declared) -> Column:
    """Where its predicate is true; raises PredicateError."""
    wanted = F.lit(True)
    if watched.where:
        wanted = to_column(parse(watched.where), declared)
    if watched.xpath:
        wanted = wanted & to_column(parse_xpath(watched.xpath), declared)
    return F.coalesce(wanted, F.lit(False))


def _counted(index: int, watched: Watched, declared: Declared) -> Column:
    is_seen = selects(watched.channel)
    is_matched = is_seen & condition(watched, declared)
    size = F.when(is_matched, F.col("payload_bytes"))
    return F.struct(
        F.lit(index).alias("index"),
        F.count_if(is_seen).alias("seen"),
        F.count_if(is_matched).alias("matched"),
        F.coalesce(F.sum(size), F.lit(0)).alias("bytes"),
    )


def _nothing() -> Column:
    zero = F.lit(0).cast("bigint")
    return F.struct(
        F.lit(-1).alias("index"), zero.alias("seen"), zero.alias("matched"), zero.alias("bytes")
    )
