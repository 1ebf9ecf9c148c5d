"""What the pipeline tells a node of itself once a second: how far its journal is archived."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

import msgspec

from accord.core.model.errors import AccordError
from accord.core.queries.messages import Health
from accord.journal.record import Batch
from accord.pipeline.delta_log import Archive
from accord.pipeline.journal_readers import open_journal
from accord.pipeline.journal_sink import NodeBatch

_RATE_S: Final = 10.0


class Counts:
    """What the archive's batches have added of a node since the start."""

    def __init__(self) -> None:
        self.events = 0
        self.ledger_rows = 0
        self._recent: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, done: NodeBatch, now_s: float) -> None:
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
    """Reads the state of a node's journal and of the archive."""

    def __init__(self, archive: Archive, journal: str, node: str) -> None:
        self.counts = Counts()
        self._archive = archive
        self._reader = open_journal(journal, node, is_patient=False)
        self._node = node
        self._versions: list[int] = []
        self._files = 0
        self._bytes = 0

    def sample(self, health: Health) -> Health:
        """Return `health` with the archive's progress; an unreadable journal is reported too."""
        try:
            archived = self._archive.archived(self._node)
            behind = max(0, self._reader.extent().next_offset - archived)
            lag_ms = self._age_ms(archived) if behind else 0
            self._sum_files()
        except (AccordError, OSError) as error:
            return msgspec.structs.replace(health, problem=health.problem or str(error))
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

    def _sum_files(self) -> None:
        snapshots = [table.snapshot() for table in self._archive.tables]
        versions = [each.version for each in snapshots]
        if versions != self._versions:
            files = [file for each in snapshots for file in each.files]
            self._files = len(files)
            self._bytes = sum(file.bytes for file in files)
            self._versions = versions
