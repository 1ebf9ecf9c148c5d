"""Format `accord`: journals as tables and streams, and rows published as events.

    spark.read.format("accord").load("accord-data/journal")                a directory
    spark.read.format("accord").load("https://user:password@host:8080")    a node, over HTTP
    spark.readStream.format("accord").option("journals", '{"a": "…", "b": "…"}').load()
    rows.writeStream.format("accord").option("url", "mqtt://localhost").start()

Options are those of `source_options.ReadOptions` and `spark_sink.WriteOptions`; with the option
`archive` those of `journal_source.SliceOptions`, which the archive job alone uses. A stream's
offset holds one journal offset per node; its progress is kept in the checkpoint. A task reads a
range of offsets of one journal; rows are returned as Arrow.

Row filters of the source: from its options, and pushed down by Spark.

Rows that are ruled out are not fully decoded. Spark still evaluates its conditions itself, so one
may be ignored here, but a row it would keep is never dropped. Offsets narrow the range that is
read; the rest is checked per event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from operator import eq, ge, gt, le, lt
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from accord.core.model.channels import filter_selects
from accord.journal.errors import JournalError
from accord.journal.events import KeptEvent
from accord.journal.reader import Extent, ReadResult, Retired
from accord.journal.record import MAX_OFFSET, Batch
from accord.pipeline.decode.rows import decode_batch, event_columns, ledger_columns
from accord.pipeline.journal_readers import JournalReader, is_remote, offset_within, open_journal
from accord.pipeline.journal_source import SCHEMA, SliceOptions, SlicesReader
from accord.pipeline.remote_journal import RemoteReader
from accord.pipeline.source_options import DEFAULT_NODE, ReadOptions
from accord.pipeline.spark_sink import EventStreamWriter, EventWriter, WriteOptions
from accord.pipeline.tables import EVENTS

Test = Callable[[KeptEvent], bool]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARE: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: eq,
    EqualNullSafe: eq,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
    LessThan: lt,
    LessThanOrEqual: le,
}
_FIELDS: Final[dict[str, tuple[type, Callable[[KeptEvent], Any]]]] = {
    "number": (int, lambda event: event.number),
    "channel": (str, lambda event: event.channel),
    "publisher": (str, lambda event: event.publisher),
    "received": (datetime, lambda event: event.received_ms * 1000),
    "qos": (int, lambda event: event.qos),
    "payload_bytes": (int, lambda event: len(event.payload)),
}


class RowFilters:
    """The range to read and the rows to keep; picklable, as tasks receive it."""

    def __init__(self) -> None:
        self.first = 0
        self.end = MAX_OFFSET
        self.nodes: frozenset[str] | None = None
        self._kept: list[Filter] = []

    def add(self, filters: Iterable[Filter]) -> None:
        for each in filters:
            name = ".".join(getattr(each, "attribute", ()))
            if name == "offset":
                self._narrow(each)
            elif name == "node":
                self._narrow_nodes(each)
            elif name in _FIELDS and _test(each) is not None:
                self._kept.append(each)

    def test(self, options: ReadOptions) -> Test | None:
        """The test for an event; None if all pass."""
        tests = [test for each in self._kept if (test := _test(each)) is not None]
        since_ms, until_ms, channel = options.since_ms, options.until_ms, options.channel
        if since_ms is not None:
            tests.append(lambda event: event.received_ms >= since_ms)
        if until_ms is not None:
            tests.append(lambda event: event.received_ms < until_ms)
        if channel is not None and channel != "#":
            is_selected = lru_cache(maxsize=10_000)(partial(filter_selects, channel))
            tests.append(lambda event: is_selected(event.channel))
        if len(tests) < 2:
            return tests[0] if tests else None
        return lambda event: all(test(event) for test in tests)

    def _narrow(self, each: Filter) -> None:
        value = getattr(each, "value", None)
        if isinstance(each, In):
            offsets = [offset for offset in each.value if isinstance(offset, int)]
            first, end = (min(offsets), max(offsets) + 1) if offsets else (0, 0)
        elif not isinstance(value, int):
            return
        elif isinstance(each, EqualTo | EqualNullSafe):
            first, end = value, value + 1
        elif isinstance(each, GreaterThan | GreaterThanOrEqual):
            first, end = value + isinstance(each, GreaterThan), MAX_OFFSET
        elif isinstance(each, LessThan | LessThanOrEqual):
            first, end = 0, value + isinstance(each, LessThanOrEqual)
        else:
            return
        self.first, self.end = max(self.first, first), min(self.end, end)

    def _narrow_nodes(self, each: Filter) -> None:
        if isinstance(each, In):
            nodes = frozenset(node for node in each.value if isinstance(node, str))
        elif isinstance(each, EqualTo | EqualNullSafe) and isinstance(each.value, str):
            nodes = frozenset([each.value])
        else:
            return
        self.nodes = nodes if self.nodes is None else self.nodes & nodes


def _test(each: Filter) -> Test | None:
    kind, get = _FIELDS[each.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(each, In):
        members = frozenset(_plain(value, kind) for value in each.value) - {None}
        return lambda event: get(event) in members
    value = _plain(getattr(each, "value", None), kind)
    if value is None:
        return None
    if isinstance(each, StringStartsWith):
        return lambda event: get(event).startswith(value)
    compare = _COMPARE.get(type(each))
    return None if compare is None else lambda event: compare(get(event), value)


def _plain(value: Any, kind: type) -> Any:
    """The value in the field's type, or None if they do not compare."""
    if kind is datetime and isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value if type(value) is kind and kind is not datetime else None


FORMAT: Final = "accord"
MAX_TASKS: Final = 4_000
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 << 20


def register_format(spark: SparkSession) -> None:
    spark.dataSource.register(AccordSource)


class AccordSource(DataSource):
    """`spark.read.format("accord")` and the other three; see above."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType | str:
        return SCHEMA if self._is_archiving else self._read_options().schema()

    def reader(self, schema: StructType) -> JournalsReader:
        options = self._read_options()
        return (PushedReader if options.is_pushed else JournalsReader)(options, schema)

    def streamReader(  # noqa: N802
        self, schema: StructType
    ) -> JournalsStreamReader | SlicesReader:
        if self._is_archiving:
            options: Any = self.options
            return SlicesReader(SliceOptions.from_spark(options))
        return JournalsStreamReader(self._read_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> EventWriter:  # noqa: ARG002
        return EventWriter(self._write_options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> EventStreamWriter:  # noqa: ARG002, N802
        return EventStreamWriter(self._write_options(), schema)

    @property
    def _is_archiving(self) -> bool:
        """Whether tasks archive what they read, instead of returning it: of the archive job."""
        return "archive" in self.options

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
    location: str
    first: int
    next: int


class _Journals:
    """Common base of the batch and stream readers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = frozenset(schema.fieldNames())
        self.filters = RowFilters()

    def locations(self) -> dict[str, str]:
        """Locations by node name; a single node is asked for its name."""
        return {name or _name_of(place): place for name, place in self.options.journals.items()}

    def pieces(self, node: str, place: str, first: int, end: int) -> list[JournalPartition]:
        """Split into tasks according to size, up to a limit."""
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
        journal = open_journal(partition.location)
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
                        piece.node, piece.location, found.first_available, piece.next
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
        place = piece.location.rpartition("@")[2]  # without the password
        return JournalError(problem, location=place)


class JournalsReader(_Journals, DataSourceReader):
    """Batch reader: everything present at planning time."""

    def partitions(self) -> list[JournalPartition]:
        pieces: list[JournalPartition] = []
        for node, place in self.locations().items():
            if self.filters.nodes is not None and node not in self.filters.nodes:
                continue
            first = self.options.from_offset
            if first is None:
                first = open_journal(place).extent().first_offset
            pieces += self.pieces(node, place, first, self.options.before_offset)
        # Spark would treat an empty list as a single partition to read.
        return pieces or [JournalPartition("", "", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, JournalPartition)
        return super().read(partition) if partition.location else iter(())


class PushedReader(JournalsReader):
    """Batch reader with filter pushdown; opt-in.

    Spark 4.3 stores the filters pushed down for one query with the table, so the next query on the
    same DataFrame, or the other side of a self-join, is answered with them too: rows are missing.
    It is correct for a DataFrame that is used once. The options `channel`, `since`, `until` and
    those for offsets also read less, and are always correct. Needs the setting
    spark.sql.python.filterPushdown.enabled.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self.filters.add(filters)
        return filters


class JournalsStreamReader(_Journals, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of several journals, none of which can starve the others."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._targets: dict[str, int] | None = None
        self._names: dict[str, str] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {node: self._first(place) for node, place in self._locations().items()}

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
        # Max-min fair shares: small backlogs are read completely, the others share the rest.
        for number, (rows, node) in enumerate(sorted(waiting)):
            if left is not None:
                rows = min(rows, left // (len(waiting) - number))  # noqa: PLW2901
                left -= max(0, rows)
            latest[node] = self._start(node, start) + max(0, rows)
        return latest

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[JournalPartition]:
        pieces: list[JournalPartition] = []
        places = self._locations()
        for node in [node for node in end if node in places]:
            first = self._start(node, start)
            pieces += self.pieces(node, places[node], first, end[node])
        return pieces

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: a journal's retention does not depend on streams."""

    def stop(self) -> None:
        pass

    def _locations(self) -> dict[str, str]:
        if self._names is None:
            self._names = self.locations()
        return self._names

    def _ends(self) -> dict[str, int]:
        before = self.options.before_offset
        return {
            node: min(before, open_journal(place).extent().next_offset)
            for node, place in self._locations().items()
        }

    def _start(self, node: str, start: dict[str, int]) -> int:
        """Start offset; a journal added after the stream started is read like the others."""
        return start[node] if node in start else self._first(self._locations()[node])

    def _first(self, place: str) -> int:
        if self.options.from_offset is not None:
            return self.options.from_offset
        extent = open_journal(place).extent()
        return extent.next_offset if self.options.is_latest else extent.first_offset


def _name_of(place: str) -> str:
    return RemoteReader(place).node() if is_remote(place) else DEFAULT_NODE
