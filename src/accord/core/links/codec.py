"""Codec of a link: splits a byte stream into frames, encodes and decodes their messages.

A frame is a length of four bytes, then one byte for its class and its body; the length covers both.

A control or data frame holds several messages as one msgpack array: encoded messages are just
concatenated, and a whole frame is decoded at once. A message larger than a piece is fragmented: all
but its last piece are sent in frames of class PART, the last as LAST. Control frames may be
interleaved, data frames may not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

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


LINK: Final = 0
CONTROL: Final = 1
DATA: Final = 2
PART: Final = 3
LAST: Final = 4

# Maximum overhead of a frame: its header and the head of the array.
FRAME_BYTES: Final = HEADER_BYTES + 5


class LinkCodec:
    """Codec for `messages`: a tagged struct, or a union of them."""

    def __init__(self, messages: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(list[messages]).decode
        self._decode_one = msgspec.msgpack.Decoder(messages).decode
        self.encode: Final = msgspec.msgpack.Encoder().encode

    def decode(self, body: bytes | memoryview) -> list[Any]:
        """The messages of a frame's body."""
        try:
            return self._decode(body)
        except (ValueError, RecursionError, OverflowError) as error:
            raise _unknown(error) from None

    def decode_one(self, message: bytes) -> Any:
        """Decode a message that was reassembled from pieces."""
        try:
            return self._decode_one(message)
        except (ValueError, RecursionError, OverflowError) as error:
            raise _unknown(error) from None


def frame(kind: int, body: bytes | memoryview) -> bytes:
    return b"".join(((len(body) + 1).to_bytes(4), bytes((kind,)), body))


def frame_of(kind: int, messages: Sequence[bytes]) -> bytes:
    """Encoded messages in one frame."""
    return frame(kind, body_of(messages))


def body_of(messages: Sequence[bytes]) -> bytes:
    """Encoded messages as one msgpack array."""
    count = len(messages)
    if count < 16:
        head = bytes((0x90 | count,))
    elif count < 65_536:
        head = b"\xdc" + count.to_bytes(2)
    else:
        head = b"\xdd" + count.to_bytes(4)
    return head + b"".join(messages)


def _unknown(error: Exception) -> LinkError:
    return LinkError(CloseReason.GARBAGE, f"a message that can't be read: {error}")
