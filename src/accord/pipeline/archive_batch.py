"""One batch of the archive: ranges of journal offsets become files, and one manifest commit.

Tasks write the files of their slices and return their names (`slices`). The driver commits them to
the manifest in one step together with the new archived offset, and only if the archive ended
exactly where the batch starts. A batch that runs twice, even concurrently, is therefore recognised
as committed or refused, and the files its tasks wrote belong to no table.

Records that the journal retired before they were archived are gone: the batch starts after them,
and the manifest counts them.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Final

import msgspec
from pyspark.sql import DataFrame

from accord.journal import retention
from accord.pipeline.journal_readers import is_remote, open_journal
from accord.pipeline.manifest import Already, Manifest
from accord.pipeline.slices import decode_entries
from accord.pipeline.tables import EVENTS, LEDGER, LOST, FileEntry

READER: Final = "archive"  # reader name known to the journal


class BatchDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch added to the archive, which now holds everything before offset `archived`."""

    archived: int
    events: int = 0
    ledger_rows: int = 0
    files: int = 0
    bytes: int = 0
    lost: int = 0
    channels: dict[str, tuple[int, int]] = {}  # events and payload bytes, where counted
    took_ms: int = 0


class Archiver(msgspec.Struct, frozen=True, kw_only=True):
    """The function applied to each batch; self-contained, as it may run in another Spark
    process.
    """

    node: str
    journal: str
    archive: str

    def __call__(self, slices: DataFrame, _batch: int) -> None:
        self.commit_batch(slices, Manifest(self.archive))

    def commit_batch(self, slices: DataFrame, manifest: Manifest) -> BatchDone | None:
        """Commit the batch; None if there was nothing to do or it was committed before."""
        began_s = time.monotonic()
        written = slices.collect()  # the tasks read and write here
        if not written:
            return None
        ranges = sorted((row.first, row.next) for row in written)
        assert all(here[1] == there[0] for here, there in pairwise(ranges)), ranges
        first, end = ranges[0][0], ranges[-1][1]
        added = [entry for row in written for entry in decode_entries(row.entries)]
        is_lost = self._is_retired(first, manifest)
        moved = {self.node: (first, end)}
        if isinstance(manifest.commit(added=added, moved=moved, lost=is_lost), Already):
            return None
        if not is_remote(self.journal):
            retention.register(self.journal, READER, end)
        return summed(added, end, round((time.monotonic() - began_s) * 1000))

    def _is_retired(self, first: int, manifest: Manifest) -> bool:
        """Whether the records missing before `first` are gone for good."""
        archived = manifest.snapshot().archived.get(self.node, 0)
        return archived < first and open_journal(self.journal).extent().first_offset >= first


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
