"""Splits a byte stream into packets."""

from __future__ import annotations

from accord.core.mqtt.codes import ProtocolError, Reason, malformed


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
