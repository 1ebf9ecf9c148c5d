"""Kept events as records of the journal, in the form the publisher sent them.

Attributes stay in their encoded form (MQTT 5 properties): appending costs little, and each reader
decides how much to decode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from accord.core.broker.broker_context import KeptRun
from accord.core.broker.kept_messages import journalled_id, published_block
from accord.core.broker.message import MqttMessage
from accord.core.model.event import Event
from accord.core.mqtt.event_mapping import to_event
from accord.core.mqtt.properties import read_block
from accord.core.mqtt.wire import string_bytes
from accord.core.native import records
from accord.core.router.message import Message


class KeptEvent(msgspec.Struct, frozen=True, array_like=True, tag="event"):
    """A kept event.

    `attributes` is a block of MQTT 5 properties; `expiry_s` is -1 where there is none.
    """

    received_ms: int
    channel: str
    publisher: str
    qos: int
    expiry_s: int
    attributes: bytes
    payload: bytes
    number: int = 0  # of the event on its node; its key in the ledger
    packet_id: int = 0  # of a QoS 2 message: the publisher would retransmit it under this
    is_retained: bool = False

    def event(self) -> Event:
        """Decode the typed event; raises ProtocolError or EventError if the record is damaged."""
        properties = read_block(self.attributes)
        if self.expiry_s >= 0:
            properties = msgspec.structs.replace(properties, message_expiry_s=self.expiry_s)
        return to_event(
            self.channel,
            self.payload,
            properties,
            received_ms=self.received_ms,
            source=self.publisher,
        )


_FIELDS: Final = b"\x9b"  # msgpack array header for the tag and the fields of KeptEvent
_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(KeptEvent)


def encode_event(message: MqttMessage) -> bytes:
    return _encode(
        KeptEvent(
            message.received_ms,
            message.channel,
            message.publisher,
            message.qos,
            message.expiry_s,
            message.block,
            message.payload,
            message.number,
            message.packet_id,
            message.is_retained,
        )
    )


def encode_kept(kept: Iterable[Message | KeptRun]) -> list[bytes]:
    """Encode one record for each event."""
    made: list[bytes] = []
    for each in kept:
        if isinstance(each, KeptRun):
            made += _encode_run(each)
        elif isinstance(each, MqttMessage):
            made.append(encode_event(each))
    return made


def _encode_run(run: KeptRun) -> list[bytes]:
    # All fields before the expiry are the same for the whole run.
    head = b"".join(
        (
            _FIELDS,
            _encode("event"),
            _encode(run.received_ms),
            _encode(run.channel),
            _encode(run.publisher),
            _encode(run.qos),
        )
    )
    return records(run.frames, run.is_v5, head, run.number)


def kept_message(kept: KeptEvent) -> MqttMessage:
    """The message as it was published; raises ProtocolError if the record is damaged."""
    block = published_block(kept.attributes)
    message = MqttMessage(
        kept.channel,
        string_bytes(kept.channel),
        kept.payload,
        kept.qos,
        kept.is_retained,
        kept.publisher,
        kept.received_ms,
        read_block(block),
        block,
        0,
    )
    message.expiry_s = kept.expiry_s
    message.number = kept.number
    message.event_node, message.event_number = journalled_id(kept.attributes)
    message.packet_id = kept.packet_id
    return message


def decode_event(record: bytes) -> KeptEvent:
    """Decode a record; raises msgspec.DecodeError or UnicodeDecodeError if it is not an event."""
    return _decoder.decode(record)
