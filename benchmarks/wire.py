"""What all protocols of the brokers have in common, seen from a load generator."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final, Protocol

from accord.apps.load import frames
from accord.apps.load.frames import LoadError, receive

# A packet identifier has two bytes; the last chunk of them is kept free.
MOST_UNACKNOWLEDGED: Final = 60_000
_LONGEST_LINE: Final = 4_096


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


class Dialect(frames.Dialect, Protocol):
    """A protocol: what to say over a connection, and what comes back."""

    def enter(self, connection: socket.socket, name: str) -> int:
        """Makes it a client's; how many messages this may leave unacknowledged."""

    def subscribe(self, connection: socket.socket, topic: str, where: str = "") -> None: ...
    def message(self, topic: str, payload: bytes, packet_id: int) -> bytes: ...
    def delivery(self, topic: str, payload_size: int) -> Delivery: ...


def receive_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += receive(connection, 1)
        if len(line) > _LONGEST_LINE:
            raise LoadError(f"an endless line: {line[:40]!r}…")
    return line
