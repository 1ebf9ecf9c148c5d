"""The NATS protocol as a load generator needs it, beside `mqtt`."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import ClassVar, Final

from benchmarks.wire import MOST_UNACKNOWLEDGED, Delivery, UnexpectedAnswerError, receive_line

_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"lang":"bench","version":"1"}\r\n'
_SUBSCRIPTION: Final = 1


@dataclass(frozen=True)
class Nats:
    """Core NATS: what MQTT calls QoS 0."""

    has_acks: ClassVar = False
    fence: ClassVar = (b"PING\r\n", b"PONG\r\n")

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
            head=ord("M"), size=len(head) + payload_size + 2, id_at=None, between=b"PING\r\n"
        )

    def _settle(self, connection: socket.socket) -> None:
        ask, answer = self.fence
        connection.sendall(ask)
        while (line := receive_line(connection)) != answer:
            if not line.startswith((b"INFO", b"PING")):
                raise UnexpectedAnswerError(f"no connection: {line.decode(errors='replace')}")


def _subject(topic: str) -> str:
    return topic.replace("/", ".")
