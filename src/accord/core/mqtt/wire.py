"""Primitive wire types: integers, variable byte integers, strings, binary data.

A `read_…` function takes the data, the start, and the end of the packet (or of the part of it), and
returns the value with the position after it. Data beyond the end is malformed. A `…_bytes` function
is the inverse; a value that does not fit is the caller's error (ValueError).
"""

from __future__ import annotations

from typing import Final

from accord.core.mqtt.codes import malformed

MAX_VARINT: Final = 268_435_455
MAX_BLOCK: Final = 65_535  # bytes of a string or of binary data


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A variable byte integer: seven bits per byte, low ones first, at most four bytes."""
    value = shift = 0
    while at < end and shift < 28:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise malformed("a variable byte integer is longer than needed")
            return value, at
        shift += 7
    raise malformed("a variable byte integer has no end")


def read_byte(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise malformed("the packet ends where a byte was expected")
    return data[at], at + 1


def read_two_bytes(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 2 > end:
        raise malformed("the packet ends where a two byte integer was expected")
    return data[at] << 8 | data[at + 1], at + 2


def read_binary(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    start = at + 2
    if start > end:
        raise malformed("the packet ends where a length was expected")
    stop = start + (data[at] << 8 | data[at + 1])
    if stop > end:
        raise malformed(f"a length of {stop - start} bytes, but {end - start} are left")
    return data[start:stop], stop


def read_string(data: bytes, at: int, end: int) -> tuple[str, int]:
    block, at = read_binary(data, at, end)
    try:
        text = block.decode()  # refuses surrogates and overlong forms too
    except UnicodeDecodeError as error:
        raise malformed(f"a string that is not UTF-8 at its byte {error.start + 1}") from None
    if "\0" in text:
        raise malformed("a string with a null character")
    return text, at


def varint_bytes(value: int) -> bytes:
    if 0 <= value < 0x80:
        return value.to_bytes(1, "big")
    if not 0 <= value <= MAX_VARINT:
        raise ValueError(f"expected 0 to {MAX_VARINT} for a variable byte integer, got {value}")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def binary_bytes(block: bytes) -> bytes:
    if len(block) > MAX_BLOCK:
        raise ValueError(f"expected at most {MAX_BLOCK} bytes of binary data, got {len(block)}")
    return len(block).to_bytes(2, "big") + block


def string_bytes(text: str) -> bytes:
    block = text.encode()
    if len(block) > MAX_BLOCK:
        raise ValueError(f"expected at most {MAX_BLOCK} bytes of text, got {len(block)}")
    if b"\0" in block:
        raise ValueError("expected text without a null character")
    return len(block).to_bytes(2, "big") + block
