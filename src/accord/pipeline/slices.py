"""Stream source `accord_slices`: a journal in ranges of offsets, each archived where it is read.

A task that reads a slice of the journal writes it to archive files directly; what it yields, and
all that flows through Spark, is the list of these files. No event passes through Java, and each
task takes one Python process, not two. The files are not part of the archive until the driver has
committed them (`archive_job`), so reading a slice twice does no harm.

The stream starts at the archive's end. Its checkpoint is only needed by the running query, and
losing it loses nothing: the manifest holds the archived offset.

A batch costs much the same for one record as for ten thousand. If few are new and the last batch
was recent, the stream waits for more, up to `patience_ms`.

Writes a slice of a journal to files of the archive: read, decoded and written here, by pyarrow.

Files are durable when a slice is done, but become part of the tables only by a manifest commit. A
slice archived again writes new files, and large payloads to the same path, so leftovers of a crash
are harmless. Memory is bounded: buffered rows are written at a size limit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from accord.journal.ledger_records import LedgerRecord, encode_ledger
from accord.journal.reader import Retired
from accord.journal.record import Batch
from accord.pipeline.durable_files import make_directory, replace
from accord.pipeline.files import write_file
from accord.pipeline.journal_readers import (
    check_extent,
    estimate_bytes,
    offset_within,
    open_journal,
    split,
)
from accord.pipeline.manifest import Manifest
from accord.pipeline.rows import columns_of, ledger_columns
from accord.pipeline.scan import UNREADABLE, ScannedEvents, scan
from accord.pipeline.tables import (
    EVENTS,
    LEDGER,
    LOST,
    MAX_GROUPS,
    OTHER,
    UNREAD,
    FileEntry,
    TablesError,
    check_declared,
    payload_ref,
    safe_name,
)

_CHUNK_RECORDS: Final = 20_000
_CHUNK_BYTES: Final = 16 << 20
_HELD_BYTES: Final = 64 << 20  # of rows, before they are written
_log: Final = logging.getLogger(__name__)


class SliceJob(msgspec.Struct, frozen=True, kw_only=True):
    """The records to archive: the journal, a directory or a node's address, and the archive."""

    node: str
    journal: str
    first: int
    next: int
    archive: str
    declared: dict[str, str] = {}
    large_bytes: int = 1 << 20


def write_slice(job: SliceJob) -> list[FileEntry]:
    """Return the files written, and what the journal no longer had (table LOST).

    TablesError if the journal ends before the slice does, JournalError if it can't be read.
    """
    check_declared(job.declared)
    return _Slice(job).run()


class _Slice:
    def __init__(self, job: SliceJob) -> None:
        self._job = job
        self._archive = Path(job.archive)
        self._events: list[pa.RecordBatch] = []
        self._ledger: list[pa.RecordBatch] = []
        self._entries: list[FileEntry] = []

    def run(self) -> list[FileEntry]:
        for chunk in _chunks(self._read()):
            self._take(chunk)
            if sum(rows.nbytes for rows in (*self._events, *self._ledger)) > _HELD_BYTES:
                self._write()
        self._write()
        return self._entries

    def _read(self) -> Iterator[Batch]:
        """Read the slice; missing records are noted."""
        job = self._job
        reader = open_journal(job.journal)
        at = job.first
        while at < job.next:
            before = at
            for found in reader.read(at, max_records=job.next - at):
                if isinstance(found, Batch):
                    yield found
                    at = found.end_offset
                elif isinstance(found, Retired):
                    at = min(job.next, found.first_available)
                    self._record_loss(found.offset, at, "retired before it was archived")
                else:
                    at = found.next_offset
                    self._record_loss(found.offset, at, f"{found.segment}: {found.why}")
            if at == before:
                problem = f"the journal {job.journal} ends at {at}"
                raise TablesError(f"{problem}, expected records up to {job.next}")

    def _record_loss(self, first: int, end: int, why: str) -> None:
        _log.warning(
            "journal: records %d to %d of %s lost: %s", first, end - 1, self._job.node, why
        )
        self._entries.append(
            FileEntry(
                table=LOST,
                path="",
                day="",
                rows=end - first,
                bytes=0,
                node=self._job.node,
                first_offset=first,
                last_offset=end - 1,
            )
        )

    def _take(self, chunk: list[Batch]) -> None:
        job = self._job
        records = scan(chunk)
        if len(records.events):
            refs = self._keep_large(records.events)
            self._events.append(columns_of(records.events, job.node, job.declared, refs=refs))
        for offset, raw in records.unread:
            self._keep_unread(offset, raw)
        try:
            self._add_ledger(records.ledger, records.ledger_offsets)
        except UNREADABLE:
            for record, offset in zip(records.ledger, records.ledger_offsets, strict=True):
                try:
                    self._add_ledger([record], [offset])
                except UNREADABLE:
                    self._keep_unread(offset, encode_ledger(record))

    def _add_ledger(self, records: list[LedgerRecord], offsets: list[int]) -> None:
        if records:
            self._ledger.append(ledger_columns(records, offsets, self._job.node))

    def _keep_large(self, events: ScannedEvents) -> dict[int, str]:
        """Write large payloads to files of their own, and return their paths."""
        places = events.payloads
        refs: dict[int, str] = {}
        for row in np.flatnonzero(places.ends - places.starts >= self._job.large_bytes).tolist():
            ref = payload_ref(
                self._job.node, int(events.offsets[row]), int(events.received_ms[row])
            )
            path = self._archive / ref
            make_directory(path.parent)
            replace(path, events.data[places.starts[row] : places.ends[row]])
            refs[row] = ref
        return refs

    def _keep_unread(self, offset: int, raw: bytes) -> None:
        _log.warning("journal: record %d of %s is neither event nor ledger", offset, self._job.node)
        folder = self._archive / UNREAD
        make_directory(folder)
        replace(folder / f"{safe_name(self._job.node)}-{offset}", raw)

    def _write(self) -> None:
        job = self._job
        for table, batches in ((EVENTS, self._events), (LEDGER, self._ledger)):
            if not batches:
                continue
            rows = pa.Table.from_batches(batches)
            batches.clear()
            for day, group, part in _parts(rows, has_groups=table == EVENTS):
                self._entries.append(
                    write_file(
                        self._archive,
                        part,
                        table=table,
                        day=day,
                        group=group,
                        node=job.node,
                        declared=job.declared if table == EVENTS else {},
                    )
                )


def _chunks(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Groups of batches, of the best size for conversion."""
    chunk: list[Batch] = []
    records = size = 0
    for batch in batches:
        chunk.append(batch)
        records += batch.count
        size += sum(batch.lengths)
        if records >= _CHUNK_RECORDS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, records, size = [], 0, 0
    if chunk:
        yield chunk


def _parts(rows: pa.Table, *, has_groups: bool) -> Iterator[tuple[str, str, pa.Table]]:
    """The rows of each day and channel group, in their original order."""
    days = rows["day"].combine_chunks().dictionary_encode()
    which = days.indices.to_numpy().astype(np.int64)
    names = [""]
    if has_groups:
        groups = rows["group"].combine_chunks().dictionary_encode()
        names = groups.dictionary.to_pylist()
        group_of_row = groups.indices.to_numpy()
        if len(names) > MAX_GROUPS:
            names = [*names[: MAX_GROUPS - 1], OTHER]
            group_of_row = np.minimum(group_of_row, MAX_GROUPS - 1)
            column = pa.array(names).take(pa.array(group_of_row))
            rows = rows.set_column(rows.schema.get_field_index("group"), "group", column)
        which = which * len(names) + group_of_row
    order = np.argsort(which, kind="stable")
    parts, starts = np.unique(which[order], return_index=True)
    if len(parts) > 1:
        rows = rows.take(pa.array(order))
    for part, start, end in zip(parts, starts, (*starts[1:], len(order)), strict=True):
        day = days.dictionary[int(part) // len(names)].as_py()
        yield day.isoformat(), names[int(part) % len(names)], rows.slice(start, end - start)


FORMAT: Final = "accord_slices"
SCHEMA: Final = "first long, next long, entries binary"
_OFFSET: Final = "offset"


class SliceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Journal, archive, and how to split the work.

    `declared`, `large_bytes`: as in `slice_writer.SliceJob`. `max_rows`, `max_bytes`: approximate
    size of one batch. `pieces`: maximum number of slices of a batch; none has fewer than
    `piece_rows` records, unless it has `piece_bytes`. `few_rows`, `patience_ms`: a smaller batch
    waits, for this long since the last batch.
    """

    node: str
    journal: str
    archive: str
    declared: dict[str, str] = {}
    large_bytes: int = 1 << 20
    max_rows: int = 400_000
    max_bytes: int = 256 << 20
    pieces: int = 4
    piece_rows: int = 20_000
    piece_bytes: int = 16 << 20
    few_rows: int = 200
    patience_ms: int = 2_000

    def to_spark(self) -> dict[str, str]:
        """As options of a data source, which are strings with case-insensitive names."""
        fields = msgspec.structs.asdict(self)
        fields["declared"] = msgspec.json.encode(self.declared).decode()
        return {name: str(value) for name, value in fields.items()}

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> SliceOptions:
        named: dict[str, Any] = {
            name: options[name] for name in cls.__struct_fields__ if name in options
        }
        named["declared"] = msgspec.json.decode(named.get("declared", "{}"))
        return msgspec.convert(named, cls, strict=False)


@dataclass(frozen=True)
class Slice(InputPartition):
    """Records from `first` up to `next`."""

    first: int
    next: int


class SlicesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in a process of its own beside the driver, as long as the query."""

    def __init__(
        self, options: SliceOptions, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock_s = clock_s
        self._last_s: float | None = None
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        archived = Manifest(self._options.archive).snapshot().archived
        return {_OFFSET: archived.get(self._options.node, 0)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = open_journal(self._options.journal).extent().next_offset

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        options = self._options
        first = start[_OFFSET]
        journal = open_journal(options.journal)
        extent = journal.extent()
        check_extent(extent, options.journal, first, options.node)
        end = extent.next_offset if self._target is None else max(first, self._target)
        if end == first or self._should_wait(end - first):
            return start
        if isinstance(limit, ReadMaxRows):
            here = max(first, extent.first_offset)
            end = min(end, here + limit.max_rows)
            sizes = journal.sizes(extent)
            end = min(end, offset_within(sizes, here, extent.next_offset, options.max_bytes))
        self._last_s = self._clock_s()
        return {_OFFSET: end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Slice]:
        options = self._options
        journal = open_journal(options.journal)
        extent = journal.extent()
        first, next_ = start[_OFFSET], end[_OFFSET]
        if first < extent.first_offset:  # retired: the rest starts later
            first = min(extent.first_offset, next_)
        bytes_ = estimate_bytes(journal.sizes(extent), first, next_, extent.next_offset)
        pieces = max((next_ - first) // options.piece_rows, bytes_ // options.piece_bytes)
        cuts = split(first, next_, min(pieces, options.pieces)) if first < next_ else []
        return [Slice(*cut) for cut in cuts]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, bytes]]:
        assert isinstance(partition, Slice)
        options = self._options
        job = SliceJob(
            node=options.node,
            journal=options.journal,
            first=partition.first,
            next=partition.next,
            archive=options.archive,
            declared=options.declared,
            large_bytes=options.large_bytes,
        )
        yield partition.first, partition.next, encode_entries(write_slice(job))

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the archive job notifies the journal itself, right after its own commit."""

    def stop(self) -> None:
        pass

    def _should_wait(self, new: int) -> bool:
        if self._target is not None or self._last_s is None or new >= self._options.few_rows:
            return False
        return self._clock_s() - self._last_s < self._options.patience_ms / 1000


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(list[FileEntry])


def encode_entries(entries: list[FileEntry]) -> bytes:
    return _encode(entries)


def decode_entries(encoded: bytes) -> list[FileEntry]:
    return _decoder.decode(encoded)


class SlicesSource(DataSource):
    """`spark.readStream.format("accord_slices")`, with the fields of SliceOptions as options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> SlicesReader:  # noqa: ARG002, N802
        options: Any = self.options
        return SlicesReader(SliceOptions.from_spark(options))
