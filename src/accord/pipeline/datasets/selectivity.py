"""Selectivity: the share of the events on its channels that a registered predicate selects.

One pass matches the events with all predicates, by the matcher of bulk brokering, so the query
stays small however many there are. Tasks return counts, not events.

Predicates come from clients and may be slow on purpose: a task examines events for a limited time,
and extrapolates to the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import PredicateError
from accord.core.queries.messages import WatchedPredicate
from accord.pipeline.bulk.events import Integers
from accord.pipeline.bulk.matcher import Matcher
from accord.pipeline.bulk.predicate_compiler import (
    PredicateSet,
    Registered,
    compile_set,
    parse_here,
)
from accord.pipeline.decode.attributes import Declared
from accord.pipeline.tables import ATTRIBUTES, METADATA

PREDICATES: Final = 1_000  # per pass
CHARACTERS: Final = 200_000  # in total
BUDGET_S: Final = 5.0  # per task
_PIECE: Final = 256  # events between two time checks, if documents are read
_COUNTED: Final = pa.schema(
    {
        "index": pa.int32(),
        "slot": pa.int32(),
        "seen": pa.int64(),
        "matched": pa.int64(),
        "bytes": pa.int64(),
    }.items()
)


def selectivity(
    events: DataFrame,
    watched: Sequence[WatchedPredicate],
    *,
    seconds: float,
    declared: Declared = MappingProxyType({}),
) -> DataFrame:
    """For each of `watched` by its `index`: events seen and matched, bytes, rates over `seconds`.

    Only the first PREDICATES are used; a predicate that can't be parsed has no row.
    """
    per_second = 1 / max(seconds, 0.001)
    return matches(events, watched, declared=declared).select(
        *("index", "seen", "matched", "bytes"),
        F.try_divide("matched", "seen").alias("selectivity"),
        (F.col("matched") * per_second).alias("rate_hz"),
        (F.col("bytes") * per_second).alias("bytes_per_s"),
    )


def matches(
    events: DataFrame,
    watched: Sequence[WatchedPredicate],
    *,
    slot: Column | None = None,
    slots: int = 1,
    declared: Declared = MappingProxyType({}),
) -> DataFrame:
    """For each of `watched` by its `index`, and each `slot` from 0 up to `slots`: counts."""
    counting = MatchCounter.of(watched[:PREDICATES], tuple(declared), slots)
    columns = ["channel", *map(_quoted, declared), ATTRIBUTES]
    if counting.predicates.has_paths:
        columns.append(METADATA)
    size = F.coalesce("payload_bytes", F.lit(0).cast("long")).alias("payload_bytes")
    when = (F.lit(0) if slot is None else slot).cast("int").alias("_slot")
    schema = "index int, slot int, seen long, matched long, bytes long"
    counted = events.select(*columns, size, when).mapInArrow(counting, schema)
    # Covers the case of no events, and so no tasks. Spark Connect infers no schema without rows.
    nothing = events.sparkSession.createDataFrame(counting.nothing(), schema)
    return (
        counted.unionByName(nothing)
        .groupBy("index", "slot")
        .agg(*(F.sum(name).alias(name) for name in ("seen", "matched", "bytes")))
    )


def most_used(
    watched: Sequence[WatchedPredicate], most: int = PREDICATES
) -> list[WatchedPredicate]:
    """As many as one pass takes, those with the most clients first."""
    chosen: list[WatchedPredicate] = []
    characters = 0
    for each in sorted(watched, key=lambda each: -each.clients):
        size = len(each.where) + len(each.xpath)
        if len(chosen) < most and characters + size <= CHARACTERS:
            characters += size
            chosen.append(each)
    return chosen


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))


@dataclass(frozen=True)
class MatchCounter:
    """The task. Each filter also gets a predicate that selects all its events."""

    predicates: PredicateSet
    declared: tuple[str, ...]
    index: tuple[int, ...]  # of those that could be parsed
    filter_of: tuple[int, ...]  # position of each one's filter, after all predicates
    slots: int = 1
    budget_s: float = BUDGET_S

    @classmethod
    def of(
        cls, watched: Sequence[WatchedPredicate], declared: tuple[str, ...], slots: int = 1
    ) -> MatchCounter:
        index = _understood(watched)
        filters = list(dict.fromkeys(watched[each].channel for each in index))
        wanted = [watched[each] for each in index] + [
            WatchedPredicate(each, "", "") for each in filters
        ]
        predicates = compile_set(
            Registered(key=str(key), channel=each.channel, where=each.where, xpath=each.xpath)
            for key, each in enumerate(wanted)
        )
        place = {channel: number for number, channel in enumerate(filters)}
        filter_of = tuple(len(index) + place[watched[each].channel] for each in index)
        return cls(predicates, declared, tuple(index), filter_of, slots)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        matcher = Matcher(self.predicates)
        most = len(self.predicates)
        counts, sizes = np.zeros((2, self.slots * most), np.int64)
        until_s = time.monotonic() + self.budget_s
        looked = rows = 0
        for piece in self._pieces(batches):
            rows += len(piece)
            if looked and time.monotonic() >= until_s:
                continue
            looked += len(piece)
            payloads = piece["payload_bytes"].to_numpy()
            firsts = piece["_slot"].to_numpy() * most
            for _, (events, found) in matcher.find(piece, self.declared):
                places = firsts[events] + found
                counts += np.bincount(places, minlength=len(counts))
                weighed = np.bincount(places, payloads[events], minlength=len(counts))
                sizes += weighed.astype(np.int64)
        counts, sizes = (_scaled(each, rows, looked) for each in (counts, sizes))
        yield self._rows(counts.reshape(self.slots, most), sizes.reshape(self.slots, most))

    def _pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            size = _PIECE if self.predicates.has_paths else max(len(batch), 1)
            yield from (batch.slice(top, size) for top in range(0, len(batch), size))

    def nothing(self) -> pa.Table:
        zeros = np.zeros((self.slots, len(self.predicates)), np.int64)
        return pa.Table.from_batches([self._rows(zeros, zeros)])

    def _rows(self, counts: Integers, sizes: Integers) -> pa.RecordBatch:
        """A row for each predicate in each slot."""
        most = len(self.index)
        columns = [
            np.tile(np.array(self.index, np.int32), self.slots),
            np.repeat(np.arange(self.slots, dtype=np.int32), most),
            counts[:, list(self.filter_of)].ravel(),
            counts[:, :most].ravel(),
            sizes[:, :most].ravel(),
        ]
        return pa.record_batch([pa.array(each) for each in columns], schema=_COUNTED)


def _scaled(counts: Integers, rows: int, looked: int) -> Integers:
    return counts if rows == looked else np.rint(counts * (rows / looked)).astype(np.int64)


def _understood(watched: Sequence[WatchedPredicate]) -> list[int]:
    trees = parse_here([(each.where, each.xpath) for each in watched])
    return [
        index
        for index, (each, tree) in enumerate(zip(watched, trees, strict=True))
        if not isinstance(tree, PredicateError) and not problem_with_filter(each.channel)
    ]
