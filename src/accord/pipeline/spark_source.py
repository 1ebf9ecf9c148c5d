"""Format `accord`: journals as tables and streams, and rows published as events.

    spark.read.format("accord").load("accord-data/journal")                a folder
    spark.read.format("accord").load("https://user:password@host:8080")    a node, over HTTP
    spark.readStream.format("accord").option("journals", '{"a": "…", "b": "…"}').load()
    rows.writeStream.format("accord").option("url", "mqtt://localhost").start()

Options are those of `source_options.ReadOptions` and `writing.WriteOptions`. A stream's offset is
that of each node's journal; what it has passed is up to its checkpoint. A task reads a range of
offsets of one journal; rows come as Arrow.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from accord.journal.errors import JournalError
from accord.journal.reader import Extent, ReadResult, Retired
from accord.journal.record import Batch
from accord.pipeline.journal_readers import JournalReader, is_remote, offset_within, open_journal
from accord.pipeline.remote_journal import RemoteReader
from accord.pipeline.row_filters import RowFilters
from accord.pipeline.rows import decode_batch, event_columns, ledger_columns
from accord.pipeline.slices import SlicesSource
from accord.pipeline.source_options import DEFAULT_NODE, ReadOptions
from accord.pipeline.spark_sink import EventStreamWriter, EventWriter, WriteOptions
from accord.pipeline.tables import EVENTS

FORMAT: Final = "accord"
MAX_TASKS: Final = 4_000
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 << 20


def register_formats(spark: SparkSession) -> None:
    spark.dataSource.register(AccordSource)
    spark.dataSource.register(SlicesSource)


class AccordSource(DataSource):
    """`spark.read.format("accord")` and the other three; see above."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return self._read_options().schema()

    def reader(self, schema: StructType) -> JournalsReader:
        options = self._read_options()
        return (PushedReader if options.is_pushed else JournalsReader)(options, schema)

    def streamReader(self, schema: StructType) -> JournalsStreamReader:  # noqa: N802
        return JournalsStreamReader(self._read_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> EventWriter:  # noqa: ARG002
        return EventWriter(self._write_options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> EventStreamWriter:  # noqa: ARG002, N802
        return EventStreamWriter(self._write_options(), schema)

    def _read_options(self) -> ReadOptions:
        options: Any = self.options
        return ReadOptions.of(options, now_ms=time.time_ns() // 1_000_000)

    def _write_options(self) -> WriteOptions:
        options: Any = self.options
        return WriteOptions.of(options)


@dataclass(frozen=True)
class JournalPartition(InputPartition):
    """Records of a node's journal from `first` up to `next`."""

    node: str
    place: str
    first: int
    next: int


class _Journals:
    """What reading once and reading on have in common."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = frozenset(schema.fieldNames())
        self.filters = RowFilters()

    def places(self) -> dict[str, str]:
        """By the node's name, which a node of its own tells itself."""
        return {name or _name_of(place): place for name, place in self.options.journals.items()}

    def pieces(self, node: str, place: str, first: int, end: int) -> list[JournalPartition]:
        """As many tasks as the amount is worth, and not too many."""
        options = self.options
        journal = open_journal(place)
        extent = journal.extent()
        first, end = self._bounds(extent, first, end)
        sizes = journal.sizes(extent)
        rows = max(options.piece_rows, (end - first) // MAX_TASKS + 1)
        bytes_ = max(options.piece_bytes, sum(size for _, size in sizes) // MAX_TASKS)
        pieces = []
        while first < end:
            there = min(end, first + rows, offset_within(sizes, first, extent.next_offset, bytes_))
            pieces.append(JournalPartition(node, place, first, there))
            first = there
        return pieces

    def _bounds(self, extent: Extent, first: int, end: int) -> tuple[int, int]:
        filters = self.filters
        first = max(first, self.options.from_offset or 0, filters.first)
        if not self.options.is_strict:
            first = max(first, extent.first_offset)
        end = min(end, self.options.before_offset, filters.end, extent.next_offset)
        return first, end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, JournalPartition)
        journal = open_journal(partition.place)
        if self.options.table == EVENTS:
            return self._events(partition, journal)
        return self._ledger(partition, journal)

    def _events(self, piece: JournalPartition, journal: JournalReader) -> Iterator[pa.RecordBatch]:
        is_wanted = self.filters.test(self.options)
        declared = self.options.declared
        events: list[Any] = []
        offsets: list[int] = []
        size = 0
        for batch in self._batches(piece, journal):
            decoded = decode_batch(batch)
            pairs: Iterable[tuple[Any, int]] = zip(
                decoded.events, decoded.event_offsets, strict=True
            )
            for event, offset in pairs:
                if is_wanted is not None and not is_wanted(event):
                    continue
                events.append(event)
                offsets.append(offset)
                size += len(event.payload) + len(event.attributes)
                if len(events) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield event_columns(events, offsets, piece.node, declared, self.columns)
                    events, offsets, size = [], [], 0
        if events:
            yield event_columns(events, offsets, piece.node, declared, self.columns)

    def _ledger(self, piece: JournalPartition, journal: JournalReader) -> Iterator[pa.RecordBatch]:
        for batch in self._batches(piece, journal):
            decoded = decode_batch(batch)
            if decoded.ledger:
                yield ledger_columns(
                    decoded.ledger, decoded.ledger_offsets, piece.node, self.columns
                )

    def _batches(self, piece: JournalPartition, journal: JournalReader) -> Iterator[Batch]:
        for found in journal.read(piece.first, max_records=piece.next - piece.first):
            if isinstance(found, Batch):
                yield found
            elif isinstance(found, Retired):
                if self.options.is_strict:
                    raise self._loss(found, piece)
                if found.first_available < piece.next:
                    left = JournalPartition(
                        piece.node, piece.place, found.first_available, piece.next
                    )
                    yield from self._batches(left, journal)
                return
            elif self.options.is_strict:
                raise self._loss(found, piece)

    def _loss(self, found: ReadResult, piece: JournalPartition) -> JournalError:
        remedy = "; with the option failOnLoss=false they are passed over"
        if isinstance(found, Retired):
            problem = f"records {found.offset} to {found.first_available} were retired{remedy}"
        else:
            assert not isinstance(found, Batch)
            problem = f"records {found.offset} to {found.next_offset}: {found.why}{remedy}"
        place = piece.place.rpartition("@")[2]  # without a password
        return JournalError(problem, place=place)


class JournalsReader(_Journals, DataSourceReader):
    """All there is when it is planned."""

    def partitions(self) -> list[JournalPartition]:
        pieces: list[JournalPartition] = []
        for node, place in self.places().items():
            if self.filters.nodes is not None and node not in self.filters.nodes:
                continue
            first = self.options.from_offset
            if first is None:
                first = open_journal(place).extent().first_offset
            pieces += self.pieces(node, place, first, self.options.before_offset)
        # Spark takes no piece at all for one that it must read.
        return pieces or [JournalPartition("", "", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, JournalPartition)
        return super().read(partition) if partition.place else iter(())


class PushedReader(JournalsReader):
    """Makes use of a query's conditions; only where a user asks for it.

    Spark 4.3 notes with the table what was pushed down for one query, and the next query on the
    same DataFrame, or the other side of a join with itself, is then answered from that: rows are
    missing. It is right for a DataFrame that is used once. The options `channel`, `since`, `until`
    and those for offsets read less too, and are always right. Needs the setting
    spark.sql.python.filterPushdown.enabled.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.filters.add(filters)
        return filters


class JournalsStreamReader(_Journals, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes, journal by journal: no one of them can keep the others waiting."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._targets: dict[str, int] | None = None
        self._names: dict[str, str] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {node: self._first(place) for node, place in self._places().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._targets = self._ends()

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return self._ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        ends = self._ends() if self._targets is None else self._targets
        latest = dict(start)
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        waiting = [(end - self._start(node, start), node) for node, end in ends.items()]
        # Who has little gets all of it, who has much what is left: in equal parts.
        for number, (rows, node) in enumerate(sorted(waiting)):
            if left is not None:
                rows = min(rows, left // (len(waiting) - number))  # noqa: PLW2901
                left -= max(0, rows)
            latest[node] = self._start(node, start) + max(0, rows)
        return latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[JournalPartition]:
        pieces: list[JournalPartition] = []
        places = self._places()
        for node in [node for node in end if node in places]:
            first = self._start(node, start)
            pieces += self.pieces(node, places[node], first, end[node])
        return pieces

    def commit(self, end: dict[str, int]) -> None:
        """A journal keeps what its retention says, not what a stream may want again."""

    def stop(self) -> None:
        pass

    def _places(self) -> dict[str, str]:
        if self._names is None:
            self._names = self.places()
        return self._names

    def _ends(self) -> dict[str, int]:
        before = self.options.before_offset
        return {
            node: min(before, open_journal(place).extent().next_offset)
            for node, place in self._places().items()
        }

    def _start(self, node: str, start: dict[str, int]) -> int:
        """A journal that was added after the stream began is read like the others."""
        return start[node] if node in start else self._first(self._places()[node])

    def _first(self, place: str) -> int:
        if self.options.from_offset is not None:
            return self.options.from_offset
        extent = open_journal(place).extent()
        return extent.next_offset if self.options.is_latest else extent.first_offset


def _name_of(place: str) -> str:
    return RemoteReader(place).node() if is_remote(place) else DEFAULT_NODE
