"""Builds one page: merges rows of the archive with hits from the journal's tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from accord.core.queries.messages import PageQuery
from accord.pipeline.chunks import Chunk, Row
from accord.pipeline.query_checks import CheckedQuery
from accord.pipeline.scan_plan import RemainingQuery, SortRank
from accord.pipeline.tables import FileEntry
from accord.pipeline.tail import Hit


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
