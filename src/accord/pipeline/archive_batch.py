"""One batch of the archive: ranges of a journal's offsets become files, and one commit.

Tasks write the files of their slices and say which; the driver commits them to the manifest in
one step together with how far the archive now reaches, and only where it reached just up to
this batch before. A batch that is done again, or by two at once, so finds itself done or is
refused; what its tasks wrote is in no table.

Records that the journal has retired before they were archived are gone: the batch begins behind
them, and the manifest counts them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from accord.edges.pipeline.messages import Start
from accord.journal import retention
from accord.pipeline.archiving import SliceJob, archive_slice
from accord.pipeline.manifest import Already, Manifest
from accord.pipeline.reading import is_remote, open_journal
from accord.pipeline.tables import EVENTS, LEDGER, LOST, FileEntry

READER: Final = "archive"  # what the journal knows us as
_WRITTEN: Final = "first long, next long, entries binary"


class BatchDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch added to the archive, which now has all up to `archived`."""

    archived: int
    events: int = 0
    ledger_rows: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0
    channels: dict[str, tuple[int, int]] = {}  # events and bytes of payload, where counted
    took_ms: int = 0


class Archiver(msgspec.Struct, frozen=True, kw_only=True):
    """What is done with each batch; knows all it needs, as it may run in a process of Spark's."""

    node: str
    journal: str
    archive: str
    declared: dict[str, str]
    large_bytes: int

    @classmethod
    def of(cls, start: Start) -> Archiver:
        return cls(
            node=start.node,
            journal=start.journal,
            archive=start.archive,
            declared=start.declared,
            large_bytes=start.large_bytes,
        )

    def __call__(self, slices: DataFrame, _batch: int) -> None:
        self.archive_batch(slices, Manifest(self.archive))

    def archive_batch(self, slices: DataFrame, manifest: Manifest) -> BatchDone | None:
        """None where there was nothing to do, or all of it had been done before."""
        began_s = time.monotonic()
        written = slices.mapInArrow(partial(_write_slices, self), _WRITTEN).collect()
        if not written:
            return None
        ranges = sorted((row.first, row.next) for row in written)
        assert all(here[1] == there[0] for here, there in pairwise(ranges)), ranges
        first, end = ranges[0][0], ranges[-1][1]
        added = [entry for row in written for entry in _entries.decode(row.entries)]
        is_lost = self._is_retired(first, manifest)
        moved = {self.node: (first, end)}
        if isinstance(manifest.commit(added=added, moved=moved, lost=is_lost), Already):
            return None
        if not is_remote(self.journal):
            retention.register(self.journal, READER, end)
        return summed(added, end, round((time.monotonic() - began_s) * 1000))

    def _is_retired(self, first: int, manifest: Manifest) -> bool:
        """Whether what is missing before `first` is gone for good."""
        archived = manifest.snapshot().archived.get(self.node, 0)
        return archived < first and open_journal(self.journal).extent().first_offset >= first


_entries: Final = msgspec.msgpack.Decoder(list[FileEntry])


def _write_slices(
    archiver: Archiver, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: a row for each slice, with what was written for it."""
    for batch in batches:
        for row in batch.to_pylist():
            job = SliceJob(
                node=row["node"],
                journal=row["journal"],
                first=row["first"],
                next=row["next"],
                archive=archiver.archive,
                declared=archiver.declared,
                large_bytes=archiver.large_bytes,
            )
            entries = msgspec.msgpack.encode(archive_slice(job))
            yield pa.RecordBatch.from_pydict(
                {"first": [job.first], "next": [job.next], "entries": [entries]}
            )


def summed(entries: list[FileEntry], archived: int, took_ms: int) -> BatchDone:
    channels: dict[str, tuple[int, int]] = {}
    for entry in entries:
        for name, (events, size) in zip(entry.channels or (), entry.use, strict=False):
            known = channels.get(name, (0, 0))
            channels[name] = known[0] + events, known[1] + size
    files = [entry for entry in entries if entry.table != LOST]
    return BatchDone(
        archived=archived,
        events=sum(entry.rows for entry in files if entry.table == EVENTS),
        ledger_rows=sum(entry.rows for entry in files if entry.table == LEDGER),
        files=len(files),
        bytes=sum(entry.bytes for entry in files),
        lost=sum(entry.rows for entry in entries if entry.table == LOST),
        channels=channels,
        took_ms=took_ms,
    )
