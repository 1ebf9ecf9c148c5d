"""Columnar scan: locates journal records in their bytes, thousands at once, with numpy.

Kept events have the same fields in the same order, so one step reads the first field of all, the
next step the second. Results are numbers and positions in the buffer: no object is created per
event, nothing is copied. A record in another form than nodes write is decoded and re-encoded in
that form; see `journal.events` for the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from accord.core.model.values import INTEGER_MAX, INTEGER_MIN
from accord.journal.events import KeptEvent, decode_event
from accord.journal.ledger_records import LedgerRecord, decode_ledger
from accord.journal.record import Batch
from accord.pipeline.decode.msgpack_fields import (
    ADDED,
    BINARY,
    FEWEST,
    TEXT,
    MsgpackFields,
    Places,
    TextSlices,
)

PAD: Final = b"\0" * 16  # reads may run past the end, which is checked afterwards
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
_LIST: Final = b"\xdd"  # msgpack's array header with a four-byte length
_batch: Final = msgspec.msgpack.Decoder(list[KeptEvent | LedgerRecord])
_encode: Final = msgspec.msgpack.Encoder().encode


class ScannedEvents:
    """Kept events, as positions in `data`: a row for each."""

    def __init__(self, data: bytes, offsets: Places, starts: Places, ends: Places) -> None:
        self.data = data
        self.offsets = offsets
        self._starts = starts
        self._ends = ends
        fields = MsgpackFields(data, starts, ends)
        self.received_ms = fields.integers()
        self.channels = fields.pieces(TEXT)
        self.publishers = fields.pieces(TEXT)
        self.qos = fields.integers()
        self.expiry_s = fields.integers()
        self.blocks = fields.pieces(BINARY)
        self.payloads = fields.pieces(BINARY)
        self.numbers = fields.integers()
        for kind in ADDED[: fields.items - FEWEST]:
            fields.skip(kind)
        self.is_irregular = fields.is_irregular | (fields.at != ends)

    @cached_property
    def channel_names(self) -> tuple[Places, list[str | None]]:
        return self.different(self.channels)

    @cached_property
    def publisher_names(self) -> tuple[Places, list[str | None]]:
        return self.different(self.publishers)

    def __len__(self) -> int:
        return len(self.offsets)

    def array(self, texts: TextSlices) -> pa.Array:
        """The ranges as a binary array."""
        count = len(texts.starts)
        if not count:
            return pa.array([], pa.binary())
        bounds = np.empty(2 * count, np.int32)  # the gaps between ranges are ranges as well
        bounds[0::2] = texts.starts
        bounds[1::2] = texts.ends
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))

    def different(self, texts: TextSlices) -> tuple[Places, list[str | None]]:
        """Dictionary-encode the texts: index of each, and the distinct ones; None if not UTF-8."""
        found = self.array(texts).dictionary_encode()
        return found.indices.to_numpy().astype(np.int64), _decoded(found.dictionary)

    def record(self, row: int) -> KeptEvent:
        return decode_event(self.data[self._starts[row] : self._ends[row]])


class Records(msgspec.Struct, frozen=True):
    """The records of some batches by kind; `unread` are of no known kind."""

    events: ScannedEvents
    ledger: list[LedgerRecord]
    ledger_offsets: list[int]
    unread: list[tuple[int, bytes]]


def _decoded(raw: pa.Array) -> list[str | None]:
    try:
        return list(raw.cast(pa.string()).to_pylist())
    except pa.ArrowInvalid:
        return [_text(each) for each in raw.to_pylist()]


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def scan(batches: Sequence[Batch]) -> Records:
    """Scan the records of `batches`; bad ones do not affect the others."""
    sizes = np.fromiter(chain.from_iterable(batch.lengths for batch in batches), np.int64)
    offsets = np.concatenate(
        [np.arange(batch.first_offset, batch.end_offset) for batch in batches]
        or [np.zeros(0, np.int64)]
    )
    data = b"".join((*(batch.data for batch in batches), PAD))
    ends = np.cumsum(sizes)
    return _scan(data, offsets, ends - sizes, ends)


class Decoded(msgspec.Struct, frozen=True):
    """The records of a batch as objects, with their offsets; `unread` are of no known kind."""

    events: list[KeptEvent]
    event_offsets: Any
    ledger: list[LedgerRecord]
    ledger_offsets: Any
    unread: list[tuple[int, bytes]]


def decode_batch(batch: Batch) -> Decoded:
    """The result of `scan` as objects."""
    first = batch.first_offset
    try:
        head = _LIST + batch.count.to_bytes(4, "big")
        records = _batch.decode(b"".join((head, batch.data)))
    except UNREADABLE:
        return _sorted(enumerate(map(_decode, batch.records()), first), batch)
    events = [record for record in records if isinstance(record, KeptEvent)]
    if len(events) == len(records):
        return Decoded(events, range(first, first + len(events)), [], (), [])
    return _sorted(enumerate(records, first), batch)


def _sorted(records: Iterable[tuple[int, Any]], batch: Batch) -> Decoded:
    decoded = Decoded([], [], [], [], [])
    for offset, record in records:
        if isinstance(record, KeptEvent):
            decoded.events.append(record)
            decoded.event_offsets.append(offset)
        elif isinstance(record, LedgerRecord):
            decoded.ledger.append(record)
            decoded.ledger_offsets.append(offset)
        else:
            raw = batch.between(offset, offset + 1).records()[0]
            decoded.unread.append((offset, raw))
    return decoded


def scan_events(records: Sequence[KeptEvent], offsets: Sequence[int]) -> ScannedEvents:
    """The same for decoded records."""
    data, starts, ends = _joined([_encode(_fitting(record)) for record in records])
    return _scan(data, np.array(offsets, np.int64), starts, ends).events


def _scan(data: bytes, offsets: Places, starts: Places, ends: Places) -> Records:
    events = ScannedEvents(data, offsets, starts, ends)
    is_odd = events.is_irregular
    for which, names in (events.channel_names, events.publisher_names):
        if None in names:
            is_odd |= np.array([name is None for name in names], np.bool_)[which]
    if not is_odd.any():
        return Records(events, [], [], [])
    ledger: list[LedgerRecord] = []
    ledger_offsets: list[int] = []
    unread: list[tuple[int, bytes]] = []
    reworded: dict[int, bytes] = {}
    is_event = ~is_odd
    for row in np.flatnonzero(is_odd).tolist():
        raw, offset = data[starts[row] : ends[row]], int(offsets[row])
        found = _decode(raw)
        if isinstance(found, KeptEvent):
            reworded[row] = _encode(_fitting(found))
            is_event[row] = True
        elif isinstance(found, LedgerRecord):
            ledger.append(found)
            ledger_offsets.append(offset)
        else:
            unread.append((offset, raw))
    rows = np.flatnonzero(is_event)
    if reworded:
        encoded = [reworded.get(r) or data[starts[r] : ends[r]] for r in rows.tolist()]
        data, starts, ends = _joined(encoded)
    else:
        starts, ends = starts[rows], ends[rows]
    return Records(ScannedEvents(data, offsets[rows], starts, ends), ledger, ledger_offsets, unread)


def _joined(encoded: Sequence[bytes | memoryview]) -> tuple[bytes, Places, Places]:
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(sizes)
    return b"".join((*encoded, PAD)), ends - sizes, ends


def _decode(raw: bytes) -> KeptEvent | LedgerRecord | None:
    try:
        return decode_event(raw)
    except UNREADABLE:
        pass
    try:
        return decode_ledger(raw)
    except UNREADABLE:
        return None


def _fitting(event: KeptEvent) -> KeptEvent:
    """With numbers clamped to signed 64 bits."""
    names = ("received_ms", "qos", "expiry_s", "number")
    clipped = {n: max(INTEGER_MIN, min(INTEGER_MAX, getattr(event, n))) for n in names}
    return msgspec.structs.replace(event, **clipped)
