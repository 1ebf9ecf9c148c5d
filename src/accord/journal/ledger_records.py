"""Ledger entries as records of the journal, and the search for them.

A record holds one batch. Its header has the range of event numbers in it, so that a search skips
most records without decoding them, and `newest`, the highest number in the ledger so far: if that
is below the number searched for, no older record can contain it. Rows stay as they were added,
relative to the first: 55 bytes each with names of usual length, and a tenth of a microsecond to
encode.

A search goes backwards from the journal's end. Segments are read newest first, each from its
beginning. A search ends when it has enough entries, when older records cannot match, or when it has
read `max_bytes`; the result states how far back it went. Records that are damaged or of unknown
kind are skipped and counted.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.model.channels import filter_shows
from accord.core.model.former_names import current_detail
from accord.core.monitoring.ledger import MAX_NUMBER, LedgerBatch, LedgerEntry, Row
from accord.journal.reader import Reader
from accord.journal.record import Batch

EVENT: Final = "event"
LEDGER: Final = "ledger"
_EVENT_TAG: Final = b"\xa5event"
_LEDGER_TAG: Final = b"\xa6ledger"


class LedgerRecord(msgspec.Struct, frozen=True, array_like=True, tag=LEDGER):
    """A batch of entries; `lowest` is above `highest` if no entry has a number."""

    taken_ms: int
    newest: int
    lowest: int
    highest: int
    first_number: int
    first_ms: int
    count: int
    rows: bytes

    def may_have(self, number: int) -> bool:
        return self.lowest <= number <= self.highest

    @property
    def key(self) -> tuple[int, ...]:
        """Identity of the record, for duplicate detection."""
        return self.taken_ms, self.first_number, self.first_ms, self.count, len(self.rows)


class LedgerQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to find; fields left out match everything. A client is at either end.

    Entries of internal channels are found by the event's number, or by a filter that names them.
    """

    number: int | None = None
    channel: str = "#"  # a filter
    client: str | None = None
    outcome: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_record: Final = msgspec.msgpack.Decoder(LedgerRecord)
_rows: Final = msgspec.msgpack.Decoder(list[Row])


def record_of(batch: LedgerBatch, *, newest: int, taken_ms: int) -> LedgerRecord:
    """Make a record; `newest` is the highest number of all batches before."""
    return LedgerRecord(
        taken_ms,
        max(newest, batch.highest),
        batch.lowest,
        batch.highest,
        batch.first_number,
        batch.first_ms,
        len(batch.rows),
        _encode(batch.rows),
    )


def encode_ledger(record: LedgerRecord) -> bytes:
    return _encode(record)


def decode_ledger(record: bytes) -> LedgerRecord:
    """Decode a record; raises msgspec.DecodeError if it is not a ledger batch."""
    return _record.decode(record)


def decode_rows(record: LedgerRecord) -> list[Row]:
    """The entries, relative to the record's first; raises msgspec.DecodeError if damaged."""
    return _rows.decode(record.rows)


def kind_of(record: bytes) -> str:
    """Kind of a journal record by its first bytes: EVENT, LEDGER, or empty if unknown."""
    if record.startswith(_EVENT_TAG, 1):  # after the msgpack array header
        return EVENT
    return LEDGER if record.startswith(_LEDGER_TAG, 1) else ""


def select(record: LedgerRecord, wanted: LedgerQuery, most: int) -> list[LedgerEntry]:
    """The matching entries, latest first; raises msgspec.DecodeError if damaged."""
    if most <= 0 or (wanted.since_ms is not None and record.taken_ms < wanted.since_ms):
        return []
    if wanted.number is not None and not record.may_have(wanted.number):
        return []
    # The first entry came at `first_ms`, and no other was done before it.
    if wanted.until_ms is not None and record.first_ms > wanted.until_ms:
        return []
    found: list[LedgerEntry] = []
    for row in reversed(_rows.decode(record.rows)):
        if _is_match(row, record, wanted):
            found.append(entry_of(row, record.first_number, record.first_ms))
            if len(found) == most:
                break
    return found


def _is_match(row: Row, record: LedgerRecord, wanted: LedgerQuery) -> bool:
    if wanted.number is not None:
        first = record.first_number + row[0]
        if not first <= wanted.number < first + row[2]:
            return False
    if wanted.outcome is not None and row[6] != wanted.outcome:
        return False
    if wanted.client is not None and wanted.client not in (row[4], row[5]):
        return False
    done_ms = record.first_ms + row[1] + row[7] + row[8]
    if wanted.since_ms is not None and done_ms < wanted.since_ms:
        return False
    if wanted.until_ms is not None and done_ms > wanted.until_ms:
        return False
    # A run over several channels has no channel name, and matches every filter.
    return wanted.number is not None or not row[3] or filter_shows(wanted.channel, row[3])


def entry_of(row: Row, first_number: int, first_ms: int) -> LedgerEntry:
    """An entry whose numbers are relative to the first of its batch."""
    received_ms = first_ms + row[1]
    return LedgerEntry(
        number=min(max(first_number + row[0], 0), MAX_NUMBER),
        count=row[2],
        channel=row[3],
        publisher=row[4],
        destination=row[5],
        outcome=row[6],
        received_ms=received_ms,
        queued_ms=received_ms + row[7],
        done_ms=received_ms + row[7] + row[8],
        size=row[9],
        importance=row[10],
        policy=row[11],
        detail=current_detail(row[12]),
        sending_us=row[13],
    )


class ArchivedEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the archive's table, and the node whose ledger had it."""

    node: str
    entry: LedgerEntry


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


def is_before(newest: int, number: int | None) -> bool:
    """Whether all was recorded before event `number`, by the highest number recorded until then.

    After a start it is 0 until there is an event: that tells nothing of what is older.
    """
    return number is not None and 0 < newest < number


class LedgerSearch:
    """One search over records from any source, given newest first."""

    def __init__(self, query: LedgerQuery, limit: int) -> None:
        self.query = query
        self.limit = limit
        self.entries: list[LedgerEntry] = []
        self.reaches_back_ms: int | None = None
        self.unusable = 0
        self.is_over = False  # no older record can match
        self._seen: set[tuple[int, ...]] = set()

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= self.limit

    @property
    def is_done(self) -> bool:
        return self.is_full or self.is_over

    def reached(self, taken_ms: int) -> None:
        """The search went back to a record of that time."""
        back_ms = taken_ms if self.reaches_back_ms is None else self.reaches_back_ms
        self.reaches_back_ms = min(back_ms, taken_ms)

    def scan(self, record: LedgerRecord) -> None:
        wanted = self.query
        self.reached(record.taken_ms)
        if is_before(record.newest, wanted.number):
            self.is_over = True
        if wanted.since_ms is not None and record.taken_ms < wanted.since_ms:
            self.is_over = True
        if self.is_over or record.key in self._seen:
            return
        self._seen.add(record.key)
        try:
            self.entries += select(record, wanted, self.limit - len(self.entries))
        except msgspec.DecodeError:
            self.unusable += 1

    def result(self, *, is_complete: bool) -> LedgerResult:
        return LedgerResult(
            entries=self.entries,
            is_complete=is_complete or self.is_over,
            has_older=self.is_over,
            reaches_back_ms=self.reaches_back_ms,
            unusable=self.unusable,
        )


def search_journal(
    reader: Reader,
    search: LedgerSearch,
    *,
    before: int | None = None,
    max_bytes: int = MAX_BYTES,
) -> LedgerResult:
    """Search a journal, from its end or from `before`; raises JournalError if it can't be read."""
    left = max_bytes
    end = reader.extent().next_offset
    if before is not None:
        end = min(end, before)
    for first in reversed(reader.segments()):
        if search.is_done or left <= 0:
            return search.result(is_complete=False)
        if first < end:
            records, read = _ledger_records(reader, first, end, search)
            left -= read
            for record in reversed(records):
                if not search.is_done:
                    search.scan(record)
        end = first
    return search.result(is_complete=not search.is_full)


def _ledger_records(
    reader: Reader, first: int, end: int, search: LedgerSearch
) -> tuple[list[LedgerRecord], int]:
    """The records of one segment that may match, and its first one; and the bytes read."""
    records: list[LedgerRecord] = []
    read = 0
    number = search.query.number
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
