"""MQTT for a load: requests on a connection that blocks, and frames in bulk."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final

from accord.apps.load.frames import Buffer, LoadCounts, LoadError, Run, receive
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, PacketType, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    TopicFilter,
)
from accord.core.mqtt.properties import NO_PROPERTIES, Properties

_FIRST_FAILURE: Final = 0x80
_FAILURES: Final = bytes(range(_FIRST_FAILURE, 0x100))
# Plain numbers: these are compared once per read.
_PUBLISH: Final = 3
_ANSWERED: Final = (4, 7)  # PUBACK, PUBCOMP
_PUBREL: Final = 0x62
_RECEIVED: Final = (0, 0x40, 0x50)  # PUBACK and PUBREC, by QoS


@dataclass(frozen=True)
class Mqtt:
    """A protocol level, 4 (MQTT 3.1.1) or 5, and the QoS of publications and subscriptions."""

    level: int = V5
    qos: int = 0

    fence: ClassVar = encode(Pingreq(), V5)

    @property
    def has_acks(self) -> bool:
        return self.qos > 0

    def connect(self, connection: socket.socket, packet: Connect) -> Properties:
        """Open a session; returns what the node says of itself."""
        connection.sendall(encode(packet, self.level))
        answer = self._read(connection)
        if not isinstance(answer, Connack) or answer.reason:
            raise LoadError(f"the node refused a connection: {_reason_text(answer)}")
        return answer.properties

    def subscribe(self, connection: socket.socket, channel: str, where: str = "") -> None:
        connection.sendall(self.subscription((channel,), where=where))
        self.check_subscribed(connection)

    def check_subscribed(self, connection: socket.socket) -> None:
        """LoadError unless the node accepted all that a SUBSCRIBE asked for."""
        answer = self._read(connection)
        if not isinstance(answer, Suback) or max(answer.reasons) >= _FIRST_FAILURE:
            raise LoadError(f"the node refused a subscription: {_reason_text(answer)}")

    def subscription(self, channels: Sequence[str], packet_id: int = 1, where: str = "") -> bytes:
        filters = tuple(TopicFilter(channel, self.qos) for channel in channels)
        properties = Properties(user=(("where", where),)) if where else NO_PROPERTIES
        return encode(Subscribe(packet_id, filters, properties), self.level)

    def message(
        self, channel: str, payload: bytes, packet_id: int, properties: Properties = NO_PROPERTIES
    ) -> bytes:
        packet = Publish(
            channel,
            payload,
            self.qos,
            packet_id=packet_id if self.qos else 0,
            properties=properties,
        )
        return encode(packet, self.level)

    def header(self, buffer: bytearray, start: int, end: int) -> tuple[int, int] | None:
        length = shift = 0
        for place in range(start + 1, min(start + 5, end)):
            byte = buffer[place]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                head = place + 1 - start
                return head, head + length
            shift += 7
        return None

    def handle(self, run: Run, counts: LoadCounts) -> Buffer:
        first = run.buffer[run.start]
        kind = first >> 4
        if kind == _PUBLISH:
            counts.delivered += run.number
            if qos := first >> 1 & 3:
                at = packet_id_at(run.buffer, run.start, len(run.head))
                return acknowledgements(_RECEIVED[qos], run.column(at), run.column(at + 1))
            return b""
        if kind in _ANSWERED:
            counts.acknowledged += run.number
            counts.refused += len(_failed(run))
        elif kind == PacketType.PUBREC:
            failed, (high, low) = _failed(run), _ids(run)
            counts.acknowledged += len(failed)
            counts.refused += len(failed)
            for number in reversed(failed):
                del high[number], low[number]
            return acknowledgements(_PUBREL, high, low)
        elif kind == PacketType.PUBREL:
            return acknowledgements(PacketType.PUBCOMP << 4, *_ids(run))
        elif kind == PacketType.PINGRESP:
            counts.fences -= run.number
        else:
            body = bytes(run.buffer[run.start + len(run.head) : run.start + run.size])
            text = _reason_text(decode(first, body, V5))
            raise LoadError(f"the node ended a connection: {text}")
        return b""

    def _read(self, connection: socket.socket) -> Packet:
        return decode(*read_frame(connection), self.level)


def read_frame(connection: socket.socket) -> tuple[int, bytes]:
    """First byte and body of one whole packet, from a connection that blocks."""
    first, byte = receive(connection, 2)
    length, shift = byte & 0x7F, 7
    while byte & 0x80:
        (byte,) = receive(connection, 1)
        length, shift = length | (byte & 0x7F) << shift, shift + 7
    return first, receive(connection, length)


def packet_id_at(buffer: Buffer, start: int, head: int) -> int:
    """Place of the packet identifier in the PUBLISH at `start`, whose header has `head` bytes."""
    topic = start + head
    return head + 2 + (buffer[topic] << 8 | buffer[topic + 1])


def acknowledgements(first: int, high: bytearray, low: bytearray) -> bytearray:
    """An acknowledgement with this first byte for each of the packet identifiers."""
    packets = bytearray((first, 2, 0, 0)) * len(high)
    packets[2::4], packets[3::4] = high, low
    return packets


def _ids(run: Run) -> tuple[bytearray, bytearray]:
    return run.column(len(run.head)), run.column(len(run.head) + 1)


def _failed(run: Run) -> list[int]:
    """Which acknowledgements of a run have a reason that says failure."""
    place = len(run.head) + 2
    if run.size == place:
        return []
    reasons = run.column(place)
    if len(reasons.translate(None, _FAILURES)) == len(reasons):
        return []
    return [number for number, reason in enumerate(reasons) if reason >= _FIRST_FAILURE]


def _reason_text(packet: Packet) -> str:
    """The reason that a packet gives."""
    reasons = getattr(packet, "reasons", None) or (getattr(packet, "reason", 0),)
    text = getattr(packet, "properties", NO_PROPERTIES).reason_string
    with suppress(ValueError):
        name = Reason(reasons[0]).name.lower().replace("_", " ")
        return f"{name}: {text}" if text else name
    return f"reason {reasons[0]:#x}"
