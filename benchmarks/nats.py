"""The NATS protocol as a load generator needs it, beside `mqtt`."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import ClassVar, Final

from accord.apps.load.frames import Buffer, LoadCounts, LoadError, Run
from benchmarks.wire import MOST_UNACKNOWLEDGED, Delivery, receive_line

_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1"}\r\n'
_SUBSCRIPTION: Final = 1
_END: Final = b"\r\n"
_PONG: Final = b"PONG\r\n"
_MESSAGE: Final = ord("M")


@dataclass(frozen=True)
class Nats:
    """Core NATS: what MQTT calls QoS 0."""

    has_acks: ClassVar = False
    fence: ClassVar = b"PING\r\n"

    def enter(self, connection: socket.socket, name: str) -> int:
        del name  # a connection needs none here
        connection.sendall(_CONNECT)
        self._settle(connection)
        return MOST_UNACKNOWLEDGED

    def subscribe(self, connection: socket.socket, topic: str, where: str = "") -> None:
        del where  # there are no predicates here
        connection.sendall(f"SUB {_subject(topic)} {_SUBSCRIPTION}\r\n".encode())
        self._settle(connection)

    def message(self, topic: str, payload: bytes, packet_id: int) -> bytes:
        del packet_id
        return f"PUB {_subject(topic)} {len(payload)}\r\n".encode() + payload + b"\r\n"

    def delivery(self, topic: str, payload_size: int) -> Delivery:
        head = f"MSG {_subject(topic)} {_SUBSCRIPTION} {payload_size}\r\n"
        # The server asks for a sign of life two seconds after each connect, in between.
        return Delivery(
            head=_MESSAGE, size=len(head) + payload_size + 2, id_at=None, between=b"PING\r\n"
        )

    def header(self, buffer: bytearray, start: int, end: int) -> tuple[int, int] | None:
        line_end = buffer.find(_END, start, end)
        if line_end < 0:
            return None
        size = line_end + len(_END) - start
        if buffer[start] != _MESSAGE:
            return size, size
        # Of the lines of messages the first byte is enough: in a load they are all alike.
        payload = buffer[buffer.rindex(b" ", start, line_end) : line_end]
        return 1, size + int(payload) + len(_END)

    def handle(self, run: Run, counts: LoadCounts) -> Buffer:
        if run.buffer[run.start] == _MESSAGE:
            counts.delivered += run.number
            return b""
        line = bytes(run.buffer[run.start : run.start + run.size])
        if line == _PONG:
            counts.fences -= run.number
            return b""
        if line == self.fence:
            return _PONG * run.number
        raise LoadError(f"the broker says {line.decode(errors='replace')}")

    def _settle(self, connection: socket.socket) -> None:
        connection.sendall(self.fence)
        while (line := receive_line(connection)) != _PONG:
            if not line.startswith((b"INFO", b"PING")):
                raise LoadError(f"no connection: {line.decode(errors='replace')}")


def _subject(topic: str) -> str:
    return topic.replace("/", ".")
