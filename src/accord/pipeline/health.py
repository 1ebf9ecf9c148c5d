"""The pipeline's health, reported to the node every second."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

import msgspec

from accord.core.model.errors import AccordError
from accord.core.queries.messages import Health
from accord.journal.record import Batch
from accord.pipeline.archive_batch import BatchDone
from accord.pipeline.journal_readers import JournalReader, open_journal
from accord.pipeline.manifest import Manifest, Snapshot
from accord.pipeline.tables import LOST

_RATE_S: Final = 10.0


class Counts:
    """What the archive's batches have added since the start."""

    def __init__(self) -> None:
        self.events = 0
        self.ledger_rows = 0
        self._recent: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, done: BatchDone, now_s: float) -> None:
        with self._lock:
            self.events += done.events
            self.ledger_rows += done.ledger_rows
            self._recent.append((now_s, done.events + done.ledger_rows))

    def rows_per_s(self, now_s: float) -> float:
        """Over the last seconds."""
        with self._lock:
            while self._recent and self._recent[0][0] < now_s - _RATE_S:
                self._recent.popleft()
            return sum(rows for _, rows in self._recent) / _RATE_S


class HealthProbe:
    """Reads the state of journal and archive."""

    def __init__(self, manifest: Manifest, journal: str, node: str) -> None:
        self.counts = Counts()
        self._manifest = manifest
        self._reader: JournalReader = open_journal(journal)
        self._node = node
        self._version = -1
        self._files = 0
        self._bytes = 0

    def sample(self, health: Health) -> Health:
        """Return `health` with the archive's progress; an unreadable journal is reported too."""
        try:
            snapshot = self._manifest.snapshot()
            archived = snapshot.archived.get(self._node, 0)
            behind = max(0, self._reader.extent().next_offset - archived)
            lag_ms = self._age_ms(archived) if behind else 0
        except (AccordError, OSError) as error:
            return msgspec.structs.replace(health, problem=health.problem or str(error))
        self._sum_files(snapshot)
        return msgspec.structs.replace(
            health,
            archived_offset=archived,
            lag_ms=lag_ms,
            lag_records=behind,
            events=self.counts.events,
            ledger_rows=self.counts.ledger_rows,
            rows_per_s=self.counts.rows_per_s(time.monotonic()),
            files=self._files,
            bytes=self._bytes,
        )

    def _age_ms(self, offset: int) -> int:
        for found in self._reader.read(offset, max_records=1):
            if isinstance(found, Batch):
                return max(0, time.time_ns() // 1_000_000 - found.time_ms)
        return 0

    def _sum_files(self, snapshot: Snapshot) -> None:
        if snapshot.version != self._version:
            files = [file for file in snapshot.files if file.table != LOST]
            self._files = len(files)
            self._bytes = sum(file.bytes for file in files)
            self._version = snapshot.version
