"""Pages of kept events from the archive and the journal's tail, as one result.

The archive is read first, and the tail starts exactly where that snapshot ended: each record is in
exactly one of the two. The result is everything committed when the first page was requested, and
nothing else, so later pages do not depend on what is archived meanwhile. A query as of an earlier
version of the archive has no tail.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from accord.core.queries.messages import MAX_FRAME, EngineName, Page, PageQuery, QueryHit
from accord.pipeline.data_skipping import select
from accord.pipeline.delta_log import Archive, DeltaLog, DeltaLogError, TableSnapshot
from accord.pipeline.journal_readers import open_journal
from accord.pipeline.query.checks import MAX_ROWS, CheckedQuery, InvalidQueryError, check
from accord.pipeline.query.chunks import NO_ROWS, Chunk, Chunks, Row
from accord.pipeline.query.engine import Lookup, StaleError
from accord.pipeline.query.planner import Planner
from accord.pipeline.query.scan_ranges import (
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
from accord.pipeline.query.table_builder import TableBuilder, with_contents
from accord.pipeline.query.tail import Hit, Tail
from accord.pipeline.tables import TableFile, TablesError


@dataclass(slots=True)
class PageContext:
    """A query, the rest of it still to find, and the cost of the page so far."""

    checked: CheckedQuery
    query: PageQuery
    part: RemainingQuery
    left: int | None  # remaining events at most
    check: Callable[[], object]  # raises if the query was cancelled
    until_s: float
    snapshots: DeltaLog
    engine: EngineName | None = None
    opened: dict[str, TableFile] = field(default_factory=dict)
    skipped: int = 0
    tail: int = 0

    @property
    def rows(self) -> int:
        """Maximum number of events on the page."""
        return self.query.rows if self.left is None else min(self.query.rows, self.left)


class Builder(Protocol):
    """Takes chunks in order, each with the hits in it, until it is full."""

    is_full: bool
    reached: SortRank | None

    @property
    def count(self) -> int: ...

    @property
    def remaining(self) -> int: ...

    def merge(self, chunk: Chunk) -> None: ...


B = TypeVar("B", bound=Builder)
Result = TypeVar("Result")


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
    def count(self) -> int:
        return len(self.entries)

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


MAX_TABLE_ROWS: Final = 100_000
SOFT_S: Final = 10.0  # after which a page ends early
_ATTEMPTS: Final = 4
_TAIL_BEHIND: Final = 200_000  # records archived since, after which a chunk is looked up again
_EARLIER: Final = 4  # versions of the archive that are kept open
_LARGEST: Final = MAX_FRAME - (1 << 20)


class QueryEngine:
    """Executes queries; thread-safe."""

    def __init__(
        self, archive: Archive, tail: Tail, planner: Planner, *, node: str, journal: str
    ) -> None:
        self._archive = archive
        self._tail = tail
        self._planner = planner
        self._node = node
        self._journal = journal
        self._chunks = Chunks()
        self._earlier: OrderedDict[int, DeltaLog] = OrderedDict()  # by version
        self._lock = threading.Lock()

    def page(self, query: PageQuery, check_on: Callable[[], object] = lambda: None) -> Page:
        """Return a page, or raise InvalidQueryError; `check_on` may raise to stop it."""
        began_s = time.monotonic()
        asked = self._context(query, check_on, began_s + min(SOFT_S, query.within_ms / 1_000))
        pile, chunk, events = self._find(asked, PageBuilder, self._events)
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
            engine=asked.engine or "tail",
        )

    def rows(
        self, query: PageQuery, check_on: Callable[[], object] = lambda: None
    ) -> tuple[pa.Table, str]:
        """The same as a table with the columns of `ROW_SCHEMA`, and the cursor."""
        until_s = time.monotonic() + query.within_ms / 1_000
        asked = self._context(query, check_on, until_s, most_rows=MAX_TABLE_ROWS)
        pile, chunk, rows = self._find(asked, self._table_builder, self._whole_rows)
        return rows, self._cursor(asked, pile, chunk)

    def _table_builder(self, asked: PageContext, hits: Sequence[Hit]) -> TableBuilder:
        after = asked.part.after
        return TableBuilder(asked.rows, asked.query.bytes, after, hits, self._tail.fetch)

    def _context(
        self,
        query: PageQuery,
        check_on: Callable[[], object],
        until_s: float,
        most_rows: int = MAX_ROWS,
    ) -> PageContext:
        question = check(query, most_rows)
        ask = question.query
        snapshots, end = self._as_of(question)
        if not query.cursor:
            before = end if ask.before_offset is None else min(end, ask.before_offset)
            part = RemainingQuery(ask.from_offset, before, None)
            return PageContext(question, query, part, ask.limit, check_on, until_s, snapshots)
        cursor = read_cursor(query.cursor, question.digest)
        after = rank_of(cursor.position, is_newest_first=ask.is_newest_first)
        # Untrusted input: the cursor must not select records that do not exist yet.
        part = RemainingQuery(ask.from_offset, min(cursor.before_offset, end), after)
        return PageContext(question, query, part, cursor.limit, check_on, until_s, snapshots)

    def _as_of(self, question: CheckedQuery) -> tuple[DeltaLog, int]:
        """Which versions of the archive are read, and up to which offset."""
        ask = question.query
        if ask.as_of_ms is None and ask.as_of_version is None:
            return self._archive.events, self._committed()
        try:
            found = self._archive.events_at(version=ask.as_of_version, ms=ask.as_of_ms)
            with self._lock:
                found = self._earlier.setdefault(found.version, found)
                self._earlier.move_to_end(found.version)
                if len(self._earlier) > _EARLIER:
                    self._earlier.popitem(last=False)
            return found, found.snapshot().archived.get(self._node, 0)
        except DeltaLogError as error:
            raise InvalidQueryError(error.problem, place="as_of") from None

    def _committed(self) -> int:
        return open_journal(self._journal, self._node).extent().next_offset

    def _find(
        self,
        asked: PageContext,
        build: Callable[[PageContext, Sequence[Hit]], B],
        finish: Callable[[B, PageContext, TableSnapshot], Result],
    ) -> tuple[B, Chunk, Result]:
        digest, before = asked.checked.digest, asked.part.before
        lost_from = -1
        for _ in range(_ATTEMPTS):
            snapshot = asked.snapshots.snapshot()
            archived = snapshot.archived.get(self._node, 0)
            chunk = self._chunks.get(digest, before, asked.part.after)
            if chunk is not None and min(archived, before) - chunk.archived > _TAIL_BEHIND:
                chunk = None
            try:
                is_final = lost_from == archived
                pile, chunk = self._build(asked, snapshot, chunk, build, is_final=is_final)
                return pile, chunk, finish(pile, asked, snapshot)
            except StaleError:
                self._chunks.drop(digest, before)
                # Nothing moved, yet neither journal nor archive has them: these records are lost.
                lost_from = archived
        raise InvalidQueryError("the archive changes faster than it can be read: try again")

    def _build(
        self,
        asked: PageContext,
        snapshot: TableSnapshot,
        chunk: Chunk | None,
        build: Callable[[PageContext, Sequence[Hit]], B],
        *,
        is_final: bool,
    ) -> tuple[B, Chunk]:
        part = asked.part
        archived = chunk.archived if chunk else snapshot.archived.get(self._node, 0)
        # Always from the archive's end, so that other queries can use the rest.
        tail = RemainingQuery(archived, part.before, part.after)
        asked.tail = max(0, tail.before - tail.first)
        most = asked.rows + 1
        hits = self._tail.find(asked.checked, tail, most, is_final=is_final, check=asked.check)
        pile = build(asked, hits)
        target = self._chunks.target(asked.checked.digest, part.before, part.after)
        while True:
            if chunk is None:
                rest = RemainingQuery(part.first, min(part.before, archived), pile.reached)
                chunk = self._next_chunk(asked, snapshot, rest, target)
            asked.opened.update((file.path, file) for file in chunk.files)
            asked.engine = chunk.engine or asked.engine
            pile.merge(chunk)
            is_over = pile.is_full or chunk.end is None or not pile.remaining
            if is_over or time.monotonic() > asked.until_s:
                return pile, chunk
            asked.check()
            target = chunk.target
            chunk = None

    def _next_chunk(
        self, asked: PageContext, snapshot: TableSnapshot, part: RemainingQuery, target: int | None
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
        engine = self._planner.choose(question, chosen)
        lookup = Lookup(question, part, chosen, snapshot, self._node)
        found = engine.find(lookup, most, asked.check)
        chunk = Chunk(
            rows=found.rows,
            start=part.after,
            end=found.end,
            archived=part.before,
            files=chosen.files,
            target=target,
            is_newest_first=is_newest,
            engine=engine.name,
        )
        if found.end is None and not chosen.is_last:
            chunk.end = rank_of(chosen.end(is_newest_first=is_newest), is_newest_first=is_newest)
            chunk.target = target * GROWTH
        return chunk

    def _select(
        self, asked: PageContext, snapshot: TableSnapshot, part: RemainingQuery
    ) -> list[TableFile]:
        question, ask = asked.checked, asked.checked.query
        if part.first >= part.before:
            return []
        files = select(
            snapshot.files,
            channel=ask.channel,
            since_ms=ask.since_ms,
            until_ms=ask.until_ms,
            from_offset=part.first,
            before_offset=part.before,
            number=ask.number,
            node=self._node,
            predicate=question.predicate if question.has_predicate else None,
            columns=snapshot.columns,
        )
        own = sum(not file.node or file.node == self._node for file in snapshot.files)
        asked.skipped = own - len(files)
        if part.after is None:
            return files
        ms = abs(part.after[0])
        if question.is_newest_first:
            return [file for file in files if file.first_ms <= ms]
        return [file for file in files if file.last_ms >= ms]

    def _cursor(self, asked: PageContext, pile: Builder, chunk: Chunk) -> str:
        """The next page's cursor; empty after the last page."""
        question, before = asked.checked, asked.part.before
        left = None if asked.left is None else asked.left - pile.count
        is_more = pile.is_full or chunk.end is not None
        if not is_more or left == 0 or pile.reached is None:
            self._chunks.drop(question.digest, before)
            return ""
        self._chunks.put(question.digest, before, chunk)
        place = abs(pile.reached[0]), abs(pile.reached[1])
        return write_cursor(question.digest, place, before_offset=before, left=left)

    def _events(
        self, pile: PageBuilder, asked: PageContext, snapshot: TableSnapshot
    ) -> list[QueryHit]:
        """The events in full."""
        _check_largest(max((entry.size for entry in pile.entries), default=0))
        lacking = [e for e in pile.entries if isinstance(e, Row) and not e.is_whole]
        self._load_contents(lacking, asked, snapshot)
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
                    payload = self._archive.storage.read_payload(entry.payload_ref)
                except TablesError:
                    continue  # just removed by retention
            if payload is not None and entry.properties is not None:  # likewise, with its file
                found.append(entry.to_query_hit(payload))
        return found

    def _load_contents(self, rows: list[Row], asked: PageContext, snapshot: TableSnapshot) -> None:
        """Load the contents of rows that were returned without."""
        if not rows:
            return
        table = self._contents([row.offset for row in rows], asked, snapshot)
        columns = (table[name].to_pylist() for name in ("offset", "properties", "payload"))
        by_offset = {offset: rest for offset, *rest in zip(*columns, strict=True)}
        for row in rows:
            row.properties, row.payload = by_offset.get(row.offset, (row.properties, None))

    def _contents(
        self, offsets: list[int], asked: PageContext, snapshot: TableSnapshot
    ) -> pa.Table:
        engine = self._planner.named(asked.checked.query.engine or "datafusion")
        files = list(asked.opened.values())
        return engine.contents(snapshot, self._node, files, offsets, asked.check)

    def _whole_rows(
        self, pile: TableBuilder, asked: PageContext, snapshot: TableSnapshot
    ) -> pa.Table:
        """The rows with their contents; without those that retention has just removed."""
        rows = pile.rows
        _check_largest(pc.max(rows["payload_bytes"]).as_py() or 0)
        is_outside = pc.is_valid(rows["payload_ref"])
        lacking = pc.or_(
            pc.is_null(rows["properties"]),
            pc.and_(pc.is_null(rows["payload"]), pc.invert(is_outside)),
        )
        offsets = rows.filter(lacking)["offset"].to_pylist()
        if offsets:
            rows = with_contents(rows, self._contents(offsets, asked, snapshot), lacking)
        if any(is_outside.to_pylist()):
            payloads = map(self._payload, rows["payload"], rows["payload_ref"].to_pylist())
            column = pa.array(payloads, pa.binary())
            rows = rows.set_column(rows.column_names.index("payload"), "payload", column)
        is_whole = pc.and_(pc.is_valid(rows["properties"]), pc.is_valid(rows["payload"]))
        return rows.filter(is_whole).combine_chunks()

    def _payload(self, inside: pa.Scalar, ref: str | None) -> Any:
        try:
            return inside if ref is None else self._archive.storage.read_payload(ref)
        except TablesError:
            return None


def _check_largest(size: int) -> None:
    if size > _LARGEST:
        problem = f"an event has more than the {_LARGEST:,} bytes a page can have"
        raise InvalidQueryError(problem)


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
