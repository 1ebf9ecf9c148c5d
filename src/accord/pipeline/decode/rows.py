"""Converts journal records to table rows, column by column: the archive's hot path.

The meaning is that of `KeptEvent.event` and `attributes.to_row`. A record that can't be read as an
event keeps all its fields, and has null for what its properties would have given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accord.core.model.former_names import current_detail
from accord.core.model.values import INTEGER_MAX, INTEGER_MIN
from accord.core.monitoring.ledger import ALPHABET, Row, outcome_name
from accord.journal.events import KeptEvent
from accord.journal.ledger_records import LedgerRecord
from accord.pipeline.decode.attributes import held
from accord.pipeline.decode.msgpack_fields import Flags, Places, TextSlices
from accord.pipeline.decode.property_columns import PropertyColumns
from accord.pipeline.decode.scan import ScannedEvents, decode_batch, scan_events
from accord.pipeline.tables import (
    ARROW,
    ATTRIBUTES,
    LAST_MS,
    METADATA,
    PATHS,
    PATHS_TYPE,
    arrow_events,
    arrow_ledger,
)

__all__ = ["columns_of", "decode_batch", "event_columns", "ledger_columns"]

_DAY_MS: Final = 86_400_000
_SHIFTS: Final = np.arange(60, -1, -5)  # of the digits of an event's ID
_DIGITS: Final = np.frombuffer(ALPHABET.encode(), np.uint8)
_rows: Final = msgspec.msgpack.Decoder(list[Row])


def event_columns(
    records: Sequence[KeptEvent],
    offsets: Sequence[int],
    node: str,
    declared: Mapping[str, str],
    wanted: Collection[str] | None = None,
) -> pa.RecordBatch:
    """Rows of the event table, in order; only the `wanted` columns."""
    return columns_of(scan_events(records, offsets), node, declared, wanted)


def columns_of(
    events: ScannedEvents,
    node: str,
    declared: Mapping[str, str],
    wanted: Collection[str] | None = None,
    refs: Mapping[int, str] = MappingProxyType({}),
) -> pa.RecordBatch:
    """The same, without intermediate objects.

    `refs` is, by row, where a payload is stored if not in the table.
    """
    schema = _pruned(arrow_events(declared), wanted)
    columns = _EventColumns(events, node, declared, refs)
    return pa.RecordBatch.from_arrays([columns.get(f.name, f.type) for f in schema], schema=schema)


def _pruned(schema: pa.Schema, wanted: Collection[str] | None) -> pa.Schema:
    if wanted is None:
        return schema
    return pa.schema([field for field in schema if field.name in wanted])


class _EventColumns:
    """Columns of events, each built on demand."""

    def __init__(
        self, events: ScannedEvents, node: str, declared: Mapping[str, str], refs: Mapping[int, str]
    ) -> None:
        self._events = events
        self._declared = declared
        self._refs = refs
        sizes = events.payloads.ends - events.payloads.starts
        self._makers: dict[str, Callable[[pa.DataType], pa.Array]] = {
            "node": lambda kind: pa.repeat(pa.scalar(node, kind), len(events)),
            "offset": lambda kind: pa.array(events.offsets, kind),
            "number": lambda kind: pa.array(events.numbers, kind),
            "channel": lambda kind: _chosen(events.channel_names, kind),
            "publisher": lambda kind: _chosen(events.publisher_names, kind),
            "received": lambda _kind: _times(events.received_ms),
            "qos": lambda kind: pa.array(events.qos & 0xFF, kind),
            "key": self._key,
            "deadline_ms": self._deadline_ms,
            "content_type": self._content_type,
            ATTRIBUTES: lambda _kind: self._contents.attributes(but=self._typed[1]),
            METADATA: lambda kind: self._of_documents(lambda each: each.source, kind),
            PATHS: lambda _kind: self._of_documents(lambda e: list(e.paths.items()), PATHS_TYPE),
            "payload": self._payload,
            "payload_bytes": lambda kind: pa.array(sizes, kind),
            "payload_ref": self._payload_ref,
            "properties": lambda _kind: events.array(events.blocks),
            "day": lambda _kind: _days(events.received_ms),
        }

    def get(self, name: str, kind: pa.DataType) -> pa.Array:
        return self._typed[0][name] if name in self._declared else self._makers[name](kind)

    @cached_property
    def _contents(self) -> PropertyColumns:
        return PropertyColumns(self._events)

    @cached_property
    def _typed(self) -> tuple[dict[str, pa.Array], Flags]:
        """The declared attributes, and the entries they hold."""
        contents = self._contents
        is_held: Flags = np.zeros(len(contents.rows), np.bool_)
        columns = {}
        for name, kind in self._declared.items():
            column, mine = contents.column(name, partial(held, kind=kind))
            columns[name] = column.array(ARROW[kind])
            is_held |= mine
        return columns, is_held

    def _key(self, kind: pa.DataType) -> pa.Array:
        return self._contents.keys.array(kind)

    def _deadline_ms(self, kind: pa.DataType) -> pa.Array:
        return self._contents.deadlines.array(kind)

    def _content_type(self, kind: pa.DataType) -> pa.Array:
        return self._contents.content_types.array(kind)

    def _of_documents(self, part: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
        documents = self._contents.documents
        if not documents:
            return pa.nulls(len(self._events), kind)
        found = map(documents.get, range(len(self._events)))
        return pa.array([None if each is None else part(each) for each in found], kind)

    def _payload(self, kind: pa.DataType) -> pa.Array:
        events = self._events
        if not self._refs:
            return events.array(events.payloads)
        # Payloads stored outside the table must not be copied.
        ends = events.payloads.ends.copy()
        rows = list(self._refs)
        ends[rows] = events.payloads.starts[rows]
        payloads = events.array(TextSlices(events.payloads.rows, events.payloads.starts, ends))
        is_external = np.zeros(len(events), np.bool_)
        is_external[rows] = True
        return pc.if_else(pa.array(is_external), pa.scalar(None, kind), payloads)

    def _payload_ref(self, kind: pa.DataType) -> pa.Array:
        if not self._refs:
            return pa.nulls(len(self._events), kind)
        return pa.array(list(map(self._refs.get, range(len(self._events)))), kind)


def _chosen(column: tuple[Places, Sequence[Any]], kind: pa.DataType) -> pa.Array:
    which, different = column
    return pa.array(different, kind).take(pa.array(which))


def _days(ms: Places) -> pa.Array:
    return pa.array(np.clip(ms, 0, LAST_MS) // _DAY_MS, pa.int32()).cast(pa.date32())


def ledger_columns(
    records: Sequence[LedgerRecord],
    offsets: Sequence[int],
    node: str,
    wanted: Collection[str] | None = None,
) -> pa.RecordBatch:
    """Rows of the ledger table, grouped by record; `scan.UNREADABLE` if damaged."""
    batches = [_rows.decode(record.rows) for record in records]
    sizes = [len(rows) for rows in batches]
    columns = list(zip(*chain.from_iterable(batches), strict=True)) or [()] * 14
    base = [_whole([getattr(r, n) for r in records]) for n in ("first_number", "first_ms")]
    first_number, first_ms = (np.repeat(each, sizes) for each in base)
    number = np.clip(_whole(columns[0]) + first_number, 0, INTEGER_MAX)
    more = np.maximum(_whole(columns[2]), 1) - 1
    received = _whole(columns[1]) + first_ms
    queued = received + _whole(columns[7])
    done = queued + _whole(columns[8])
    makers: dict[str, Callable[[], Any]] = {
        "node": lambda: pa.repeat(pa.scalar(node, pa.string()), len(number)),
        "offset": lambda: np.repeat(np.array(offsets, np.int64), sizes),
        "number": lambda: _numbered(number, number),
        "last_number": lambda: _numbered(number, number + np.minimum(more, INTEGER_MAX - number)),
        "id": lambda: event_ids(number),
        "count": lambda: columns[2],
        "channel": lambda: columns[3],
        "publisher": lambda: columns[4],
        "destination": lambda: columns[5],
        "outcome": lambda: list(map(outcome_name, columns[6])),
        "received": lambda: _times(received),
        "queued": lambda: _times(queued),
        "done": lambda: _times(done),
        "bytes": lambda: columns[9],
        "importance": lambda: columns[10],
        "policy": lambda: columns[11],
        "detail": lambda: list(map(current_detail, columns[12])),
        "sending_us": lambda: columns[13],
        "day": lambda: _days(done),
    }
    schema = _pruned(arrow_ledger(), wanted)
    arrays = [pa.array(makers[field.name](), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def event_ids(numbers: Places) -> pa.Array:
    """As `core.monitoring.ledger.event_id` has them."""
    digits = (numbers[:, np.newaxis] >> _SHIFTS) & 31
    data = _DIGITS[digits].tobytes()
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * len(_SHIFTS)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    ids = pc.utf8_ltrim(pa.Array.from_buffers(pa.string(), len(numbers), buffers), "0")
    return pc.if_else(pc.equal(ids, ""), "0", ids)


def _numbered(number: Places, values: Places) -> pa.Array:
    """Null for entries that are of no event."""
    return pa.array(values, mask=number == 0)


def _whole(numbers: Sequence[int]) -> Places:
    """As 64-bit integers, clamped to their range."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array([max(min(n, INTEGER_MAX), INTEGER_MIN) for n in numbers], np.int64)


def _times(ms: Places) -> pa.Array:
    return pa.array(np.clip(ms, 0, LAST_MS) * 1000, pa.timestamp("us", tz="UTC"))
