"""Encodes messages into frames and decodes them.

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
from accord.core.links.framing import HEADER_BYTES

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
