"""Splits a byte stream into frames, however it was segmented.

A frame is a length of four bytes, then one byte for its class and its body; the length covers both.
"""

from __future__ import annotations

from typing import Final

from accord.core.links.errors import CloseReason, LinkError

HEADER_BYTES: Final = 5
_LENGTH_BYTES: Final = 4
MIN_CLASS: Final = 0
MAX_CLASS: Final = 4


class LinkFramer:
    """Buffers received bytes until frames are complete, and returns them one by one.

    `limit` may change between two frames. At most one frame of that size is buffered besides the
    last read, and an incomplete one is examined again only when all of it has arrived.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._data = b""
        self._at = 0
        self._pending = bytearray()
        self._needed = 0

    @property
    def buffered_bytes(self) -> int:
        return len(self._pending) + len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        """Add received bytes; the caller then calls `take` until no complete frame is left."""
        assert self._at == len(self._data)
        self._at = 0
        if not self._pending:
            self._data = data
            return
        self._pending += data
        if len(self._pending) >= self._needed:
            self._data = bytes(self._pending)
            self._pending.clear()
        else:
            self._data = b""

    def take(self) -> tuple[int, memoryview] | None:
        """The next frame: class and body. After an error the stream is unusable."""
        at, data = self._at, self._data
        left = len(data) - at
        if left == 0:
            return None
        if left < HEADER_BYTES:
            self._keep(HEADER_BYTES)
            return None
        size = _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES])
        self._check(size, data[at + _LENGTH_BYTES])
        if left < size:
            self._keep(size)
            return None
        self._at = at + size
        return data[at + _LENGTH_BYTES], memoryview(data)[at + HEADER_BYTES : at + size]

    def clear(self) -> None:
        """Discard all buffered bytes."""
        self._data = b""
        self._at = 0
        self._pending.clear()

    def _keep(self, needed: int) -> None:
        self._needed = needed
        self._pending += self._data[self._at :]
        self._data = b""
        self._at = 0

    def _check(self, size: int, kind: int) -> None:
        if size < HEADER_BYTES:
            raise LinkError(CloseReason.GARBAGE, "a frame without a class")
        if not MIN_CLASS <= kind <= MAX_CLASS:
            raise LinkError(CloseReason.GARBAGE, f"a frame of the unknown class {kind}")
        if size > self.limit:
            problem = f"a frame of {size} bytes, at most {self.limit} accepted"
            raise LinkError(CloseReason.TOO_LARGE, problem)
