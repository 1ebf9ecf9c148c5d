"""The archive's part of a query: files and conditions as one Spark job, with an Arrow result.

A job costs tens of milliseconds whatever it does, so each chunk takes exactly one: files are given
by name with their schema; nothing is listed, inferred or counted.

Rows much longer than usual are returned without their contents, which are fetched by offset, a page
at a time. So neither Java nor this process ever holds a chunk of large payloads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from accord.pipeline.attributes import TYPES
from accord.pipeline.columns import to_column
from accord.pipeline.datasets.losses import selects, shows
from accord.pipeline.query_checks import CheckedQuery
from accord.pipeline.scan_plan import RemainingQuery, ScanRange
from accord.pipeline.session import QUERY_POOL, is_connect, use_pool
from accord.pipeline.tables import FileEntry, by_declared, read_files
from accord.pipeline.tail import StaleError

_CONTENT_BYTES: Final = 32 << 20  # maximum per chunk
_FRAMES: Final = 64
_MISSING: Final = ("FILE_NOT_EXIST", "PATH_NOT_FOUND", "FileNotFoundException")
_MAX_NAMED: Final = 32  # channels listed in a condition instead of their filter
_POSITION: Final = ("received", "offset")
_COLUMNS: Final = ("offset", "number", "received", "channel", "publisher", "qos")
_SETTINGS: Final = {
    # Results are small: adaptive replanning between stages costs more than it gains.
    "spark.sql.adaptive.enabled": "false",
    # Constants differ in each query, so generated code would be compiled each time.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Above this number of paths Spark would list them with a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # Rows whose payloads are in memory at the same time.
    "spark.sql.parquet.columnarReaderBatchSize": "1024",
    # A second task would mean a second stage, and most of what is read is skipped anyway.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.session.timeZone": "UTC",
}


class ArchiveLookup:
    """Runs lookups in the archive; thread-safe."""

    def __init__(self, spark: SparkSession, archive: str) -> None:
        self.spark = spark if is_connect(spark) else spark.newSession()
        for name, value in _SETTINGS.items():
            self.spark.conf.set(name, value)
        # A session's own tags are known only to the thread that added them; Connect has no other
        # kind.
        tagging = self.spark if is_connect(spark) else spark.sparkContext
        self._add_tag = getattr(tagging, "addJobTag", self.spark.addTag)
        self._remove_tag = getattr(tagging, "removeJobTag", self.spark.removeTag)
        self._interrupt = getattr(tagging, "cancelJobsWithTag", self.spark.interruptTag)
        self._archive = archive
        self._frames: OrderedDict[tuple[str, ...], DataFrame] = OrderedDict()
        self._columns: OrderedDict[tuple[object, ...], Column] = OrderedDict()
        self._plentiful: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._lock = threading.Lock()

    def find(
        self, question: CheckedQuery, part: RemainingQuery, stretch: ScanRange, most: int
    ) -> pa.Table:
        """Return the first `most` rows of the scan range that match the query, in its order.

        Small results are sorted here, which spares Spark a stage. Spark sorts only large ones; a
        query that once had a large result uses Spark's sort from the start.
        """
        columns = (*_COLUMNS, *_contents(_CONTENT_BYTES // most))
        frame = self._select(question, part, stretch, columns)
        ask = question.query
        wanted = (ask.channel, ask.where, ask.xpath)  # whatever the time range
        is_selective = question.has_predicate or ask.number is not None
        if is_selective and wanted not in self._plentiful:
            rows = _collect(frame.limit(most + 1))
            if len(rows) <= most:
                return rows.sort_by(_order(question))
            with self._lock:
                self._plentiful[wanted] = None
                if len(self._plentiful) > _FRAMES:
                    self._plentiful.popitem(last=False)
        ascending = not question.is_newest_first
        return _collect(frame.orderBy(*_POSITION, ascending=ascending).limit(most))

    def counts(
        self, question: CheckedQuery, part: RemainingQuery, stretch: ScanRange, width_ms: int
    ) -> list[tuple[int, int]]:
        """How many rows of the scan range match, by time of receipt divided by `width_ms`."""
        frame = self._select(
            question, part, stretch, [f"unix_millis(received) div {width_ms} AS at"]
        )
        found = _collect(frame.groupBy("at").count())
        return list(zip(found["at"].to_pylist(), found["count"].to_pylist(), strict=True))

    def _select(
        self,
        question: CheckedQuery,
        part: RemainingQuery,
        stretch: ScanRange,
        columns: Sequence[str],
    ) -> DataFrame:
        place = conditions(question, part, stretch)
        frames = []
        for declared, files in by_declared(stretch.files):
            named = _named_channels(question, files)
            condition = F.expr(f"{place} AND {named}" if named else place)
            if named is None:
                condition &= shows(question.query.channel)
                for pattern in question.query.without:
                    condition &= ~selects(pattern)
            if question.has_predicate:
                condition &= self._content(question, declared)
            frames.append(self._frame(files).where(condition).selectExpr(*columns))
        return reduce(DataFrame.union, frames)

    def _content(self, question: CheckedQuery, declared: dict[str, str]) -> Column:
        key = (question.query.where, question.query.xpath, *sorted(declared.items()))
        with self._lock:
            column = self._columns.get(key)
        if column is None:
            kinds = {name: TYPES[kind] for name, kind in declared.items()}
            column = to_column(question.predicate, kinds)
            with self._lock:
                self._columns[key] = column
                if len(self._columns) > _FRAMES:
                    self._columns.popitem(last=False)
        return column

    def contents(self, files: Sequence[FileEntry], offsets: Sequence[int]) -> pa.Table:
        """Return properties and payloads of these rows, in any order."""
        chosen = [
            file
            for file in files
            if any(file.first_offset <= offset <= file.last_offset for offset in offsets)
        ]
        listed = ", ".join(map(str, offsets))
        frames = [
            self._frame(each)
            .where(f"offset IN ({listed})")
            .select("offset", "properties", "payload", "payload_ref")
            for _, each in by_declared(chosen)
        ]
        return _collect(reduce(DataFrame.union, frames))

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

    def _frame(self, files: Sequence[FileEntry]) -> DataFrame:
        key = tuple(file.path for file in files)
        with self._lock:
            frame = self._frames.get(key)
            if frame is not None:
                self._frames.move_to_end(key)
                return frame
        with _missing_is_stale():
            frame = read_files(self.spark, self._archive, files)
        with self._lock:
            self._frames[key] = frame
            if len(self._frames) > _FRAMES:
                self._frames.popitem(last=False)
        return frame


def _order(question: CheckedQuery) -> list[tuple[str, str]]:
    direction = "descending" if question.is_newest_first else "ascending"
    return [(name, direction) for name in _POSITION]


def _collect(frame: DataFrame) -> pa.Table:
    with _missing_is_stale():
        return frame.toArrow()


@contextmanager
def _missing_is_stale() -> Iterator[None]:
    """Raise StaleError for missing files: the manifest names the files that replaced them."""
    try:
        yield
    except Exception as error:
        if any(sign in str(error) for sign in _MISSING):
            raise StaleError from error
        raise


def conditions(question: CheckedQuery, part: RemainingQuery, stretch: ScanRange) -> str:
    """Offset and time conditions as SQL."""
    low, high = _time(stretch.low_ms), _time(stretch.high_ms)
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


def _named_channels(question: CheckedQuery, files: Sequence[FileEntry]) -> str | None:
    """Condition on channels by name, as SQL, so that parts of files can be skipped.

    Empty if all channels are selected, None if they can't be listed.
    """
    channels: set[str] = set()
    for file in files:
        if file.channels is None:
            return f"channel = {_text(question.query.channel)}" if question.is_exact else None
        channels.update(file.channels)
    selected = sorted(filter(question.selects, channels))
    if len(selected) == len(channels):
        return ""
    if len(selected) > _MAX_NAMED:
        return None
    if not selected:
        return "false"
    return f"channel IN ({', '.join(map(_text, selected))})"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _contents(limit: int) -> tuple[str, ...]:
    """Columns that may be large; null from `limit` on."""
    return (
        "octet_length(properties) AS properties_bytes",
        "payload_bytes",
        f"CASE WHEN octet_length(properties) < {limit} THEN properties END AS properties",
        f"CASE WHEN payload_bytes < {limit} THEN payload END AS payload",
        "payload_ref",
    )
