"""A piece of a node's journal, as who reads it from elsewhere gets it: msgpack over HTTP.

`GET /api/v1/journal/records?offset=…&max_bytes=…` answers with a `JournalChunk`; the next one is
asked for with its `next_offset`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

JOURNAL: Final = "/api/v1/journal"
RECORDS: Final = f"{JOURNAL}/records"
MSGPACK: Final = "application/vnd.msgpack"


class JournalExtent(Struct, frozen=True, kw_only=True):
    """What can be read: from `first_offset` up to but without `next_offset`."""

    node: str
    first_offset: int
    next_offset: int


class PartBatch(Struct, frozen=True, array_like=True):
    """Consecutive records, of these lengths and without anything between them."""

    first_offset: int
    time_ms: int
    lengths: tuple[int, ...]
    data: bytes


class JournalGap(Struct, frozen=True, array_like=True):
    """Records that can't be read: `first_offset` up to but without `next_offset`, and why."""

    first_offset: int
    next_offset: int
    why: str


class JournalChunk(Struct, frozen=True, kw_only=True):
    """`retired` is set where what was asked for is gone: what is left begins there."""

    node: str
    next_offset: int  # where to go on
    end_offset: int  # of what is committed
    batches: tuple[PartBatch, ...] = ()
    gaps: tuple[JournalGap, ...] = ()
    retired: int | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(JournalChunk)


def encode_part(part: JournalChunk) -> bytes:
    return _encode(part)


def decode_part(body: bytes) -> JournalChunk:
    """Raises msgspec.DecodeError for what is none."""
    return _decoder.decode(body)
