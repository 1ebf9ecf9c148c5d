"""Decodes messages from other nodes, tolerating malformed ones."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_or_none(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T | None:
    """Returns None for data that `decoder` does not accept.

    All of msgspec's own errors are ValueErrors; so is what it raises for text that is not UTF-8.
    """
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError, OverflowError):
        return None
