"""The archive read by Spark: for large questions.

Each lookup is one job over files given by name with their schema; nothing is listed, inferred or
counted. Predicates are Spark's own expressions with the meaning of `core.predicates`
(`spark_predicate`), so that no row passes through Python.

Rows much longer than usual are returned without their contents, which are fetched by offset, a page
at a time. So neither Java nor this process ever holds a chunk of large payloads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from accord.core.queries.messages import EngineName
from accord.pipeline import spark_tables
from accord.pipeline.data_skipping import channel_range, complete_columns
from accord.pipeline.datasets.losses import selects, shows
from accord.pipeline.delta_log import TableSnapshot
from accord.pipeline.query.checks import CheckedQuery
from accord.pipeline.query.chunks import times_ms
from accord.pipeline.query.engine import (
    CONTENTS,
    OUTCOME,
    POSITION,
    Check,
    FoundRows,
    Lookup,
    StaleError,
    is_missing,
)
from accord.pipeline.query.scan_ranges import SortRank, rank_of
from accord.pipeline.query.spark_predicate import to_column
from accord.pipeline.session import QUERY_POOL, is_connect, use_pool
from accord.pipeline.storage import Storage
from accord.pipeline.tables import Columns, TableFile

_CONTENT_BYTES: Final = 32 << 20  # maximum per chunk
_FRAMES: Final = 64
_COLUMNS: Final = ("received", "offset", "number", "channel", "publisher", "qos")
_SETTINGS: Final = {
    # Above this number of paths Spark would list them with a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # Rows whose payloads are in memory at the same time.
    "spark.sql.parquet.columnarReaderBatchSize": "1024",
    # A task for each file would cost more than what it reads.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.session.timeZone": "UTC",
}


class SparkEngine:
    """Answers lookups by Spark jobs; thread-safe."""

    name: EngineName = "spark"

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self.spark = spark if is_connect(spark) else spark.newSession()
        for name, value in _SETTINGS.items():
            self.spark.conf.set(name, value)
        # A session's own tags are known only to the thread that added them; Connect has no other
        # kind.
        tagging = self.spark if is_connect(spark) else spark.sparkContext
        self._add_tag = getattr(tagging, "addJobTag", self.spark.addTag)
        self._remove_tag = getattr(tagging, "removeJobTag", self.spark.removeTag)
        self._interrupt = getattr(tagging, "cancelJobsWithTag", self.spark.interruptTag)
        self._storage = storage
        self._frames: OrderedDict[tuple[object, ...], DataFrame] = OrderedDict()
        self._columns: OrderedDict[tuple[object, ...], Column] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, lookup: Lookup, most: int, check: Check) -> FoundRows:
        check()
        columns = (*_COLUMNS, *_contents(_CONTENT_BYTES // most))
        ascending = not lookup.question.is_newest_first
        rows = _collect(
            self._select(lookup, columns).orderBy(*POSITION, ascending=ascending).limit(most)
        )
        return FoundRows(rows, _last_rank(lookup.question, rows) if len(rows) == most else None)

    def counts(self, lookup: Lookup, width_ms: int, check: Check) -> list[tuple[int, int]]:
        check()
        frame = self._select(lookup, [f"unix_millis(received) div {width_ms} AS at"])
        found = _collect(frame.groupBy("at").count())
        return list(zip(found["at"].to_pylist(), found["count"].to_pylist(), strict=True))

    def contents(
        self,
        snapshot: TableSnapshot,
        node: str,
        files: Sequence[TableFile],
        offsets: Sequence[int],
        check: Check,
    ) -> pa.Table:
        check()
        chosen = [
            file
            for file in files
            if any(file.first_offset <= offset <= file.last_offset for offset in offsets)
        ]
        frame = self._frame(snapshot, chosen).where(F.col("offset").isin(list(offsets)))
        return _collect(frame.where(_of_node(node, chosen)).select(*CONTENTS))

    def outcomes(
        self,
        snapshot: TableSnapshot,
        node: str,
        files: Sequence[TableFile],
        number: int,
        most: int,
    ) -> pa.Table:
        with _missing_is_stale():
            frame = spark_tables.ledger(self.spark, self._storage, snapshot, files)
        found = frame.where(f"number > 0 AND number <= {number} AND number + count > {number}")
        return _collect(found.where(_of_node(node, files)).select(*OUTCOME).limit(most))

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Tag this thread's Spark jobs, so that `interrupt` can stop them."""
        use_pool(self.spark, QUERY_POOL)
        self._add_tag(tag)
        try:
            yield
        finally:
            with suppress(Exception):  # Java may have exited
                self._remove_tag(tag)

    def interrupt(self, tag: str) -> None:
        """Stop the jobs with this tag; callable from any thread."""
        with suppress(Exception):  # Java may have exited
            self._interrupt(tag)

    def _select(self, lookup: Lookup, columns: Sequence[str]) -> DataFrame:
        question, files = lookup.question, lookup.range.files
        condition = F.expr(conditions(lookup)) & _channels(question) & _of_node(lookup.node, files)
        if question.has_predicate:
            present = lookup.snapshot.columns
            condition &= self._content(question, present, complete_columns(files, present))
        return self._frame(lookup.snapshot, files).where(condition).selectExpr(*columns)

    def _content(
        self, question: CheckedQuery, columns: Columns, complete: frozenset[str]
    ) -> Column:
        key = (question.query.where, question.query.xpath, columns, complete)
        with self._lock:
            column = self._columns.get(key)
        if column is None:
            column = to_column(question.predicate, columns, complete)
            with self._lock:
                self._columns[key] = column
                if len(self._columns) > _FRAMES:
                    self._columns.popitem(last=False)
        return column

    def _frame(self, snapshot: TableSnapshot, files: Sequence[TableFile]) -> DataFrame:
        key = (snapshot.columns, *(file.path for file in files))
        with self._lock:
            frame = self._frames.get(key)
            if frame is not None:
                self._frames.move_to_end(key)
                return frame
        with _missing_is_stale():
            frame = spark_tables.events(self.spark, self._storage, snapshot, files)
        with self._lock:
            self._frames[key] = frame
            if len(self._frames) > _FRAMES:
                self._frames.popitem(last=False)
        return frame


def _last_rank(question: CheckedQuery, rows: pa.Table) -> SortRank:
    last = rows.slice(len(rows) - 1)
    place = times_ms(last["received"])[0], last["offset"][0].as_py()
    return rank_of(place, is_newest_first=question.is_newest_first)


def _collect(frame: DataFrame) -> pa.Table:
    with _missing_is_stale():
        return frame.toArrow()


@contextmanager
def _missing_is_stale() -> Iterator[None]:
    """Raise StaleError for missing files: a newer snapshot has those that replaced them."""
    try:
        yield
    except Exception as error:
        if is_missing(error):
            raise StaleError from error
        raise


def conditions(lookup: Lookup) -> str:
    """Offset and time conditions as SQL."""
    question, part = lookup.question, lookup.part
    low, high = _time(lookup.range.low_ms), _time(lookup.range.high_ms)
    found = [f"received >= {low}", f"received < {high}", f"offset < {part.before}"]
    if part.first:
        found.append(f"offset >= {part.first}")
    if question.query.number is not None:
        found.append(f"number = {question.query.number}")
    if part.after is not None:
        ms, offset = map(abs, part.after)
        sign = "<" if question.is_newest_first else ">"
        at = _time(ms)
        found.append(f"(received {sign} {at} OR (received = {at} AND offset {sign} {offset}))")
    return " AND ".join(found)


def _time(ms: int) -> str:
    return f"timestamp_millis({ms}L)"


def _of_node(node: str, files: Sequence[TableFile]) -> Column:
    if all(file.node == node for file in files):
        return F.lit(True)
    return F.col("node") == node


def _channels(question: CheckedQuery) -> Column:
    """Which channels are selected; by a range of names too, so that parts of files are skipped."""
    ask = question.query
    condition = shows(ask.channel)
    low, high = channel_range(ask.channel)
    if low and not question.is_exact:
        condition &= F.col("channel") >= low
    if high is not None and not question.is_exact:
        condition &= F.col("channel") < high
    for pattern in ask.without:
        condition &= ~selects(pattern)
    return condition


def _contents(limit: int) -> tuple[str, ...]:
    """Columns that may be large; null from `limit` on."""
    return (
        "octet_length(properties) AS properties_bytes",
        "payload_bytes",
        f"CASE WHEN octet_length(properties) < {limit} THEN properties END AS properties",
        f"CASE WHEN payload_bytes < {limit} THEN payload END AS payload",
        "payload_ref",
    )
