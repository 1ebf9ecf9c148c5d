"""A published message in MQTT terms: its encoded frames, and the properties of transit events.

Most receivers of a message get the same bytes, so encoded frames are cached. The cache excludes the
expiry, which shrinks while a message is queued, and what is specific to one receiver (packet and
subscription identifiers, topic aliases).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from accord.core.model.document import Document
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.monitoring.ledger import event_id
from accord.core.mqtt.codes import V5, ProtocolError
from accord.core.mqtt.event_mapping import to_event, to_values
from accord.core.mqtt.properties import EVENT, NO_PROPERTIES, NODE, Properties, read_forwarded
from accord.core.mqtt.wire import string_bytes, varint_bytes
from accord.core.overlay.signalling import TransitEvent
from accord.core.overlay.validation import problem_with_event
from accord.core.router.message import Message
from accord.core.scheduling.shaping_decision import ShapingTarget

PUBLISH: Final = 0x30
DUPLICATE: Final = 0x08
RETAINED: Final = 0x01

_EXPIRY: Final = b"\x02"
_IDENTIFIER: Final = b"\x0b"
_ALIAS: Final = b"\x23"
_USER: Final = b"\x26"
_NO_TOPIC: Final = b"\0\0"
_NO_EXTRA: Final[tuple[int, ...]] = ()


class MqttMessage(Message):
    """A PUBLISH: `topic` is length-prefixed; `block` holds the encoded properties passed on.

    `expiry_s` is the publisher's message expiry, -1 if none: MQTT 5 receivers see it, while a finer
    deadline exists only in `expires_ms`. `event_node` and `event_number` are the event ID:
    `event_node` is the node where it was published, empty for this one; `event_number` its number
    there, 0 if that is `number`, negative if it is unknown or contained in `block`.
    """

    __slots__ = (
        "_document",
        "_head",
        "_head_kind",
        "_plain",
        "_plain_version",
        "_tail",
        "_values",
        "block",
        "counts",
        "event_node",
        "event_number",
        "expiry_s",
        "packet_id",
        "properties",
        "shaped",
        "shaped_from",
        "stored_as",
        "topic",
    )

    def __init__(
        self,
        channel: str,
        topic: bytes,
        payload: bytes,
        qos: int,
        is_retained: bool,
        publisher: str,
        received_ms: int,
        properties: Properties,
        block: bytes,
        expires_ms: int,
    ) -> None:
        # Without a call of Message.__init__, which is a good part of the cost of a message.
        self.channel = channel
        self.payload = payload
        self.qos = qos
        self.is_retained = is_retained
        self.publisher = publisher
        self.received_ms = received_ms
        self.expires_ms = expires_ms
        self.key = ""
        self.number = 0
        self.topic = topic
        self.properties = properties
        self.block = block
        self.expiry_s = -1
        if properties is not NO_PROPERTIES and properties.message_expiry_s is not None:
            self.expiry_s = properties.message_expiry_s
        self.packet_id = 0  # the publisher's, for QoS 2
        self.counts: ChannelCounts | None = None  # of its channel
        self.stored_as = 0  # number in the state log, 0 if not stored
        self.shaped_from = 0  # payload size before shaping, 0 if not shaped
        # Shaped variants for some receivers.
        self.shaped: dict[ShapingTarget, MqttMessage] | None = None
        self.event_node = ""
        self.event_number = 0
        self._values: Mapping[str, Value] | None = None
        self._document: Document | None = None
        self._head_kind = -1
        self._head = b""
        self._tail = b""
        self._plain_version = 0
        self._plain = b""

    def values(self) -> Mapping[str, Value]:
        if self._values is None:
            self._values, self._document = to_values(self.properties)
        return self._values

    def document(self) -> Document | None:
        self.values()
        return self._document

    def event(self) -> Event:
        """The complete, validated event; raises EventError if it is not one."""
        return to_event(
            self.channel,
            self.payload,
            self.properties,
            received_ms=self.received_ms,
            source=self.publisher,
        )

    def size(self) -> int:
        return len(self.topic) + len(self.block) + len(self.payload) + 16

    def frame(self, version: int) -> bytes:
        """The QoS 0 frame for receivers without special options."""
        if self._plain_version != version:
            self._plain = self.encode(version, PUBLISH, 0, _NO_EXTRA, 0, False, 0)
            self._plain_version = version
        return self._plain

    def tracked_frame(self, version: int, first: int, packet_id: int) -> bytes:
        """A QoS 1 or 2 frame without expiry, for receivers without special options."""
        kind = first << 4 | version
        if self._head_kind != kind:
            self._tail = self._properties(_NO_EXTRA, 0, 0) if version == V5 else b""
            self._tail += self.payload
            length = len(self.topic) + 2 + len(self._tail)
            self._head = bytes((first,)) + varint_bytes(length) + self.topic
            self._head_kind = kind
        return self._head + packet_id.to_bytes(2, "big") + self._tail

    def set_frame(self, version: int, first: int, head: bytes, tail: bytes) -> None:
        """Set the publisher's own frame, as the parts before and after its packet identifier."""
        self._head_kind = first << 4 | version
        self._head = head
        self._tail = tail

    def event_id_block(self, here: str) -> bytes:
        """User properties with the event ID, the same at every receiver."""
        number = self.event_number or self.number
        if number <= 0 or self.channel.startswith("$"):
            return b""
        event = string_bytes(EVENT) + string_bytes(event_id(number))
        return _USER + event + _USER + string_bytes(NODE) + string_bytes(self.event_node or here)

    def encode(
        self,
        version: int,
        first: int,
        packet_id: int,
        identifiers: tuple[int, ...],
        alias: int,
        is_alias_known: bool,
        now_ms: int,
        id_block: bytes = b"",
    ) -> bytes:
        """Encode any frame of this message; `packet_id` and `alias` are 0 if absent."""
        parts = [_NO_TOPIC if is_alias_known else self.topic]
        if packet_id:
            parts.append(packet_id.to_bytes(2, "big"))
        if version == V5:
            parts.append(self._properties(identifiers, alias, now_ms, id_block))
        parts.append(self.payload)
        body = b"".join(parts)
        return bytes((first,)) + varint_bytes(len(body)) + body

    def _properties(
        self, identifiers: tuple[int, ...], alias: int, now_ms: int, id_block: bytes = b""
    ) -> bytes:
        block = self.block + id_block
        if self.expiry_s >= 0:
            waited_s = max(0, now_ms - self.received_ms) // 1000
            left_s = max(self.expiry_s - waited_s, 0)
            block = _EXPIRY + left_s.to_bytes(4, "big") + block
        for identifier in identifiers:
            block += _IDENTIFIER + varint_bytes(identifier)
        if alias:
            block += _ALIAS + alias.to_bytes(2, "big")
        return varint_bytes(len(block)) + block


def properties_of_transit_event(event: TransitEvent) -> Properties | None:
    """The event's properties with its expiry; None if no node could have sent such an event."""
    if problem_with_event(event) is not None:
        return None
    try:
        properties = read_forwarded(event.block)
    except ProtocolError:
        return None
    if event.expiry_s >= 0:
        properties = msgspec.structs.replace(properties, message_expiry_s=event.expiry_s)
    return properties
