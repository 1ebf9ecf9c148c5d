"""The two ends of a broker under load, on sockets that don't block: publisher and subscriber."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from benchmarks.mqtt import PUBACK
from benchmarks.wire import Delivery, UnexpectedAnswerError, receive

_READ_BYTES: Final = 1024 * 1024
_PATIENCE_S: Final = 30.0
_ACK: Final = len(PUBACK) + 2


class Publisher:
    """Sends prepared chunks of `chunk_size` messages in turns, and counts acknowledgements."""

    def __init__(
        self, connection: socket.socket, chunks: Sequence[bytes], chunk_size: int, *, has_acks: bool
    ) -> None:
        self.connection = connection
        self.sent = 0
        self.acked = 0
        self._chunks = [memoryview(chunk) for chunk in chunks]
        self._chunk_size = chunk_size
        self._has_acks = has_acks
        self._rest = memoryview(b"")
        self._buffer = bytearray(_READ_BYTES)
        self._behind = 0

    @property
    def is_idle(self) -> bool:
        return not self._rest

    @property
    def unacknowledged(self) -> int:
        return self.sent - self.acked if self._has_acks else 0

    def send(self) -> None:
        self._rest = self._chunks[self.sent // self._chunk_size % len(self._chunks)]
        self.sent += self._chunk_size
        self.push()

    def push(self) -> None:
        """What did not fit into the socket before."""
        try:
            while self._rest:
                self._rest = self._rest[self.connection.send(self._rest) :]
        except BlockingIOError:
            return

    def take(self) -> int:
        """Reads what there is; how many bytes it was."""
        received = read_into(self.connection, self._buffer, self._behind)
        if not self._has_acks:
            return received  # a broker's sign of life
        end = self._behind + received
        count, rest = divmod(end, _ACK)
        done, buffer = end - rest, self._buffer
        if buffer[:done:_ACK] != PUBACK[:1] * count or buffer[1:done:_ACK] != PUBACK[1:] * count:
            raise UnexpectedAnswerError("something else among acknowledgements")
        buffer[:rest] = buffer[done:end]
        self._behind = rest
        self.acked += count
        return received


class Subscriber:
    """Counts what arrives, and acknowledges all of one read at once."""

    def __init__(
        self, connection: socket.socket, delivery: Delivery, read_bytes: int = _READ_BYTES
    ) -> None:
        # As much as may be on the way, so that a broker never waits for its subscriber.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _READ_BYTES)
        self.connection = connection
        self.delivered = 0
        self._delivery = delivery
        self._buffer = bytearray(read_bytes)
        self._behind = 0
        self._acks = bytearray()

    @property
    def is_idle(self) -> bool:
        return not self._acks

    def push(self) -> None:
        """Acknowledgements that did not fit into the socket before."""
        try:
            while self._acks:
                del self._acks[: self.connection.send(self._acks)]
        except BlockingIOError:
            return

    def take(self) -> int:
        """Reads what there is; how many bytes it was."""
        received = read_into(self.connection, self._buffer, self._behind)
        end = self._behind + received
        size, buffer, head = self._delivery.size, self._buffer, bytes([self._delivery.head])
        while (heads := buffer[: end - end % size : size]) != head * len(heads):
            end = self._cut(len(heads) - len(heads.lstrip(head)), end)
        count = end // size
        if self._delivery.id_at is not None:
            self._acknowledge(count, self._delivery.id_at)
        buffer[: end % size] = buffer[count * size : end]
        self._behind = end % size
        self.delivered += count
        return received

    def wait(self, ask: bytes, answer: bytes) -> None:
        """Until the broker has done all that it was sent: it answers in order."""
        self.connection.settimeout(_PATIENCE_S)
        self.connection.sendall(ask)
        while (received := receive(self.connection, len(answer))) != answer:
            if received != self._delivery.between:
                raise UnexpectedAnswerError(f"more than was published: {received!r}")
        self.connection.setblocking(False)

    def _cut(self, number: int, end: int) -> int:
        """Takes out what a broker says before message `number` of the buffer."""
        between = self._delivery.between
        start = number * self._delivery.size
        found = self._buffer[start : start + len(between)]
        if not between or found != between:
            found = self._buffer[start : start + 20]
            raise UnexpectedAnswerError(f"not a message of {self._delivery.size} bytes: {found!r}")
        self._buffer[start : end - len(between)] = self._buffer[start + len(between) : end]
        return end - len(between)

    def _acknowledge(self, count: int, id_at: int) -> None:
        size = self._delivery.size
        acks = bytearray(_ACK * count)
        acks[0::_ACK] = PUBACK[:1] * count
        acks[1::_ACK] = PUBACK[1:] * count
        acks[2::_ACK] = self._buffer[id_at : count * size : size]
        acks[3::_ACK] = self._buffer[id_at + 1 : count * size : size]
        self._acks += acks
        self.push()


def read_into(connection: socket.socket, buffer: bytearray, start: int) -> int:
    """What is there, as many bytes as fit after `start`."""
    try:
        received = connection.recv_into(memoryview(buffer)[start:])
    except BlockingIOError:
        return 0
    if not received:
        raise UnexpectedAnswerError("the broker closed the connection")
    return received
