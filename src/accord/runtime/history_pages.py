"""Reads pages of the history of persistent channels from this node's journal and archive.

Events that the journal still has are read from there: that needs no Spark and misses no
acknowledged event. Older events come from the archive. A cursor names the source of the next page
and the offset in it; the only state between pages is a cache of readers with open file positions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from accord.core.broker.kept_messages import is_remote, journalled_id
from accord.core.channels.channels import Channels
from accord.core.channels.history.messages import (
    HistoryEvent,
    HistoryPage,
    HistorySelector,
    PageRequest,
    span_ms,
)
from accord.core.model.channels import filter_selects
from accord.core.model.errors import EventError, PredicateError
from accord.core.mqtt.codes import ProtocolError
from accord.core.predicates.predicate import Predicate, parse, parse_xpath
from accord.core.queries.messages import EventQuery
from accord.journal.errors import JournalError
from accord.journal.events import KeptEvent, decode_event
from accord.journal.ledger_records import EVENT, kind_of
from accord.journal.reader import Reader, Retired
from accord.journal.record import Batch
from accord.runtime.pipeline import Pipeline, PipelineError

MAX_EVENT: Final = 8 << 20  # larger events don't fit into a page
_RECORDS: Final = 5_000  # scanned for one page
_RECORD_BYTES: Final = 8 << 20
_SCAN_S: Final = 0.5  # time limit for one page: predicates may be slow, and others wait
_READERS: Final = 32
_DIGITS: Final = 20
_JOURNAL: Final = "j"
_ARCHIVE: Final = "a"
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, ProtocolError)


class PageUnavailableError(Exception):
    """Why no page is available now."""


class _Scan(msgspec.Struct):
    """Events found for a page, and the offset at which the next scan starts."""

    events: list[HistoryEvent]
    next_offset: int
    missing: int = 0


class HistoryPages:
    """`committed` returns the journal offset before which all is on disk."""

    def __init__(
        self,
        journal: Path,
        channels: Channels,
        pipeline: Pipeline,
        *,
        committed: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._channels = channels
        self._pipeline = pipeline
        self._committed = committed
        self._now_ms = now_ms
        self._readers: dict[int, Reader] = {}  # by their offset

    async def read(self, asked: PageRequest) -> HistoryPage:
        """Raises PageUnavailableError if there is none now."""
        if asked.before > self._committed():
            raise PageUnavailableError("not on disk yet")
        try:
            kind, place, cursor = await self._locate(asked)
            if kind == _ARCHIVE:
                return await self._from_archive(asked, place, cursor)
            return await self._from_journal(asked, place)
        except (JournalError, PredicateError, PipelineError) as error:
            raise PageUnavailableError(str(error)) from error

    async def _locate(self, asked: PageRequest) -> tuple[str, int, str]:
        """The source, with the offset to start at, or for the archive the one to end before."""
        kind, text, cursor = _read_cursor(asked.cursor)
        if kind == _ARCHIVE:
            return kind, min(text, asked.before), cursor
        if kind == _JOURNAL:
            return kind, text, ""
        if self._pipeline.is_enabled:
            first = await asyncio.to_thread(lambda: Reader(self._journal).extent().first_offset)
            if asked.start < first:
                return _ARCHIVE, min(first, asked.before), ""
        return _JOURNAL, asked.start, ""

    async def _from_archive(self, asked: PageRequest, before: int, cursor: str) -> HistoryPage:
        wanted = asked.wanted
        ask = EventQuery(
            channel=wanted.filter,
            where=wanted.where,
            xpath=wanted.xpath,
            since_ms=wanted.since_ms or None,
            from_offset=asked.start,
            before_offset=before,
        )
        page = await self._pipeline.page(ask, cursor=cursor, rows=asked.rows, bytes_=asked.bytes)
        events = [
            HistoryEvent(
                each.number,
                each.received_ms,
                each.channel,
                each.publisher,
                each.qos,
                each.properties,
                each.payload,
                *_origin(each.properties),
            )
            for each in page.events
        ]
        if page.cursor:
            return self._page(asked, events, f"{_ARCHIVE}{before}:{page.cursor}", 0)
        return self._page(asked, events, _journal_cursor(before, asked.before), 0)

    async def _from_journal(self, asked: PageRequest, start: int) -> HistoryPage:
        reader = self._readers.pop(start, None) or Reader(self._journal)
        scan = await asyncio.to_thread(_scan, reader, asked, start)
        while len(self._readers) >= _READERS:
            del self._readers[next(iter(self._readers))]
        self._readers[scan.next_offset] = reader
        cursor = _journal_cursor(scan.next_offset, asked.before)
        return self._page(asked, scan.events, cursor, scan.missing)

    def _page(
        self, asked: PageRequest, found: list[HistoryEvent], cursor: str, missing: int
    ) -> HistoryPage:
        events = [each for each in found if self._is_eligible(each)]
        small = tuple(each for each in events if len(each.payload) <= MAX_EVENT)
        return HistoryPage(asked.id, small, cursor, missing + len(events) - len(small))

    def _is_eligible(self, event: HistoryEvent) -> bool:
        """Whether the channel is persistent, the event recent enough, and published here."""
        if not self._channels.is_persistent(event.channel):
            return False
        definition = self._channels.overlay.directory.look_up(event.channel)
        span = None if definition is None else span_ms(definition)
        if span is not None and event.received_ms < self._now_ms() - span:
            return False
        try:
            return not is_remote(event.block)
        except ProtocolError:
            return True  # left to the receiver


def _scan(reader: Reader, asked: PageRequest, start: int) -> _Scan:
    """Scan the journal until there is enough for a page."""
    predicate = _predicate(asked.wanted.where, asked.wanted.xpath)
    scan = _Scan([], start)
    size = 0
    until_s = time.monotonic() + _SCAN_S
    most = min(_RECORDS, asked.before - start)
    for item in reader.read(start, max_records=most, max_bytes=_RECORD_BYTES) if most > 0 else ():
        if isinstance(item, Batch):
            for record in item.records():
                event = _event(record, asked.wanted, predicate, scan)
                if event is not None:
                    size += len(event.payload) + len(event.block) + len(event.channel)
                    is_full = len(scan.events) >= asked.rows or size > asked.bytes
                    if scan.events and is_full:
                        return scan
                    scan.events.append(event)
                scan.next_offset += 1
                if time.monotonic() >= until_s:
                    return scan
            continue
        end = item.first_available if isinstance(item, Retired) else item.next_offset
        end = min(end, asked.before)
        if asked.start or not isinstance(item, Retired):  # otherwise the history simply starts here
            scan.missing += max(0, end - scan.next_offset)
        scan.next_offset = max(scan.next_offset, end)
    return scan


def _event(
    record: bytes, wanted: HistorySelector, predicate: Predicate | None, scan: _Scan
) -> HistoryEvent | None:
    """The event of a record, if it matches."""
    if kind_of(record) != EVENT:
        return None
    try:
        kept = decode_event(record)
    except _UNREADABLE:
        scan.missing += 1
        return None
    if kept.received_ms < wanted.since_ms or not filter_selects(wanted.filter, kept.channel):
        return None
    if predicate is not None and not _matches(predicate, kept):
        return None
    return HistoryEvent(
        kept.number,
        kept.received_ms,
        kept.channel,
        kept.publisher,
        kept.qos,
        kept.attributes,
        kept.payload,
        *_origin(kept.attributes),
    )


def _origin(block: bytes) -> tuple[str, int]:
    try:
        return journalled_id(block)
    except ProtocolError:
        return "", 0  # left to the receiver


def _matches(predicate: Predicate, kept: KeptEvent) -> bool:
    try:
        event = kept.event()
    except (EventError, ProtocolError, ValueError, OverflowError):
        return False
    return predicate.evaluate(event.values, event.metadata) is True


@lru_cache(maxsize=256)
def _predicate(where: str, xpath: str) -> Predicate | None:
    """Raises PredicateError for invalid text."""
    if where:
        return parse(where)
    return parse_xpath(xpath) if xpath else None


def _journal_cursor(offset: int, before: int) -> str:
    return "" if offset >= before else f"{_JOURNAL}{offset}"


def _read_cursor(text: str) -> tuple[str, int, str]:
    """Raises PageUnavailableError for a cursor not made here."""
    if not text:
        return "", 0, ""
    place, _, cursor = text[1:].partition(":")
    is_place = place.isascii() and place.isdigit() and len(place) <= _DIGITS
    if text[0] not in (_JOURNAL, _ARCHIVE) or not is_place:
        raise PageUnavailableError("the cursor is none of this node's")
    return text[0], int(place), cursor
