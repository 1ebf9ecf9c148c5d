"""Attributes straight from the properties of MQTT 5 messages, to match a whole read at once.

Messages that cannot be decided here are *undecided*, and the edge decodes them: those with XML
metadata, a repeated reserved name or very many properties, and bytes that are not properties.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Final

from accord.core.model.values import Value, infer

UNDECIDED: Final = 0  # among the answers
MAX_PROPERTIES: Final = 256
METADATA: Final = b"metadata"
RESERVED: Final = frozenset({METADATA, b"key", b"deadline-ms"})

_USER: Final = 0x26
_IDENTIFIER: Final = 0x0B
_VARINT: Final = re.compile(rb"[\x80-\xff]{1,3}[\x01-\x7f]|[\x00-\x7f]")
_SIZES: Final = {0x01: 1, 0x02: 4, 0x23: 2}
_WITH_LENGTH: Final = frozenset({0x03, 0x08, 0x09})


def attributes(block: bytes) -> dict[str, Value] | None:
    """The attributes in a block of properties (without its length); None if undecided."""
    texts: dict[bytes, bytes] = {}
    position = count = 0
    while position < len(block):
        identifier = block[position]
        position += 1
        if identifier == _USER:
            name, position = _binary(block, position)
            text, position = _binary(block, position)
            count += 1
            is_repeated = name in texts
            if position > len(block) or count > MAX_PROPERTIES or name == METADATA:
                return None
            if is_repeated and name in RESERVED:
                return None
            if not is_repeated:
                texts[name] = text
        elif identifier in _WITH_LENGTH:
            _, position = _binary(block, position)
        elif identifier == _IDENTIFIER:
            found = _VARINT.match(block, position)
            if found is None:
                return None
            position = found.end()
        elif identifier in _SIZES:
            position += _SIZES[identifier]
        else:
            return None
    if position > len(block):
        return None
    return {
        name.decode(): infer(text.decode()) for name, text in texts.items() if name not in RESERVED
    }


def _binary(block: bytes, position: int) -> tuple[bytes, int]:
    """The length-prefixed bytes at `position`, and their end, which may be past the block's."""
    start = position + 2
    end = start + int.from_bytes(block[position:start], "big")
    return block[start:end], end


def pairs(spans: Any, size: int) -> list[tuple[int, int]]:
    """`spans` as numbers: start and end of each block in data of this size."""
    octets = bytes(spans)
    found = [] if len(octets) % 8 else list(struct.iter_unpack("=II", octets))
    if len(octets) % 8 or any(not start <= end <= size for start, end in found):
        raise ValueError("a span beyond the data, or half of one")
    return found
