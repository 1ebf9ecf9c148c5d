"""The journal's tail: records not archived yet, searched like the archive.

Records are loaded block by block. A block's time range is kept as long as queries may need it; its
records only as long as memory allows, otherwise they are read again. So an archive that is far
behind costs time, but not memory. A search returns positions, best first and limited in number;
events are fetched only for those used.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from accord.core.model.values import Value
from accord.core.queries.messages import QueryHit
from accord.journal.errors import JournalError
from accord.journal.events import KeptEvent
from accord.journal.reader import Retired
from accord.journal.record import Batch
from accord.pipeline.decode.scan import decode_batch
from accord.pipeline.journal_readers import JournalReader, open_journal
from accord.pipeline.query.checks import CheckedQuery, seen
from accord.pipeline.query.engine import StaleError
from accord.pipeline.query.scan_ranges import RemainingQuery, SortRank
from accord.pipeline.tables import LAST_MS

BLOCK_RECORDS: Final = 2_048
BLOCK_BYTES: Final = 4 << 20
CACHE_BYTES: Final = 48 << 20
_BLOCKS_BEHIND: Final = 256  # archived blocks kept
_OVERHEAD: Final = 400  # per record in memory
_VALUES: Final = 8  # size of decoded values relative to the record
EVENT_BYTES: Final = 48  # of an event in a page, beside its texts
_CHECK_EVERY: Final = 64  # events between two cancellation checks


class Hit:
    """An event found, and its size."""

    __slots__ = ("offset", "rank", "size")

    def __init__(self, rank: SortRank, offset: int, size: int) -> None:
        self.rank = rank
        self.offset = offset
        self.size = size


class _Kept:
    """A record; values are decoded once on demand, a document each time."""

    __slots__ = ("_values", "event", "offset", "received_ms")

    def __init__(self, offset: int, event: KeptEvent) -> None:
        self.offset = offset
        self.event = event
        self.received_ms = min(max(event.received_ms, 0), LAST_MS)
        self._values: Mapping[str, Value] | None = None

    @property
    def size(self) -> int:
        return size_of(self.event.channel, len(self.event.attributes), len(self.event.payload))

    def matches(self, question: CheckedQuery) -> bool:
        values, document = self._values, None
        if values is None:
            values, document = seen(self.event)
            if document is None:  # a document may be many times as large as its text
                self._values = values
        return question.predicate.evaluate(values, document) is True

    def to_query_hit(self) -> QueryHit:
        event = self.event
        return QueryHit(
            self.offset,
            event.number,
            self.received_ms,
            event.channel,
            event.publisher,
            event.qos,
            event.attributes,
            event.payload,
        )


class _Block:
    """Consecutive records up to `end`; all its events are in memory, or none."""

    __slots__ = ("bytes", "end", "events", "first", "first_ms", "is_retired", "last_ms")

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        self.first_ms = LAST_MS + 1
        self.last_ms = -1
        self.bytes = 0
        self.is_retired = False  # partly retired before it could be read
        self.events: list[_Kept] | None = []

    def add(self, batch: Batch) -> None:
        assert self.events is not None
        decoded = decode_batch(batch)
        for offset, event in zip(decoded.event_offsets, decoded.events, strict=True):
            kept = _Kept(offset, event)
            self.events.append(kept)
            self.first_ms = min(self.first_ms, kept.received_ms)
            self.last_ms = max(self.last_ms, kept.received_ms)
            self.bytes += kept.size + _VALUES * len(event.attributes) + _OVERHEAD
        self.end = batch.end_offset

    @property
    def is_full(self) -> bool:
        is_large = self.bytes >= BLOCK_BYTES
        return self.events is None or is_large or self.end - self.first >= BLOCK_RECORDS


class Tail:
    """The tail of one journal; thread-safe."""

    def __init__(self, journal: str, node: str = "", *, cache_bytes: int = CACHE_BYTES) -> None:
        self._reader: JournalReader = open_journal(journal, node)
        self._cache_bytes = cache_bytes
        self._lock = threading.Lock()
        self._blocks: list[_Block] = []
        self._start = 0  # start offset while there are no blocks
        self._cached: OrderedDict[int, _Block] = OrderedDict()
        self._bytes = 0

    def find(
        self,
        question: CheckedQuery,
        part: RemainingQuery,
        most: int,
        *,
        is_final: bool = False,
        check: Callable[[], object] = lambda: None,
    ) -> list[Hit]:
        """Return the first `most` events of this part that match the query.

        StaleError if the journal does not have all of it; `is_final` is for records that are lost
        for good, as the archive lacks them too. `check` is called repeatedly.
        """
        if part.first >= part.before:
            return []
        blocks = self._load(part, check)
        if not is_final and any(block.is_retired for block in blocks):
            raise StaleError
        hits: list[Hit] = []
        for block in self._ordered(question, blocks):
            if len(hits) >= most:
                hits.sort(key=_rank)
                del hits[most:]
                if _first_rank(block, question) > hits[-1].rank:
                    break
            check()
            hits += self._search(block, question, part, check)
        hits.sort(key=_rank)
        return hits[:most]

    def times(
        self,
        question: CheckedQuery,
        part: RemainingQuery,
        *,
        is_final: bool = False,
        check: Callable[[], object] = lambda: None,
    ) -> Iterator[int]:
        """When the events of this part that match the query were received, in any order.

        StaleError as in `find`.
        """
        if part.first >= part.before:
            return
        blocks = self._load(part, check)
        if not is_final and any(block.is_retired for block in blocks):
            raise StaleError
        for block in self._ordered(question, blocks):
            check()
            for hit in self._search(block, question, part, check):
                yield abs(hit.rank[0])

    def fetch(self, offsets: Sequence[int]) -> list[QueryHit]:
        """Return the events at these offsets, which were found before."""
        found: list[QueryHit] = []
        for offset in offsets:
            with self._lock:
                place = bisect_right(self._blocks, offset, key=lambda block: block.first) - 1
                if place < 0 or self._blocks[place].end <= offset:
                    raise StaleError
                events = self._events(self._blocks[place])
            at = bisect_left(events, offset, key=lambda kept: kept.offset)
            if at == len(events) or events[at].offset != offset:
                raise StaleError
            found.append(events[at].to_query_hit())
        return found

    def _search(
        self,
        block: _Block,
        question: CheckedQuery,
        part: RemainingQuery,
        check: Callable[[], object],
    ) -> Iterator[Hit]:
        first, before, after = part.first, part.before, part.after
        with self._lock:
            events = list(self._events(block))
        is_newest_first, has_predicate = question.is_newest_first, question.has_predicate
        for count, kept in enumerate(events):
            if count % _CHECK_EVERY == 0:
                check()
            offset, received_ms = kept.offset, kept.received_ms
            if not first <= offset < before:
                continue
            rank = (-received_ms, -offset) if is_newest_first else (received_ms, offset)
            if after is not None and rank <= after:
                continue
            if not question.may_include(received_ms, offset, kept.event.number):
                continue
            if not question.selects(kept.event.channel):
                continue
            if not has_predicate or kept.matches(question):
                yield Hit(rank, offset, kept.size)

    def _ordered(self, question: CheckedQuery, blocks: list[_Block]) -> list[_Block]:
        """Blocks that may hold matches, those that may hold the first ones first."""
        ask = question.query
        chosen = [
            block
            for block in blocks
            if block.last_ms >= (ask.since_ms or 0)
            and (ask.until_ms is None or block.first_ms < ask.until_ms)
        ]
        return sorted(chosen, key=lambda block: _first_rank(block, question))

    def _load(self, part: RemainingQuery, check: Callable[[], object]) -> list[_Block]:
        """Load as far as needed and return this part's blocks; releases the lock in between."""
        with self._lock:
            self._evict(part.first)
        while True:
            check()
            with self._lock:
                if self._end >= part.before:
                    return self._blocks_of(part)
                if not self._blocks or self._blocks[-1].is_full:
                    self._blocks.append(_Block(self._end))
                self._extend(self._blocks[-1], part.before)

    def _blocks_of(self, part: RemainingQuery) -> list[_Block]:
        place = bisect_right(self._blocks, part.first, key=lambda block: block.first) - 1
        if place < 0:
            raise StaleError
        return [block for block in self._blocks[place:] if block.first < part.before]

    @property
    def _end(self) -> int:
        return self._blocks[-1].end if self._blocks else self._start

    def _evict(self, first: int) -> None:
        """Remove blocks that all queries are past, and all blocks if they do not reach `first`.

        They are read again if needed, as long as the journal has them.
        """
        blocks = self._blocks
        if not blocks or not blocks[0].first <= first <= blocks[-1].end:
            for block in blocks:
                self._release(block)
            blocks.clear()
            self._start = first
        while len(blocks) > _BLOCKS_BEHIND and blocks[_BLOCKS_BEHIND].end <= first:
            self._release(blocks.pop(0))

    def _extend(self, block: _Block, before: int) -> None:
        """Load up to a full block; records no longer in the journal are skipped."""
        had = block.bytes
        self._fill(block, min(before, block.first + BLOCK_RECORDS))
        self._cached[block.first] = block
        self._cached.move_to_end(block.first)
        self._bytes += block.bytes - had
        self._shrink(block)

    def _fill(self, block: _Block, before: int) -> None:
        """Read at least a little; records missing from the journal are skipped."""
        most = before - block.end
        end = block.end
        for item in self._reader.read(end, max_records=most, max_bytes=BLOCK_BYTES):
            if isinstance(item, Batch):
                block.add(item)
                continue
            if isinstance(item, Retired):
                block.is_retired = True
            beyond = item.first_available if isinstance(item, Retired) else item.next_offset
            block.end = min(before, max(block.end, beyond))
        if block.end == end:
            raise JournalError(f"offset {end} can't be read, nor passed over", location="journal")

    def _events(self, block: _Block) -> list[_Kept]:
        """Its events, read again if evicted; StaleError if retired."""
        if block.events is not None:
            if block.first in self._cached:
                self._cached.move_to_end(block.first)
            return block.events
        again = _Block(block.first)
        while again.end < block.end:
            self._fill(again, block.end)
        if again.is_retired and not block.is_retired:
            raise StaleError
        block.events, block.bytes = again.events, again.bytes
        self._cached[block.first] = block
        self._bytes += block.bytes
        self._shrink(block)
        return block.events or []

    def _shrink(self, used: _Block) -> None:
        while self._bytes > self._cache_bytes and len(self._cached) > 1:
            oldest = next(iter(self._cached.values()))
            if oldest is used:
                return
            self._release(oldest)

    def _release(self, block: _Block) -> None:
        if self._cached.pop(block.first, None) is not None:
            self._bytes -= block.bytes
            block.events = None


def size_of(channel: str, properties_bytes: int, payload_bytes: int) -> int:
    """Approximate size of an event in a page."""
    return EVENT_BYTES + len(channel) + properties_bytes + payload_bytes


def _rank(hit: Hit) -> SortRank:
    return hit.rank


def _first_rank(block: _Block, question: CheckedQuery) -> SortRank:
    """Lower bound of the block's events in query order."""
    if question.is_newest_first:
        return -block.last_ms, -block.end
    return block.first_ms, block.first
