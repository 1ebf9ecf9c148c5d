"""Scan ranges: the next time range of the archive to read, and cursors between pages.

Results are found in output order, so the archive is scanned range by range until a page is full.
Each range has about a given number of rows. The best length depends on how many rows match, which
is unknown beforehand. The first range is short if all rows match, and otherwise as long as a quick
reply allows; whenever one yields too little, the next is longer by a factor.

A cursor is the end of a page as text, sufficient to continue with the next page. Events are ordered
by time of receipt, then by offset: a total order in which no event ever moves. A position in it
therefore stays valid after files are compacted, records archived, or the service restarted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from accord.core.model.values import INTEGER_MAX
from accord.pipeline.query.checks import CheckedQuery, InvalidQueryError
from accord.pipeline.tables import TableFile

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
    def position(self) -> CursorPosition:
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
        raise InvalidQueryError("the cursor belongs to another query", place="cursor")
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


MAX_CHUNK_ROWS: Final = 20_000
MIN_CHUNK_ROWS: Final = 100
CHUNK_BYTES: Final = 8 << 20
SELECTIVE_ROWS: Final = 400_000  # in the first range, if only some rows match
GROWTH: Final = 4
_WHOLE_FACTOR: Final = 1.25


class ScanRange(msgspec.Struct, frozen=True):
    """Times from `low_ms` up to `high_ms`; nothing follows it if it `is_last`."""

    files: tuple[TableFile, ...]
    low_ms: int
    high_ms: int
    is_last: bool

    def end(self, *, is_newest_first: bool) -> CursorPosition:
        """The last possible position in it."""
        return (self.low_ms, 0) if is_newest_first else (self.high_ms - 1, INTEGER_MAX)

    @property
    def rows(self) -> int:
        """About how many rows there are between these times."""
        return round(_estimate(self.files, self.low_ms, self.high_ms))

    @property
    def bytes(self) -> int:
        """About how many bytes of the files: pages of other times are skipped."""
        shares = (_share(file, self.low_ms, self.high_ms) * file.bytes for file in self.files)
        return round(sum(shares))


def rows_of_chunk(
    files: Sequence[TableFile], page: int, left: int | None, *, is_first: bool
) -> int:
    """How many rows to fetch at once: they fit into memory and serve several pages."""
    rows = sum(file.rows for file in files)
    bytes_ = sum(file.bytes for file in files)
    fitting = CHUNK_BYTES * rows // bytes_ if bytes_ else MAX_CHUNK_ROWS
    most = max(MIN_CHUNK_ROWS, min(max(MAX_CHUNK_ROWS, page), fitting))
    if is_first:  # a second page may never be requested
        most = min(most, 2 * page)
    return min(most, left) if left is not None else most


def first_target(question: CheckedQuery, files: Sequence[TableFile], chunk_rows: int) -> int:
    """How many rows the first range should have."""
    if question.query.number is not None:
        return sum(file.rows for file in files)  # a single event, at an unknown time
    if question.has_predicate:
        return SELECTIVE_ROWS
    is_whole = all(
        file.channels is not None and question.selects_between(*file.channels) for file in files
    )
    return round(_WHOLE_FACTOR * chunk_rows) if is_whole else SELECTIVE_ROWS


def next_scan_range(
    files: Sequence[TableFile], question: CheckedQuery, after: SortRank | None, target: int
) -> ScanRange:
    """The next range after `after`, with about `target` rows."""
    is_newest = question.is_newest_first
    low, high = _bounds(files, question, after)
    inside = [file for file in files if file.first_ms < high and file.last_ms >= low]
    if _estimate(inside, low, high) <= target or high - low <= 1:
        return ScanRange(tuple(inside), low, high, True)
    near, far = (high, low) if is_newest else (low, high)  # the target is between them
    while abs(far - near) > 1:
        middle = (near + far) // 2
        rows = _estimate(inside, middle, high) if is_newest else _estimate(inside, low, middle)
        if rows < target:
            near = middle
        else:
            far = middle
    low, high = (far, high) if is_newest else (low, far)
    chosen = [file for file in inside if file.first_ms < high and file.last_ms >= low]
    is_last = far == (_bounds(files, question, after)[0 if is_newest else 1])
    return ScanRange(tuple(chosen), low, high, is_last)


def _bounds(
    files: Sequence[TableFile], question: CheckedQuery, after: SortRank | None
) -> tuple[int, int]:
    """Time bounds of the rest of the result."""
    low = min(file.first_ms for file in files)
    high = max(file.last_ms for file in files) + 1
    if question.query.since_ms is not None:
        low = max(low, question.query.since_ms)
    if question.query.until_ms is not None:
        high = min(high, question.query.until_ms)
    if after is not None and question.is_newest_first:
        high = min(high, 1 - after[0])
    elif after is not None:
        low = max(low, after[0])
    return low, max(low, high)


def _estimate(files: Sequence[TableFile], low: int, high: int) -> float:
    """Estimated rows between these times, assuming an even distribution within a file."""
    return sum(file.rows * _share(file, low, high) for file in files)


def _share(file: TableFile, low: int, high: int) -> float:
    """The share of the file's time between these times."""
    inside = min(high, file.last_ms + 1) - max(low, file.first_ms)
    return max(0, inside) / (file.last_ms + 1 - file.first_ms)
