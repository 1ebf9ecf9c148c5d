"""Searches a journal for ledger entries, from its end backwards.

Segments are read newest first, each from its beginning. A search ends when it has enough entries,
when older records cannot match, or when it has read `max_bytes`; the result states how far back it
went. Records that are damaged or of unknown kind are skipped and counted.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.journal.ledger_records import (
    EVENT,
    LedgerEntry,
    LedgerQuery,
    LedgerRecord,
    decode_ledger,
    kind_of,
    select,
)
from accord.journal.reader import Reader
from accord.journal.record import Batch

MAX_BYTES: Final = 256 << 20


class LedgerResult(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, the latest first.

    Older ones may exist unless `is_complete`. The search went back to `reaches_back_ms`, which is
    None if there is no ledger at all; with `has_older` the ledger also has records too old to
    match. `unusable` counts records that could not be read.
    """

    entries: list[LedgerEntry]
    is_complete: bool
    has_older: bool = False
    reaches_back_ms: int | None = None
    unusable: int = 0


class LedgerSearch:
    """One search over records from any source, given newest first."""

    def __init__(self, wanted: LedgerQuery, most: int) -> None:
        self.wanted = wanted
        self.most = most
        self.entries: list[LedgerEntry] = []
        self.reaches_back_ms: int | None = None
        self.unusable = 0
        self.is_over = False  # no older record can match
        self._seen: set[tuple[int, ...]] = set()

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= self.most

    @property
    def is_done(self) -> bool:
        return self.is_full or self.is_over

    def look(self, record: LedgerRecord) -> None:
        wanted = self.wanted
        back_ms = record.taken_ms if self.reaches_back_ms is None else self.reaches_back_ms
        self.reaches_back_ms = min(back_ms, record.taken_ms)
        if wanted.number is not None and record.newest < wanted.number:
            self.is_over = True
        if wanted.since_ms is not None and record.taken_ms < wanted.since_ms:
            self.is_over = True
        if self.is_over or record.key in self._seen:
            return
        self._seen.add(record.key)
        try:
            self.entries += select(record, wanted, self.most - len(self.entries))
        except msgspec.DecodeError:
            self.unusable += 1

    def answer(self, *, is_complete: bool) -> LedgerResult:
        return LedgerResult(
            entries=self.entries,
            is_complete=is_complete or self.is_over,
            has_older=self.is_over,
            reaches_back_ms=self.reaches_back_ms,
            unusable=self.unusable,
        )


def search_journal(
    reader: Reader, search: LedgerSearch, *, max_bytes: int = MAX_BYTES
) -> LedgerResult:
    """Search a journal; raises JournalError if there is none to read."""
    left = max_bytes
    end = reader.extent().next_offset
    for first in reversed(reader.segments()):
        if search.is_done or left <= 0:
            return search.answer(is_complete=False)
        if first < end:
            records, read = _ledger_records(reader, first, end, search)
            left -= read
            for record in reversed(records):
                if not search.is_done:
                    search.look(record)
        end = first
    return search.answer(is_complete=not search.is_full)


def _ledger_records(
    reader: Reader, first: int, end: int, search: LedgerSearch
) -> tuple[list[LedgerRecord], int]:
    """The records of one segment that may match, and its first one; and the bytes read."""
    records: list[LedgerRecord] = []
    read = 0
    number = search.wanted.number
    for found in reader.read(first, max_records=end - first):
        if not isinstance(found, Batch):
            search.unusable += 1  # also if it was retired since it was listed
            continue
        read += sum(found.lengths)
        for data in found.records():
            if kind_of(data) == EVENT:
                continue
            try:
                record = decode_ledger(data)
            except msgspec.DecodeError:
                search.unusable += 1
                continue
            # The first record shows how far back this segment reaches.
            if number is None or not records or record.may_have(number):
                records.append(record)
    return records, read
