"""Chunks of a node's journal for remote readers: msgpack over HTTP.

`GET /api/v1/journal/records?offset=…&max_bytes=…` returns a `JournalChunk`; the next request uses
its `next_offset`. The pipeline of a site connects to `PIPELINE?node=NAME`, a WebSocket over which
the frames of `messages` travel in binary messages of any length.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

JOURNAL: Final = "/api/v1/journal"
PIPELINE: Final = "/api/v1/pipeline"
RECORDS: Final = f"{JOURNAL}/records"
MSGPACK: Final = "application/vnd.msgpack"


class NodeAddress(Struct, frozen=True):
    """The HTTP address of a node; `url` is without user and password."""

    url: str
    user: str | None = None
    password: str | None = None


def parse_node_address(text: str) -> NodeAddress:
    """Raises ValueError that says what was expected, without the password."""
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    if not has_host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise ValueError('expected http:// or https:// and a host: "https://user@denver:8080"')
    host = parts.netloc.rpartition("@")[2]
    return NodeAddress(
        urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")),
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )


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
