"""Query engine: pages of kept events from the archive and the journal's tail, as one result.

The archive is read first, and the tail starts exactly where that snapshot ended: each record is in
exactly one of the two. The result is everything committed when the first page was requested, and
nothing else, so later pages do not depend on what is archived meanwhile.

Builds one page: merges rows of the archive with hits from the journal's tail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from accord.core.queries.messages import MAX_FRAME, Page, PageQuery, QueryHit
from accord.pipeline.archive_lookup import ArchiveLookup
from accord.pipeline.chunks import NO_ROWS, Chunk, Chunks, Row
from accord.pipeline.journal_readers import open_journal
from accord.pipeline.manifest import Manifest, Snapshot
from accord.pipeline.pruning import select
from accord.pipeline.query_checks import CheckedQuery, InvalidQueryError, check
from accord.pipeline.scan_plan import (
    GROWTH,
    RemainingQuery,
    SortRank,
    first_target,
    next_scan_range,
    rank_of,
    read_cursor,
    rows_of_chunk,
    write_cursor,
)
from accord.pipeline.tables import EVENTS, FileEntry, TablesError, read_payload
from accord.pipeline.tail import Hit, StaleError, Tail


@dataclass(slots=True)
class PageContext:
    """A query, the rest of it still to find, and the cost of the page so far."""

    checked: CheckedQuery
    query: PageQuery
    part: RemainingQuery
    left: int | None  # remaining events at most
    check: Callable[[], object]  # raises if the query was cancelled
    until_s: float
    opened: dict[str, FileEntry] = field(default_factory=dict)
    skipped: int = 0
    tail: int = 0

    @property
    def rows(self) -> int:
        """Maximum number of events on the page."""
        return self.query.rows if self.left is None else min(self.query.rows, self.left)


class PageBuilder:
    """Events of the page, in order, up to its limit."""

    def __init__(self, asked: PageContext, hits: Sequence[Hit]) -> None:
        self.entries: list[Row | Hit] = []
        self.is_full = False  # the next event does not fit
        self.reached = asked.part.after
        self._rows = asked.rows
        self._bytes_left = asked.query.bytes
        self._hits = hits
        self._next_hit = 0

    @property
    def remaining(self) -> int:
        return self._rows - len(self.entries)

    def merge(self, chunk: Chunk) -> None:
        """Add the next events, up to the end of `chunk` or until the page is full."""
        first = chunk.index(self.reached)
        rows = chunk.take_rows(first, self.remaining + 1)
        ranks = chunk.ranks[first : first + len(rows)]
        at = 0
        while not self.is_full:
            hit = self._hit(chunk.end)
            if at < len(rows) and (hit is None or ranks[at] < hit.rank):
                self._add(ranks[at], rows[at])
                at += 1
            elif hit is not None:
                self._add(hit.rank, hit)
                self._next_hit += 1
            else:
                break
        if not self.is_full and chunk.end is not None:
            self.reached = chunk.end

    def _hit(self, end: SortRank | None) -> Hit | None:
        if self._next_hit == len(self._hits):
            return None
        hit = self._hits[self._next_hit]
        return hit if end is None or hit.rank <= end else None

    def _add(self, rank: SortRank, entry: Row | Hit) -> None:
        if self.entries and (not self.remaining or entry.size > self._bytes_left):
            self.is_full = True
            return
        self.entries.append(entry)
        self._bytes_left -= entry.size
        self.reached = rank


SOFT_S: Final = 10.0  # after which a page ends early
_ATTEMPTS: Final = 4
_TAIL_BEHIND: Final = 200_000  # records archived since, after which a chunk is looked up again
_LARGEST: Final = MAX_FRAME - (1 << 20)


class QueryEngine:
    """Executes queries; thread-safe."""

    def __init__(
        self, lookup: ArchiveLookup, manifest: Manifest, tail: Tail, *, node: str, journal: str
    ) -> None:
        self._lookup = lookup
        self._manifest = manifest
        self._tail = tail
        self._node = node
        self._journal = journal
        self._chunks = Chunks()

    def page(self, query: PageQuery, check_on: Callable[[], object] = lambda: None) -> Page:
        """Return a page, or raise InvalidQueryError; `check_on` may raise to stop it."""
        began_s = time.monotonic()
        asked = self._context(query, check_on, began_s + min(SOFT_S, query.within_ms / 1_000))
        pile, chunk, events = self._find_page(asked)
        return Page(
            id=query.id,
            events=tuple(events),
            cursor=self._cursor(asked, pile, chunk),
            files=len(asked.opened),
            files_skipped=asked.skipped,
            bytes=sum(file.bytes for file in asked.opened.values()),
            tail=asked.tail,
            took_ms=round((time.monotonic() - began_s) * 1000),
            reached_ms=None if pile.reached is None else abs(pile.reached[0]),
        )

    def _context(
        self, query: PageQuery, check_on: Callable[[], object], until_s: float
    ) -> PageContext:
        question = check(query)
        ask = question.query
        if query.cursor:
            cursor = read_cursor(query.cursor, question.digest)
            after = rank_of(cursor.position, is_newest_first=ask.is_newest_first)
            # Untrusted input: the cursor must not select records that do not exist yet.
            before = min(cursor.before_offset, self._committed())
            part = RemainingQuery(ask.from_offset, before, after)
            return PageContext(question, query, part, cursor.limit, check_on, until_s)
        committed = self._committed()
        before = committed if ask.before_offset is None else min(committed, ask.before_offset)
        part = RemainingQuery(ask.from_offset, before, None)
        return PageContext(question, query, part, ask.limit, check_on, until_s)

    def _committed(self) -> int:
        return open_journal(self._journal).extent().next_offset

    def _find_page(self, asked: PageContext) -> tuple[PageBuilder, Chunk, list[QueryHit]]:
        digest, before = asked.checked.digest, asked.part.before
        lost_from = -1
        for _ in range(_ATTEMPTS):
            snapshot = self._manifest.snapshot()
            archived = snapshot.archived.get(self._node, 0)
            chunk = self._chunks.get(digest, before, asked.part.after)
            if chunk is not None and min(archived, before) - chunk.archived > _TAIL_BEHIND:
                chunk = None
            try:
                is_final = lost_from == archived
                pile, chunk = self._build(asked, snapshot, chunk, is_final=is_final)
                return pile, chunk, self._events(pile, asked)
            except StaleError:
                self._chunks.drop(digest, before)
                # Nothing moved, yet neither journal nor archive has them: these records are lost.
                lost_from = archived
        raise InvalidQueryError("the archive changes faster than it can be read: try again")

    def _build(
        self, asked: PageContext, snapshot: Snapshot, chunk: Chunk | None, *, is_final: bool
    ) -> tuple[PageBuilder, Chunk]:
        part = asked.part
        archived = chunk.archived if chunk else snapshot.archived.get(self._node, 0)
        # Always from the archive's end, so that other queries can use the rest.
        tail = RemainingQuery(archived, part.before, part.after)
        asked.tail = max(0, tail.before - tail.first)
        most = asked.rows + 1
        hits = self._tail.find(asked.checked, tail, most, is_final=is_final, check=asked.check)
        pile = PageBuilder(asked, hits)
        target = self._chunks.target(asked.checked.digest, part.before, part.after)
        while True:
            if chunk is None:
                rest = RemainingQuery(part.first, min(part.before, archived), pile.reached)
                chunk = self._next_chunk(asked, snapshot, rest, target)
            asked.opened.update((file.path, file) for file in chunk.files)
            pile.merge(chunk)
            is_over = pile.is_full or chunk.end is None or not pile.remaining
            if is_over or time.monotonic() > asked.until_s:
                return pile, chunk
            asked.check()
            target = chunk.target
            chunk = None

    def _next_chunk(
        self, asked: PageContext, snapshot: Snapshot, part: RemainingQuery, target: int | None
    ) -> Chunk:
        """The archive's rows after the position where `part` starts."""
        question = asked.checked
        is_newest = question.is_newest_first
        files = self._select(asked, snapshot, part)
        if not files:
            return _empty_chunk(part, is_newest)
        most = rows_of_chunk(files, asked.rows, asked.left, is_first=not asked.query.cursor)
        target = target or first_target(question, files, most)
        chosen = next_scan_range(files, question, part.after, target)
        if not chosen.files:
            return _empty_chunk(part, is_newest)
        rows = self._lookup.find(question, part, chosen, most)
        chunk = Chunk(
            rows=rows,
            start=part.after,
            end=None,
            archived=part.before,
            files=chosen.files,
            target=target,
            is_newest_first=is_newest,
        )
        if rows.num_rows >= most:
            chunk.end = chunk.ranks[-1]
        elif not chosen.is_last:
            chunk.end = rank_of(chosen.end(is_newest_first=is_newest), is_newest_first=is_newest)
            chunk.target = target * GROWTH
        return chunk

    def _select(
        self, asked: PageContext, snapshot: Snapshot, part: RemainingQuery
    ) -> list[FileEntry]:
        question, ask = asked.checked, asked.checked.query
        if part.first >= part.before:
            return []
        files = select(
            snapshot,
            channel=ask.channel,
            since_ms=ask.since_ms,
            until_ms=ask.until_ms,
            from_offset=part.first,
            before_offset=part.before,
            number=ask.number,
            node=self._node,
            predicate=question.predicate if question.has_predicate else None,
        )
        own = sum(file.table == EVENTS and file.node == self._node for file in snapshot.files)
        asked.skipped = own - len(files)
        if part.after is None:
            return files
        ms = abs(part.after[0])
        if question.is_newest_first:
            return [file for file in files if file.first_ms <= ms]
        return [file for file in files if file.last_ms >= ms]

    def _cursor(self, asked: PageContext, pile: PageBuilder, chunk: Chunk) -> str:
        """The next page's cursor; empty after the last page."""
        question, before = asked.checked, asked.part.before
        left = None if asked.left is None else asked.left - len(pile.entries)
        is_more = pile.is_full or chunk.end is not None
        if not is_more or left == 0 or pile.reached is None:
            self._chunks.drop(question.digest, before)
            return ""
        self._chunks.put(question.digest, before, chunk)
        place = abs(pile.reached[0]), abs(pile.reached[1])
        return write_cursor(question.digest, place, before_offset=before, left=left)

    def _events(self, pile: PageBuilder, asked: PageContext) -> list[QueryHit]:
        """The events in full."""
        if any(entry.size > _LARGEST for entry in pile.entries):
            raise InvalidQueryError(
                f"an event has more than the {_LARGEST:,} bytes a page can have"
            )
        self._load_contents(
            [e for e in pile.entries if isinstance(e, Row) and not e.is_whole], asked
        )
        fresh = [entry.offset for entry in pile.entries if isinstance(entry, Hit)]
        of_tail = iter(self._tail.fetch(fresh))
        found: list[QueryHit] = []
        for entry in pile.entries:
            if isinstance(entry, Hit):
                found.append(next(of_tail))
                continue
            payload = entry.payload
            if entry.payload_ref is not None:
                try:
                    payload = read_payload(self._manifest.archive, entry.payload_ref)
                except TablesError:
                    continue  # just removed by retention
            found.append(entry.to_query_hit(payload or b""))
        return found

    def _load_contents(self, rows: list[Row], asked: PageContext) -> None:
        """Load the contents of rows that were returned without."""
        if not rows:
            return
        table: pa.Table = self._lookup.contents(
            list(asked.opened.values()), [row.offset for row in rows]
        )
        columns = (table[name].to_pylist() for name in ("offset", "properties", "payload"))
        by_offset = {offset: rest for offset, *rest in zip(*columns, strict=True)}
        for row in rows:
            row.properties, row.payload = by_offset[row.offset]


def _empty_chunk(part: RemainingQuery, is_newest_first: bool) -> Chunk:
    return Chunk(
        rows=NO_ROWS,
        start=part.after,
        end=None,
        archived=part.before,
        files=(),
        target=0,
        is_newest_first=is_newest_first,
    )
