"""Stream source `accord_slices`: a journal in ranges of offsets, each archived where it is read.

A task that reads a slice of the journal writes it to archive files directly; what it yields, and
all that flows through Spark, is the list of these files. No event passes through Java, and each
task takes one Python process, not two. The files are not part of the archive until the driver has
committed them (`archive_batch`), so reading a slice twice does no harm.

The stream starts at the archive's end. Its checkpoint is only needed by the running query, and
losing it loses nothing: the manifest holds the archived offset.

A batch costs much the same for one record as for ten thousand. If few are new and the last batch
was recent, the stream waits for more, up to `patience_ms`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from accord.pipeline.journal_readers import (
    check_extent,
    estimate_bytes,
    offset_within,
    open_journal,
    split,
)
from accord.pipeline.manifest import Manifest
from accord.pipeline.slice_writer import SliceJob, write_slice
from accord.pipeline.tables import FileEntry

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
