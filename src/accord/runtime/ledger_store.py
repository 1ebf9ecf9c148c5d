"""Stores ledger entries: recent ones in memory, and all in the journal if there is one.

Memory holds them encoded, a few MB for a hundred thousand, and answers nearly all searches. The
journal is searched in a thread, one search at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from accord.core.monitoring.ledger import Ledger
from accord.core.monitoring.top import LedgerStatus
from accord.journal.errors import JournalError
from accord.journal.ledger_records import (
    LedgerQuery,
    LedgerRecord,
    LedgerResult,
    LedgerSearch,
    encode_ledger,
    record_of,
    search_journal,
)
from accord.journal.reader import Reader

KEPT: Final = 100_000
_MAX_RECORDS: Final = 20_000  # bounds records of one or two entries, while little happens
_MAX_BYTES: Final = 64_000_000
_SCAN_ENTRIES: Final = 2_000  # entries scanned per step, about a millisecond
# Searches of the journal, running or waiting; further ones see only memory.
_MAX_SEARCHES: Final = 8


class LedgerStore:
    """`append` appends a record to the journal and returns whether it was accepted.

    `flush_deferred` adds deferred entries to the ledger.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        flush_deferred: Callable[[], None] | None = None,
        append: Callable[[bytes], bool] | None = None,
        journal: Path | None = None,
        keep: int = KEPT,
    ) -> None:
        self.ledger = ledger
        self.refused = 0  # entries that the journal refused
        self._flush_deferred = flush_deferred
        self._append = append
        self._journal = journal
        self._keep = keep
        self._records: deque[LedgerRecord] = deque()
        self._entries = 0
        self._bytes = 0
        self._newest = 0
        self._lock = asyncio.Lock()
        self._searches = 0

    def drain(self, *, now_ms: int) -> None:
        """Move new entries to the store; call once a second and when the ledger is due."""
        if self._flush_deferred is not None:
            self._flush_deferred()
        batch = self.ledger.take()
        if batch is None or not batch.rows:
            return
        last = batch.rows[-1]
        done_ms = batch.first_ms + last[1] + last[7] + last[8]  # may be after the last drain
        record = record_of(batch, newest=self._newest, taken_ms=max(now_ms, done_ms))
        self._newest = record.newest
        self._records.append(record)
        self._entries += record.count
        self._bytes += len(record.rows)
        records = self._records
        while len(records) > 1 and (
            self._entries > self._keep or self._bytes > _MAX_BYTES or len(records) > _MAX_RECORDS
        ):
            oldest = records.popleft()
            self._entries -= oldest.count
            self._bytes -= len(oldest.rows)
        if self._append is not None and not self._append(encode_ledger(record)):
            self.refused += record.count

    def status(self) -> LedgerStatus:
        return LedgerStatus(
            is_on=self.ledger.is_on,
            entries=self._entries,
            missed=self.ledger.missed + self.refused,
            reaches_back_ms=self._records[0].taken_ms if self._records else None,
        )

    async def search(self, wanted: LedgerQuery, most: int, *, now_ms: int) -> LedgerResult:
        """The latest matching entries, first from memory, then from the journal."""
        self.drain(now_ms=now_ms)
        search = LedgerSearch(wanted, most)
        await self._search_memory(search)
        if search.is_done or self._journal is None or self._searches >= _MAX_SEARCHES:
            is_complete = self._journal is None and not search.is_full
            return search.result(is_complete=is_complete)
        self._searches += 1
        try:
            async with self._lock:
                return await asyncio.to_thread(_search, self._journal, search)
        finally:
            self._searches -= 1

    async def _search_memory(self, search: LedgerSearch) -> None:
        """Scan in steps: the event loop is blocked meanwhile."""
        looked = 0
        for record in reversed(tuple(self._records)):
            if search.is_done:
                return
            search.scan(record)
            looked += record.count
            if looked >= _SCAN_ENTRIES:
                looked = 0
                await asyncio.sleep(0)


def _search(journal: Path, search: LedgerSearch) -> LedgerResult:
    try:
        return search_journal(Reader(journal), search)
    except JournalError:
        return search.result(is_complete=False)
