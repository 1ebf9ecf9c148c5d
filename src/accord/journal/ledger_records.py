"""Ledger entries as records of the journal, one batch per record.

A record's header has the range of event numbers in it, so that a search skips most records without
decoding them, and `newest`, the highest number in the ledger so far: if that is below the number
searched for, no older record can contain it. Rows stay as they were added, relative to the first:
55 bytes each with names of usual length, and a tenth of a microsecond to encode.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.model.channels import filter_shows
from accord.core.monitoring.ledger import MAX_NUMBER, LedgerBatch, Row

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


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of `count` events from `number` on, for one destination."""

    number: int
    count: int = 1
    channel: str
    publisher: str
    destination: str
    outcome: int
    received_ms: int
    queued_ms: int
    done_ms: int
    size: int
    importance: int
    policy: str = ""
    detail: str = ""
    sending_us: int = 0


class LedgerQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to find; fields left out match everything. A client is at either end.

    Entries of internal channels are found by the event's number, or by a filter that names them.
    """

    number: int | None = None
    channel: str = "#"  # a filter
    client: str | None = None
    outcome: int | None = None
    since_ms: int | None = None


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
    found: list[LedgerEntry] = []
    for row in reversed(_rows.decode(record.rows)):
        if _is_wanted(row, record, wanted):
            found.append(_entry(row, record))
            if len(found) == most:
                break
    return found


def _is_wanted(row: Row, record: LedgerRecord, wanted: LedgerQuery) -> bool:
    if wanted.number is not None:
        first = record.first_number + row[0]
        if not first <= wanted.number < first + row[2]:
            return False
    if wanted.outcome is not None and row[6] != wanted.outcome:
        return False
    if wanted.client is not None and wanted.client not in (row[4], row[5]):
        return False
    if wanted.since_ms is not None:
        done_ms = record.first_ms + row[1] + row[7] + row[8]
        if done_ms < wanted.since_ms:
            return False
    # A run over several channels has no channel name, and matches every filter.
    return wanted.number is not None or not row[3] or filter_shows(wanted.channel, row[3])


def _entry(row: Row, record: LedgerRecord) -> LedgerEntry:
    received_ms = record.first_ms + row[1]
    return LedgerEntry(
        number=min(max(record.first_number + row[0], 0), MAX_NUMBER),
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
        detail=row[12],
        sending_us=row[13],
    )
