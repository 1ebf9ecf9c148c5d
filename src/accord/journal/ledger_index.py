"""Where ledger records are in the journal, so that a search reads only those that may match.

It knows the records since the start, at most so many: some hours. Older ones are searched for from
the journal's segments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from accord.journal.ledger_records import (
    LedgerQuery,
    LedgerRecord,
    LedgerSearch,
    decode_ledger,
    is_before,
)
from accord.journal.reader import Reader
from accord.journal.record import Batch

MAX_PLACES: Final = 40_000
MAX_READ: Final = 2_000  # records of one search


class RecordPlace(NamedTuple):
    """A record's header, and where it is."""

    offset: int
    first_ms: int
    taken_ms: int
    lowest: int
    highest: int
    newest: int


class LedgerIndex:
    """Places of records, the oldest first."""

    def __init__(self, most: int = MAX_PLACES) -> None:
        self._places: deque[RecordPlace] = deque(maxlen=most)

    def add(self, record: LedgerRecord, offset: int) -> None:
        self._places.append(
            RecordPlace(
                offset,
                record.first_ms,
                record.taken_ms,
                record.lowest,
                record.highest,
                record.newest,
            )
        )

    def places(self, until_ms: int | None = None) -> tuple[RecordPlace, ...]:
        """Those that were taken until then."""
        return tuple(each for each in self._places if until_ms is None or each.taken_ms <= until_ms)


def search_places(reader: Reader, places: tuple[RecordPlace, ...], search: LedgerSearch) -> int:
    """Search the records at these places, the newest first.

    Returns the offset before which nothing was searched.
    """
    read = 0
    before = places[-1].offset + 1 if places else 0
    for place in reversed(places):
        if search.is_done or read == MAX_READ:
            break
        if _is_older(place, search.query):
            search.is_over = True
            break
        before = place.offset
        search.reached(place.taken_ms)
        if _may_match(place, search.query):
            read += 1
            for record in _records_at(reader, place, search):
                search.scan(record)
    return before


def _is_older(place: RecordPlace, wanted: LedgerQuery) -> bool:
    """Whether neither this record nor an older one can match."""
    if is_before(place.newest, wanted.number):
        return True
    return wanted.since_ms is not None and place.taken_ms < wanted.since_ms


def _may_match(place: RecordPlace, wanted: LedgerQuery) -> bool:
    if wanted.number is not None and not place.lowest <= wanted.number <= place.highest:
        return False
    return wanted.until_ms is None or place.first_ms <= wanted.until_ms


def _records_at(reader: Reader, place: RecordPlace, search: LedgerSearch) -> Iterator[LedgerRecord]:
    """The record at a place; none if it was retired or is damaged."""
    for found in reader.read(place.offset, max_records=1):
        if not isinstance(found, Batch):
            search.unusable += 1
            return
        for data in found.records():
            try:
                yield decode_ledger(data)
            except msgspec.DecodeError:
                search.unusable += 1
