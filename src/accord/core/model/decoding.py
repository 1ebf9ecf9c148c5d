"""What others said, as far as it is anything that they could have said."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_or_none(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T | None:
    """None where it is nothing that `decoder` knows.

    Of msgspec's own errors all are ValueErrors; so is what it raises for text that is not UTF-8.
    """
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError, OverflowError):
        return None
