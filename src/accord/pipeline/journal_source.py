"""The format `accord` with the option `archive`: journals in slices, archived where they are read.

Its rows are what tasks have written (`journal_sink`), encoded; reading a slice twice does no harm,
because files are not part of the archive until the driver has committed them.

The stream starts at the archive's end. Its checkpoint is only needed by the running query, and
losing it loses nothing: the tables hold the archived offsets. If a crash has left one table ahead
of the other, the first batches end where the one ahead ends, so that each batch is in a table whole
or not at all.

A batch costs much the same for one record as for ten thousand. If few are new and the last batch
was recent, the stream waits for more, up to `patience_ms`. Several journals share a batch; one that
can't be reached leaves the others alone, as does one that answers late: its records are in a later
batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from accord.core.model.errors import AccordError
from accord.journal.reader import Extent
from accord.pipeline.delta_log import Archive
from accord.pipeline.journal_readers import (
    JournalReader,
    check_extent,
    estimate_bytes,
    offset_within,
    open_journal,
    split,
)
from accord.pipeline.journal_sink import SliceDone, SliceJob, write_slice
from accord.pipeline.tables import Columns

SCHEMA: Final = "done binary"
_LATE_S: Final = 1.0
_log: Final = logging.getLogger(__name__)
_encode: Final = msgspec.msgpack.Encoder().encode
_done: Final = msgspec.msgpack.Decoder(SliceDone)

Offsets = dict[str, int]  # by node


class SliceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Journals, archive, and how to split the work.

    `journals`: place of each node's journal. `columns`, `declared`, `large_bytes`: as in
    `SliceJob`. `max_rows`, `max_bytes`: approximate size of one batch. `pieces`: maximum number of
    slices of a journal; none has fewer than `piece_rows` records, unless it has `piece_bytes`.
    `few_rows`, `patience_ms`: a smaller batch waits, for this long since the last batch.
    """

    journals: dict[str, str]
    archive: str
    columns: Columns = ()
    declared: Columns = ()
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
        return {
            name: msgspec.json.encode(value).decode()
            for name, value in msgspec.structs.asdict(self).items()
        }

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> SliceOptions:
        named: dict[str, Any] = {
            name: msgspec.json.decode(options[name])
            for name in cls.__struct_fields__
            if name in options
        }
        return msgspec.convert(named, cls)


@dataclass(frozen=True)
class Slice(InputPartition):
    """Records of a node's journal from `first` up to `next`."""

    node: str
    first: int
    next: int


class _Extents:
    """The extents of all journals, looked up at the same time."""

    def __init__(self, journals: dict[str, JournalReader]) -> None:
        self._journals = journals
        self._threads = ThreadPoolExecutor(max(1, len(journals)), "extent")
        self._asked: dict[str, Future[Extent]] = {}

    def look_up(self) -> dict[str, Extent | Exception | None]:
        """The extent of each journal or why there is none; None if it is late."""
        for node, journal in self._journals.items():
            if node not in self._asked:
                self._asked[node] = self._threads.submit(journal.extent)
        wait(self._asked.values(), _LATE_S)
        found: dict[str, Extent | Exception | None] = dict.fromkeys(self._journals)
        for node, each in list(self._asked.items()):
            if each.done():
                del self._asked[node]
                error = each.exception()
                found[node] = error if isinstance(error, Exception) else each.result()
        return found


class SlicesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in a process of its own beside the driver, as long as the query."""

    def __init__(
        self, options: SliceOptions, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock_s = clock_s
        self._last_s: float | None = None
        self._target: Offsets | None = None
        self._ahead: Offsets = {}
        self._unreachable: set[str] = set()
        self._journals = {
            node: open_journal(place, node, is_patient=False)
            for node, place in options.journals.items()
        }
        self._many: _Extents | None = None

    def __reduce__(self) -> tuple[type[SlicesReader], tuple[SliceOptions]]:
        return SlicesReader, (self._options,)  # tasks only read

    def initialOffset(self) -> Offsets:  # noqa: N802
        archive = Archive(self._options.archive, tuple(self._options.journals))
        ends = {
            node: [table.archived(node) for table in archive.tables]
            for node in self._options.journals
        }
        self._ahead = {node: max(each) for node, each in ends.items()}
        return {node: min(each) for node, each in ends.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {
            node: journal.extent().next_offset for node, journal in self._journals.items()
        }

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        extents = self._extents()
        ends = {
            node: self._end(node, first, most, extents.get(node)) for node, first in start.items()
        }
        new = sum(there for _, there in ends.values()) - sum(start.values())
        if not new or self._should_wait(new):
            return start
        self._last_s = self._clock_s()
        return {node: end for node, (end, _) in ends.items()}

    def partitions(self, start: Offsets, end: Offsets) -> list[Slice]:
        return [
            each
            for node, first in start.items()
            if first < end[node]
            for each in self._slices(node, first, end[node])
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        assert isinstance(partition, Slice)
        options = self._options
        job = SliceJob(
            node=partition.node,
            journal=options.journals[partition.node],
            first=partition.first,
            next=partition.next,
            archive=options.archive,
            columns=options.columns,
            declared=options.declared,
            large_bytes=options.large_bytes,
        )
        yield (_encode(write_slice(job)),)

    def commit(self, end: Offsets) -> None:
        """Do nothing: the archive job notifies the journal itself, right after its own commit."""

    def stop(self) -> None:
        pass

    def _extents(self) -> dict[str, Extent | Exception | None]:
        journals = self._journals
        if len(journals) == 1:
            return {node: journal.extent() for node, journal in journals.items()}
        self._many = self._many or _Extents(journals)
        return self._many.look_up()

    def _end(
        self, node: str, first: int, most: int | None, extent: Extent | Exception | None
    ) -> tuple[int, int]:
        """How far the next batch goes into this journal, and how far any could."""
        options = self._options
        if not isinstance(extent, Extent):
            if isinstance(extent, AccordError | OSError):
                self._skip(node, extent)
            elif extent is not None:
                raise extent
            return first, first
        self._unreachable.discard(node)
        check_extent(extent, options.journals[node], first, node)
        sizes = self._journals[node].sizes(extent)
        there = extent.next_offset if self._target is None else max(first, self._target[node])
        end = there
        if first < self._ahead.get(node, 0):
            end = min(end, self._ahead[node])
        if most is not None and end > first:
            share = len(options.journals)
            here = max(first, extent.first_offset)
            end = min(end, here + max(1, most // share))
            within = offset_within(sizes, here, extent.next_offset, options.max_bytes // share)
            end = min(end, within)
        return end, there

    def _slices(self, node: str, first: int, end: int) -> list[Slice]:
        options = self._options
        journal = open_journal(options.journals[node], node)
        extent = journal.extent()
        here = min(max(first, extent.first_offset), end)  # what is retired comes with the first
        bytes_ = estimate_bytes(journal.sizes(extent), here, end, extent.next_offset)
        pieces = max((end - here) // options.piece_rows, bytes_ // options.piece_bytes)
        cuts = split(here, end, min(pieces, options.pieces)) if here < end else [(here, end)]
        cuts[0] = first, cuts[0][1]
        return [Slice(node, *cut) for cut in cuts]

    def _skip(self, node: str, error: Exception) -> None:
        if node not in self._unreachable:
            self._unreachable.add(node)
            _log.warning("the journal of %s can't be reached: %s", node, error)

    def _should_wait(self, new: int) -> bool:
        if self._target is not None or self._last_s is None or new >= self._options.few_rows:
            return False
        return self._clock_s() - self._last_s < self._options.patience_ms / 1000


def decode_done(encoded: bytes) -> SliceDone:
    return _done.decode(encoded)
