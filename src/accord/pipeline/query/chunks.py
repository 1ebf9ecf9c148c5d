"""Cache of what engines found, for the pages that follow."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from accord.core.queries.messages import EngineName, QueryHit
from accord.pipeline.query.scan_ranges import SortRank
from accord.pipeline.query.tail import size_of
from accord.pipeline.tables import TableFile

CACHE_BYTES: Final = 96 << 20
_MOST: Final = 256


@dataclass(kw_only=True)
class Chunk:
    """Rows after `start` up to `end`, in query order; up to the last if there is no end.

    Found when the archive ended at `archived`: later records are not in it, even if they have been
    archived since.
    """

    rows: pa.Table
    start: SortRank | None
    end: SortRank | None
    archived: int
    files: tuple[TableFile, ...]
    target: int  # rows of the next scan range
    is_newest_first: bool
    engine: EngineName | None = None  # that found it; None if nothing had to be read

    @property
    def bytes(self) -> int:
        held: int = self.rows.nbytes
        return held + 200 * len(self.rows)

    @cached_property
    def _times(self) -> list[int]:
        return times_ms(self.rows["received"])

    @cached_property
    def ranks(self) -> list[SortRank]:
        places = zip(self._times, self.rows["offset"].to_pylist(), strict=True)
        return [(-ms, -at) for ms, at in places] if self.is_newest_first else list(places)

    def covers(self, after: SortRank) -> bool:
        """Whether the rows that follow `after` are in it."""
        is_behind = self.start is None or self.start <= after
        return is_behind and (self.end is None or after < self.end)

    def index(self, after: SortRank | None) -> int:
        """Index of the first row after `after`."""
        return 0 if after is None else bisect_right(self.ranks, after)

    def take_rows(self, first: int, count: int) -> list[Row]:
        """Return `count` rows from index `first`."""
        part = self.rows.slice(first, count)
        columns = [part[name].to_pylist() for name in _COLUMNS]
        times = self._times[first : first + count]
        return [Row(*values) for values in zip(times, *columns, strict=True)]


_COLUMNS: Final = (
    "offset",
    "number",
    "channel",
    "publisher",
    "qos",
    "properties",
    "payload",
    "payload_ref",
    "payload_bytes",
    "properties_bytes",
)

ROW_SCHEMA: Final = pa.schema(
    [
        ("received", pa.timestamp("us", "UTC")),
        ("offset", pa.int64()),
        ("number", pa.int64()),
        ("channel", pa.string()),
        ("publisher", pa.string()),
        ("qos", pa.int32()),
        ("properties", pa.binary()),
        ("payload", pa.binary()),
        ("payload_ref", pa.string()),
        ("payload_bytes", pa.int64()),
        ("properties_bytes", pa.int64()),
    ]
)
ROW: Final = tuple(ROW_SCHEMA.names)
NO_ROWS: Final = ROW_SCHEMA.empty_table()


def times_ms(times: pa.ChunkedArray) -> list[int]:
    return [each // 1000 for each in times.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()]


@dataclass(slots=True)
class Row:
    """A row of the archive; large contents are not loaded yet."""

    received_ms: int
    offset: int
    number: int
    channel: str
    publisher: str
    qos: int
    properties: bytes | None
    payload: bytes | None
    payload_ref: str | None
    payload_bytes: int
    properties_bytes: int

    @property
    def size(self) -> int:
        return size_of(self.channel, self.properties_bytes, self.payload_bytes)

    @property
    def is_whole(self) -> bool:
        return self.properties is not None and (
            self.payload is not None or self.payload_ref is not None
        )

    def to_query_hit(self, payload: bytes) -> QueryHit:
        assert self.properties is not None
        return QueryHit(
            self.offset,
            self.number,
            self.received_ms,
            self.channel,
            self.publisher,
            self.qos,
            self.properties,
            payload,
        )


class Chunks:
    """The current chunk of each query; the least recently used one is evicted."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._chunks: OrderedDict[tuple[bytes, int], Chunk] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, digest: bytes, before: int, after: SortRank | None) -> Chunk | None:
        """Return the chunk for the page after `after`; None for a first page."""
        with self._lock:
            chunk = self._chunks.get((digest, before))
            if chunk is None or after is None or not chunk.covers(after):
                return None
            self._chunks.move_to_end((digest, before))
            return chunk

    def target(self, digest: bytes, before: int, after: SortRank | None) -> int | None:
        """Scan size suggested by the chunk that ended there."""
        with self._lock:
            chunk = self._chunks.get((digest, before))
            return chunk.target if chunk is not None and after and chunk.end == after else None

    def put(self, digest: bytes, before: int, chunk: Chunk) -> None:
        self.drop(digest, before)
        if chunk.bytes > self._limit_bytes:
            return
        with self._lock:
            self._chunks[digest, before] = chunk
            self._bytes += chunk.bytes
            while self._bytes > self._limit_bytes or len(self._chunks) > _MOST:
                self._bytes -= self._chunks.popitem(last=False)[1].bytes

    def drop(self, digest: bytes, before: int) -> None:
        with self._lock:
            chunk = self._chunks.pop((digest, before), None)
            if chunk is not None:
                self._bytes -= chunk.bytes
