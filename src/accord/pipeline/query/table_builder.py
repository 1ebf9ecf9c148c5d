"""Rows of a part of an export, as a table: those of the archive and those of the tail, in order.

It takes chunks as `pages.PageBuilder` does, without an object for each row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accord.core.queries.messages import QueryHit
from accord.pipeline.query.chunks import ROW_SCHEMA, Chunk, times_ms
from accord.pipeline.query.scan_ranges import SortRank
from accord.pipeline.query.tail import EVENT_BYTES, Hit


class TableBuilder:
    """Rows in order, up to `rows` and about `bytes_`; `fetch` returns the events of hits."""

    def __init__(
        self,
        rows: int,
        bytes_: int,
        after: SortRank | None,
        hits: Sequence[Hit],
        fetch: Callable[[Sequence[int]], list[QueryHit]],
    ) -> None:
        self.is_full = False  # the next row does not fit
        self.reached = after
        self.remaining = rows
        self.count = 0
        self._bytes_left = bytes_
        self._hits = hits
        self._next_hit = 0
        self._fetch = fetch
        self._parts = [ROW_SCHEMA.empty_table()]

    @property
    def rows(self) -> pa.Table:
        return pa.concat_tables(self._parts).combine_chunks()

    def merge(self, chunk: Chunk) -> None:
        """Add the next rows, up to the end of `chunk` or until the part is full."""
        rows = chunk.rows.slice(chunk.index(self.reached), self.remaining + 1)
        found = [rows.select(ROW_SCHEMA.names).cast(ROW_SCHEMA)]
        if hits := self._hits_before(chunk.end):
            found.append(_of_tail(self._fetch([hit.offset for hit in hits])))
        both = pa.concat_tables(found)
        if hits:
            order = "descending" if chunk.is_newest_first else "ascending"
            both = both.take(
                pc.sort_indices(both, sort_keys=[("received", order), ("offset", order)])
            )
        fitting = self._fitting(both)
        self._add(both.slice(0, fitting), is_newest_first=chunk.is_newest_first)
        self.is_full = fitting < len(both)
        if hits and self.reached is not None:
            self._next_hit = bisect_right(self._hits, self.reached, key=lambda hit: hit.rank)
        if not self.is_full and chunk.end is not None:
            self.reached = chunk.end

    def _hits_before(self, end: SortRank | None) -> Sequence[Hit]:
        last = len(self._hits)
        if end is not None:
            last = bisect_right(self._hits, end, key=lambda hit: hit.rank)
        return self._hits[self._next_hit : min(last, self._next_hit + self.remaining + 1)]

    def _fitting(self, rows: pa.Table) -> int:
        """How many rows fit; one does in any case."""
        texts = pc.binary_length(rows["channel"])
        size = pc.add(pc.add(rows["properties_bytes"], rows["payload_bytes"]), texts)
        sizes = np.cumsum(size.to_numpy() + EVENT_BYTES)
        fitting = min(int(np.searchsorted(sizes, self._bytes_left, "right")), self.remaining)
        if not self.count:
            fitting = max(fitting, min(1, len(rows)))
        if fitting:
            self._bytes_left -= int(sizes[fitting - 1])
        return fitting

    def _add(self, rows: pa.Table, *, is_newest_first: bool) -> None:
        if not len(rows):
            return
        self._parts.append(rows)
        self.count += len(rows)
        self.remaining -= len(rows)
        last = rows.slice(len(rows) - 1)
        ms, offset = times_ms(last["received"])[0], last["offset"][0].as_py()
        self.reached = (-ms, -offset) if is_newest_first else (ms, offset)


def _of_tail(events: Sequence[QueryHit]) -> pa.Table:
    columns = {
        "received": [each.received_ms * 1_000 for each in events],
        "offset": [each.offset for each in events],
        "number": [each.number for each in events],
        "channel": [each.channel for each in events],
        "publisher": [each.publisher for each in events],
        "qos": [each.qos & 0xFF for each in events],
        "properties": [each.properties for each in events],
        "payload": [each.payload for each in events],
        "payload_ref": [None] * len(events),
        "payload_bytes": [len(each.payload) for each in events],
        "properties_bytes": [len(each.properties) for each in events],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in ROW_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=ROW_SCHEMA)


def with_contents(rows: pa.Table, contents: pa.Table, lacking: pa.Array) -> pa.Table:
    """The rows, those `lacking` with properties and payload of `contents`; without lost ones."""
    place = pc.index_in(rows["offset"], contents["offset"].combine_chunks())
    for name in ("properties", "payload"):
        more = contents[name].combine_chunks().take(place.combine_chunks())
        column = pc.if_else(lacking, pc.coalesce(more, rows[name]), rows[name])
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows
