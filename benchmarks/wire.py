"""What all protocols of the brokers have in common, seen from a load generator."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final, Protocol

# A packet identifier has two bytes; the last chunk of them is kept free.
MOST_UNACKNOWLEDGED: Final = 60_000
_LONGEST_LINE: Final = 4_096


class UnexpectedAnswerError(Exception):
    """A broker says something that the benchmark did not ask for."""


@dataclass(frozen=True)
class Delivery:
    """How a message reaches a subscriber: always `size` bytes, beginning with `head`.

    `id_at` is where its packet identifier stands, if it wants to be acknowledged; `between` is what
    a broker may say between two messages.
    """

    head: int
    size: int
    id_at: int | None
    between: bytes = b""


class Dialect(Protocol):
    """A protocol: what to say over a connection, and what comes back."""

    @property
    def has_acks(self) -> bool:
        """Publishers and subscribers acknowledge, each message with four bytes."""

    @property
    def fence(self) -> tuple[bytes, bytes]:
        """A question, and its answer, which comes after all that was sent before is done."""

    def enter(self, connection: socket.socket, name: str) -> int:
        """Makes it a client's; how many messages this may leave unacknowledged."""

    def subscribe(self, connection: socket.socket, topic: str, where: str = "") -> None: ...
    def message(self, topic: str, payload: bytes, packet_id: int) -> bytes: ...
    def delivery(self, topic: str, payload_size: int) -> Delivery: ...


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, from a connection that blocks."""
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise UnexpectedAnswerError("the broker closed the connection")
        received += part
    return received


def receive_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += receive(connection, 1)
        if len(line) > _LONGEST_LINE:
            raise UnexpectedAnswerError(f"an endless line: {line[:40]!r}…")
    return line
