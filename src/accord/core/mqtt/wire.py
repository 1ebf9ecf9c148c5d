"""Wire format: integers, variable byte integers, strings, binary data, and packet framing.

A `read_…` function takes the data, the start, and the end of the packet (or of the part of it), and
returns the value with the position after it. Data beyond the end is malformed. A `…_bytes` function
is the inverse; a value that does not fit is the caller's error (ValueError).
"""

from __future__ import annotations

from typing import Final

from accord.core.mqtt.codes import ProtocolError, Reason, malformed

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


class Framer:
    """Buffers reads until packets are complete.

    An incomplete packet is collected in one growing buffer that is examined again only once it is
    complete: the work is linear in the bytes read. After an error the stream is unusable.
    """

    def __init__(self, maximum: int) -> None:
        """Packets of more than `maximum` bytes, including the header, are refused."""
        self._maximum = maximum
        self._pending = bytearray()
        self._needed = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The packets that `data` completes: first byte of the header, and body."""
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                return []
            data = bytes(self._pending)
            self._pending.clear()
        frames: list[tuple[int, bytes]] = []
        at, size = 0, len(data)
        while at < size:
            header = self._header(data, at, size)
            if header is None:
                self._needed = 0
                break
            start, end = header
            if end > size:
                self._needed = end - at
                break
            frames.append((data[at], data[start:end]))
            at = end
        if at < size:
            self._pending += data[at:] if at else data
        return frames

    def _header(self, data: bytes, at: int, size: int) -> tuple[int, int] | None:
        """Start and end of the body of the packet at `at`, if its length is complete."""
        length = shift = 0
        for place in range(at + 1, min(at + 5, size)):
            byte = data[place]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise malformed("a remaining length longer than needed")
                end = place + 1 + length
                if end - at > self._maximum:
                    raise ProtocolError(
                        Reason.PACKET_TOO_LARGE,
                        f"a packet of {end - at} bytes, at most {self._maximum} accepted",
                    )
                return place + 1, end
            shift += 7
        if shift == 28:
            raise malformed("a remaining length of more than four bytes")
        return None
