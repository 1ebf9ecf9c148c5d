"""Frames of a protocol in bulk.

At hundreds of thousands of events a second there is no time to handle each frame. But consecutive
frames are mostly alike: a *run* is a sequence of frames that begin alike and have the same size, so
that a byte of each, such as one of its packet identifier, is read for all at once.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

from accord.core.model.errors import AccordError

Buffer = bytes | bytearray | memoryview

_SHORT: Final = 16


class LoadError(AccordError):
    """The node did something that a measurement can't continue after."""


class LoadCounts:
    """What has come over a connection."""

    delivered = 0  # events
    acknowledged = 0  # publications
    refused = 0  # those of them that the node did not accept
    fences = 0  # that have no answer yet


class Dialect(Protocol):
    """A protocol, as far as the frames of a load are concerned."""

    @property
    def has_acks(self) -> bool:
        """Publications are acknowledged."""

    @property
    def fence(self) -> bytes:
        """A request that is answered once everything sent before it has been processed."""

    def header(self, buffer: bytearray, start: int, end: int) -> tuple[int, int] | None:
        """Size of the part of the frame at `start` that is equal in a run, and of all of it.

        None if they are not known yet.
        """

    def handle(self, run: Run, counts: LoadCounts) -> Buffer:
        """Count a run; returns the reply. LoadError for frames that have no place in a load."""


class Run:
    """The frames of a run: `number` of `size` bytes in `buffer`, which start with `head`.

    `read` and `advance` move it to the runs of what has been read, one after the other.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.buffer = bytearray()
        self.start = self.end = self.number = 0
        self.size = 1
        self.head = b"\0"
        self._columns = [self.head]
        self._dialect = dialect
        self._filled = self._most = 0

    def column(self, at: int) -> bytearray:
        """Byte `at` of each frame."""
        return self.buffer[self.start + at : self.end : self.size]

    def read(self, buffer: bytearray, filled: int) -> None:
        """The first `filled` bytes of `buffer` come next."""
        self.buffer, self._filled = buffer, filled
        self.end = 0
        self._most = filled

    def advance(self) -> bool:
        """Go to the next run of whole frames, if there is one; else `start` is where it will be."""
        buffer, filled = self.buffer, self._filled
        self.start = at = self.end
        if at == filled:
            return False
        # Most runs are like the one before.
        if not buffer.startswith(self.head, at):
            header = self._dialect.header(buffer, at, filled)
            if header is None:
                return False
            head, self.size = header
            self.head = bytes(buffer[at : at + head])
            self._columns = [bytes((byte,)) for byte in self.head]
        size = self.size
        whole = (filled - at) // size
        if not whole:
            return False
        whole = min(whole, self._most)
        count, end = whole, at + whole * size
        for byte in self._columns:
            column = buffer[at:end:size]
            if column != byte * count:
                count -= len(column.lstrip(byte))
                end = self.start + count * size
            at += 1
        self.number, self.end = count, end
        # A long look-ahead pays only if runs are long.
        self._most = whole * 4 if count == whole else _SHORT
        return True


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, from a connection that blocks."""
    received = b""
    while len(received) < size:
        try:
            part = connection.recv(size - len(received))
        except OSError as error:
            raise LoadError(f"the connection broke: {error}") from None
        if not part:
            raise LoadError("the node closed the connection")
        received += part
    return received
