"""Chunks of a node's journal for remote readers: msgpack over HTTP.

`GET /api/v1/journal/records?offset=…&max_bytes=…` returns a `JournalChunk`; the next request uses
its `next_offset`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

JOURNAL: Final = "/api/v1/journal"
RECORDS: Final = f"{JOURNAL}/records"
MSGPACK: Final = "application/vnd.msgpack"


class JournalExtent(Struct, frozen=True, kw_only=True):
    """The readable range: from `first_offset`, up to but excluding `next_offset`."""

    node: str
    first_offset: int
    next_offset: int


class PartBatch(Struct, frozen=True, array_like=True):
    """Consecutive records of these lengths, contiguous."""

    first_offset: int
    time_ms: int
    lengths: tuple[int, ...]
    data: bytes


class JournalGap(Struct, frozen=True, array_like=True):
    """Unreadable records, from `first_offset` up to but excluding `next_offset`, and why."""

    first_offset: int
    next_offset: int
    why: str


class JournalChunk(Struct, frozen=True, kw_only=True):
    """One chunk; `retired` is set if the requested records are gone: the journal starts there."""

    node: str
    next_offset: int  # of the next request
    end_offset: int  # of the committed records
    batches: tuple[PartBatch, ...] = ()
    gaps: tuple[JournalGap, ...] = ()
    retired: int | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(JournalChunk)


def encode_part(part: JournalChunk) -> bytes:
    return _encode(part)


def decode_part(body: bytes) -> JournalChunk:
    """Raises msgspec.DecodeError if `body` is not a chunk."""
    return _decoder.decode(body)
