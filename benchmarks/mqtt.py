"""MQTT as a load generator needs it: frames built beforehand, answers of known size.

Both levels, 4 (MQTT 3.1.1) and 5. Not a client: whatever is unexpected ends the benchmark.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from benchmarks.wire import MOST_UNACKNOWLEDGED, Delivery, UnexpectedAnswerError, receive

_USER_PROPERTY: Final = b"\x26"
_EXPIRY: Final = b"\x02"
_SESSION_EXPIRY: Final = b"\x11"
_CLEAN_START: Final = 0x02
_CONNACK: Final = 0x20
_SUBACK: Final = 0x90
_FIRST_REFUSAL: Final = 0x80
_RECEIVE_MAXIMUM: Final = 0x21
# CONNACK's properties: those that are numbers with their sizes, and how many texts the others are.
_NUMBERS: Final = {
    0x11: 4, 0x13: 2, 0x21: 2, 0x22: 2, 0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip
_TEXTS: Final = {0x12: 1, 0x15: 1, 0x16: 1, 0x1A: 1, 0x1C: 1, 0x1F: 1, 0x26: 2}
PUBACK: Final = b"\x40\x02"

Properties = Mapping[str, str]
_NO_PROPERTIES: Final[Properties] = {}


@dataclass(frozen=True)
class Mqtt:
    """What connections say at one protocol level, and the QoS they publish and subscribe with."""

    level: int = 4
    qos: int = 0
    # How long sessions outlive their connections, at level 5.
    session_s: int = field(default=0, kw_only=True)

    fence: ClassVar = (b"\xc0\x00", b"\xd0\x00")  # PINGREQ, PINGRESP

    @property
    def has_acks(self) -> bool:
        return self.qos > 0

    def enter(self, connection: socket.socket, name: str) -> int:
        connection.sendall(self.connect(name))
        return self.check_connected(connection)

    def subscribe(self, connection: socket.socket, topic: str, where: str = "") -> None:
        connection.sendall(self.subscription(topic, 1, {"where": where} if where else {}))
        self.check_subscribed(connection)

    def connect(self, name: str) -> bytes:
        properties = b"\x00" if self.level == 5 else b""
        if self.session_s:
            properties = b"\x05" + _SESSION_EXPIRY + struct.pack("!I", self.session_s)
        flags = bytes([self.level, _CLEAN_START, 0, 0])
        return frame(0x10, _text("MQTT") + flags + properties + _text(name))

    def subscription(
        self, topic: str, packet_id: int = 1, properties: Properties = _NO_PROPERTIES
    ) -> bytes:
        head = struct.pack("!H", packet_id) + self._properties(properties)
        return frame(0x82, head + _text(topic) + bytes([self.qos]))

    def subscriptions(self, topics: Sequence[str], packet_id: int = 1) -> bytes:
        """Many filters in one packet, without a predicate."""
        option = bytes([self.qos])
        asked = b"".join(_text(topic) + option for topic in topics)
        return frame(0x82, struct.pack("!H", packet_id) + self._properties({}) + asked)

    def message(
        self,
        topic: str,
        payload: bytes,
        packet_id: int,
        properties: Properties = _NO_PROPERTIES,
        expiry_s: int = 0,
    ) -> bytes:
        number = struct.pack("!H", packet_id) if self.qos else b""
        body = _text(topic) + number + self._properties(properties, expiry_s) + payload
        return frame(0x30 | self.qos << 1, body)

    def delivery(self, topic: str, payload_size: int) -> Delivery:
        """A message comes out as it went in, but for its packet identifier."""
        return self.delivery_of(self.message(topic, bytes(payload_size), 1), topic)

    def delivery_of(self, message: bytes, topic: str) -> Delivery:
        """Whatever it carries: a broker may order properties anew, but they stay as long."""
        length = next(size for size in range(1, 5) if message[size] < 0x80)
        id_at = 1 + length + 2 + len(topic.encode())
        return Delivery(message[0], len(message), id_at if self.qos else None)

    def check_connected(self, connection: socket.socket) -> int:
        """How many messages the broker takes before it has acknowledged any."""
        kind, body = read_frame(connection)
        if kind != _CONNACK or body[1] != 0:
            raise UnexpectedAnswerError(f"no connection: {kind:#x} {body.hex(' ')}")
        most = _receive_maximum(body) if self.level == 5 else MOST_UNACKNOWLEDGED
        return min(most, MOST_UNACKNOWLEDGED)

    def check_subscribed(self, connection: socket.socket, count: int = 1) -> None:
        """That all `count` filters of a packet were taken."""
        kind, body = read_frame(connection)
        if kind != _SUBACK or max(body[-count:]) >= _FIRST_REFUSAL:
            raise UnexpectedAnswerError(f"no subscription: {kind:#x} {body.hex(' ')}")

    def _properties(self, properties: Properties, expiry_s: int = 0) -> bytes:
        if self.level < 5:
            return b""
        pairs = (_USER_PROPERTY + _text(name) + _text(text) for name, text in properties.items())
        expiry = _EXPIRY + struct.pack("!I", expiry_s) if expiry_s else b""
        encoded = expiry + b"".join(pairs)
        return _variable(len(encoded)) + encoded


def frame(head: int, body: bytes) -> bytes:
    return bytes([head]) + _variable(len(body)) + body


def read_frame(connection: socket.socket) -> tuple[int, bytes]:
    """First byte and body of one whole frame, from a connection that blocks."""
    kind, byte = receive(connection, 2)
    length, shift = byte & 0x7F, 7
    while byte & 0x80:
        (byte,) = receive(connection, 1)
        length, shift = length | (byte & 0x7F) << shift, shift + 7
    return kind, receive(connection, length)


def _receive_maximum(connack: bytes) -> int:
    length, place = connack[2], 3
    if length & 0x80:
        length, place = length & 0x7F | connack[3] << 7, 4
    end = place + length
    while place < end:
        kind, place = connack[place], place + 1
        if kind == _RECEIVE_MAXIMUM:
            return int.from_bytes(connack[place : place + 2])
        place += _NUMBERS.get(kind, 0)
        for _ in range(_TEXTS.get(kind, 0)):
            place += 2 + int.from_bytes(connack[place : place + 2])
    return MOST_UNACKNOWLEDGED


def _variable(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("!H", len(encoded)) + encoded
