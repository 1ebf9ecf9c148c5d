"""MQTT as brokers are compared with it: sessions that may stay, deliveries of known size."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Final

from accord.apps.load import mqtt
from accord.core.mqtt.packets import Connect
from accord.core.mqtt.properties import Properties
from benchmarks.wire import MOST_UNACKNOWLEDGED, Delivery

PUBACK: Final = b"\x40\x02"


@dataclass(frozen=True)
class Mqtt(mqtt.Mqtt):
    level: int = 4
    # How long sessions outlive their connections, at level 5.
    session_s: int = field(default=0, kw_only=True)

    def enter(self, connection: socket.socket, name: str) -> int:
        properties = Properties(session_expiry_s=self.session_s or None)
        server = self.connect(connection, Connect(name, self.level, properties=properties))
        return min(server.receive_maximum or MOST_UNACKNOWLEDGED, MOST_UNACKNOWLEDGED)

    def delivery(self, topic: str, payload_size: int) -> Delivery:
        """A message comes out as it went in, but for its packet identifier."""
        return self.delivery_of(self.message(topic, bytes(payload_size), 1))

    def delivery_of(self, message: bytes) -> Delivery:
        """Whatever it carries: a broker may order properties anew, but they stay as long."""
        header = self.header(bytearray(message), 0, len(message))
        assert header is not None
        id_at = mqtt.packet_id_at(message, 0, header[0]) if self.qos else None
        return Delivery(message[0], len(message), id_at)
