"""Stores ledger entries: recent ones in memory, and all in the journal if there is one.

Memory holds them encoded, a few MB for a hundred thousand, and answers nearly all searches. The
journal is searched in a thread, one search at a time.

Tables that follow the ledger are seeded from memory when somebody first wants them, get each new
batch, and are dropped when nobody has asked for them for a while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from accord.core.monitoring.delivery_lines import (
    ChannelDeliveries,
    ClientDeliveries,
    Deliveries,
    NewestEntries,
)
from accord.core.monitoring.ledger import Ledger
from accord.core.monitoring.sightings import Sightings
from accord.core.monitoring.top import LedgerStatus
from accord.journal.errors import JournalError
from accord.journal.ledger_index import LedgerIndex, RecordPlace, search_places
from accord.journal.ledger_records import (
    LedgerQuery,
    LedgerRecord,
    LedgerResult,
    LedgerSearch,
    decode_rows,
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
MAX_FOLLOWING: Final = 64
_UNASKED_MS: Final = 10_000  # a table that nobody asked for so long is dropped

_Key = tuple[str, ...]
_Table = TypeVar("_Table", bound=Deliveries)


class LedgerStore:
    """`append` appends a record to the journal and returns its offset, None if it is refused.

    `flush_deferred` adds deferred entries to the ledger. Entries of `sightings` are not about
    events: they go to the journal, and are not in memory.
    """

    def __init__(  # noqa: PLR0913 (by keyword, once per node)
        self,
        ledger: Ledger,
        *,
        sightings: Sightings | None = None,
        flush_deferred: Callable[[], None] | None = None,
        append: Callable[[bytes], int | None] | None = None,
        journal: Path | None = None,
        keep: int = KEPT,
    ) -> None:
        self.ledger = ledger
        self.refused = 0  # entries that the journal refused
        self._sightings = sightings or Sightings()
        self._flush_deferred = flush_deferred
        self._append = append
        self._journal = journal
        self._keep = keep
        self._records: deque[LedgerRecord] = deque()
        self._entries = 0
        self._bytes = 0
        self._newest = 0
        self._index = LedgerIndex()
        self._lock = asyncio.Lock()
        self._searches = 0
        self._has_evicted = False
        self._following: dict[_Key, Deliveries] = {}  # the longest not asked for first
        self._seeding: dict[Deliveries, asyncio.Task[None]] = {}
        self.seeded = 0  # tables since the start

    def drain(self, *, now_ms: int) -> None:
        """Move new entries to the store; call once a second and when the ledger is due."""
        if self._flush_deferred is not None:
            self._flush_deferred()
        seen = self._sightings.take(now_ms=now_ms)
        if seen is not None:
            self._write(record_of(seen, newest=self._newest, taken_ms=now_ms))
        batch = self.ledger.take()
        self._drop_unasked(now_ms)
        if batch is None or not batch.rows:
            return
        for each in self._following.values():
            each.take(batch.first_number, batch.first_ms, batch.rows)
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
            self._has_evicted = True
            self._entries -= oldest.count
            self._bytes -= len(oldest.rows)
        self._write(record)

    def _write(self, record: LedgerRecord) -> None:
        if self._append is not None:
            offset = self._append(encode_ledger(record))
            if offset is None:
                self.refused += record.count
            else:
                self._index.add(record, offset)

    @property
    def following(self) -> int:
        """How many tables follow the ledger."""
        return len(self._following)

    def status(self) -> LedgerStatus:
        return LedgerStatus(
            is_on=self.ledger.is_on,
            entries=self._entries,
            missed=self.ledger.missed + self.refused,
            reaches_back_ms=self._records[0].taken_ms if self._records else None,
        )

    def follow_client(self, client: str, *, now_ms: int) -> ClientDeliveries:
        """What a client got; incomplete until it is seeded."""
        made = ClientDeliveries(client, now_ms=now_ms)
        return self._follow(("client", client), made, now_ms)

    def follow_channel(self, channel: str, node: str, *, now_ms: int) -> ChannelDeliveries:
        """What the clients of this node got of a channel; incomplete until it is seeded."""
        made = ChannelDeliveries(channel, node=node, now_ms=now_ms)
        return self._follow(("channel", channel), made, now_ms)

    def follow_newest(self, pattern: str, client: str | None, *, now_ms: int) -> NewestEntries:
        """The newest entries of a filter, to or from a client; incomplete until it is seeded."""
        made = NewestEntries(pattern, client, now_ms=now_ms)
        key = ("newest", pattern) if client is None else ("newest", pattern, client)
        return self._follow(key, made, now_ms)

    async def seed(self, table: Deliveries) -> None:
        """Wait until a table that is followed has what memory holds of it."""
        task = self._seeding.get(table)
        if task is not None:
            await asyncio.shield(task)

    def _follow(self, key: _Key, made: _Table, now_ms: int) -> _Table:
        """The table of this name, or `made`, which is then followed from now on."""
        known = self._following.pop(key, None)
        if known is not None:
            assert isinstance(known, type(made))
            self._following[key] = known
            known.asked_ms = now_ms
            return known
        self.drain(now_ms=now_ms)
        while len(self._following) >= MAX_FOLLOWING:
            self._drop(next(iter(self._following)))
        self._following[key] = made
        # What is drained from now on comes by itself.
        seed = self._seed(made, tuple(self._records), now_ms)
        self._seeding[made] = asyncio.ensure_future(seed)
        return made

    async def _seed(
        self, table: Deliveries, records: tuple[LedgerRecord, ...], now_ms: int
    ) -> None:
        """Scan memory in steps, newest first."""
        reached_ms = records[0].taken_ms if records and self._has_evicted else 0
        since_ms = now_ms - table.reach_ms
        looked = 0
        try:
            for record in reversed(records):
                if record.taken_ms < since_ms:
                    reached_ms = since_ms
                    break
                table.take(record.first_number, record.first_ms, decode_rows(record))
                if table.is_full:
                    reached_ms = record.taken_ms
                    break
                looked += record.count
                if looked >= _SCAN_ENTRIES:
                    looked = 0
                    await asyncio.sleep(0)
            table.reaches_back_ms = reached_ms
        finally:
            table.is_seeded = True
            self.seeded += 1
            self._seeding.pop(table, None)

    def _drop_unasked(self, now_ms: int) -> None:
        for key, each in list(self._following.items()):
            if abs(now_ms - each.asked_ms) >= _UNASKED_MS:  # also if the clock stepped back
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        task = self._seeding.pop(self._following.pop(key), None)
        if task is not None:
            task.cancel()

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
                until_ms = self._records[0].taken_ms if self._records else None
                places = self._index.places(until_ms)
                return await asyncio.to_thread(_search, self._journal, search, places)
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


def _search(journal: Path, search: LedgerSearch, places: tuple[RecordPlace, ...]) -> LedgerResult:
    try:
        reader = Reader(journal)
        before = search_places(reader, places, search) if places else None
        if search.is_done:
            return search.result(is_complete=not search.is_full)
        return search_journal(reader, search, before=before)
    except JournalError:
        return search.result(is_complete=False)
