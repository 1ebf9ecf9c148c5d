"""Cursors: the end of a page as text, sufficient to continue with the next page.

Events are ordered by time of receipt, then by offset: a total order in which no event ever moves. A
position in it therefore stays valid after files are compacted, records archived, or the service
restarted.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final
from zlib import crc32

import msgspec

from accord.core.model.values import INTEGER_MAX
from accord.pipeline.query_checks import InvalidQueryError

CursorPosition = tuple[int, int]  # time of receipt, offset
SortRank = tuple[int, int]  # a position, negated if newest first: lower comes first


class RemainingQuery(msgspec.Struct, frozen=True):
    """The rest of a query: offsets from `first` up to `before`, after position `after`."""

    first: int
    before: int
    after: SortRank | None


_VERSION: Final = 1
_CRC: Final = 4
_MOST: Final = 120
_UNLIMITED: Final = -1


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The last position examined; events from `before_offset` on are not part of the result."""

    version: int
    digest: bytes  # of the query
    received_ms: int
    offset: int
    before_offset: int
    left: int  # remaining events at most, -1 for no limit

    @property
    def place(self) -> CursorPosition:
        return self.received_ms, self.offset

    @property
    def limit(self) -> int | None:
        return None if self.left == _UNLIMITED else self.left


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Cursor)


def rank_of(place: CursorPosition, *, is_newest_first: bool) -> SortRank:
    return (-place[0], -place[1]) if is_newest_first else place


def write_cursor(
    digest: bytes, place: CursorPosition, *, before_offset: int, left: int | None
) -> str:
    left = _UNLIMITED if left is None else left
    body = _encode(Cursor(_VERSION, digest, *place, before_offset, left))
    return base64.urlsafe_b64encode(crc32(body).to_bytes(_CRC, "big") + body).decode().rstrip("=")


def read_cursor(text: str, digest: bytes) -> Cursor:
    """Parse a cursor; InvalidQueryError if malformed or of another query."""
    cursor = _decode(text)
    if cursor is None:
        raise InvalidQueryError("expected the cursor of a page, as it came", place="cursor")
    if cursor.digest != digest:
        raise InvalidQueryError("it is the cursor of another question", place="cursor")
    return cursor


def _decode(text: str) -> Cursor | None:
    if len(text) > _MOST or not text.isascii():
        return None
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = _decoder.decode(data[_CRC:])
    except (binascii.Error, msgspec.DecodeError):
        return None
    numbers = (cursor.received_ms, cursor.offset, cursor.before_offset, cursor.left + 1)
    is_whole = int.from_bytes(data[:_CRC], "big") == crc32(data[_CRC:])
    is_ours = cursor.version == _VERSION and all(0 <= each <= INTEGER_MAX for each in numbers)
    return cursor if is_whole and is_ours else None
