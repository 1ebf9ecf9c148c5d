"""Durable broker state: sessions, their subscriptions and messages, and retained messages.

Each change is one record of the state log. Records refer to a session by its client identifier and
to a message by the number it was stored under. Replayed in order, they restore the state; a
snapshot is the list of records that would create the present state from nothing.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from accord.core.broker.message import MqttMessage
from accord.core.model.errors import EventError
from accord.core.mqtt.packets import Will
from accord.core.mqtt.properties import read_forwarded
from accord.core.mqtt.wire import string_bytes
from accord.core.overlay.validation import MAX_EXPIRY_S, MAX_NUMBER, MAX_QOS, problem_with_name

PacketIds = Annotated[int, msgspec.Meta(ge=1, le=65_535)]  # a count of identifiers


class _Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class SessionOpened(_Record, frozen=True, tag="open"):
    """Also written when a session resumes, with the values of the new CONNECT."""

    client: str
    version: int
    expiry_s: int
    will: Will | None
    owner: str = ""


class SessionLeft(_Record, frozen=True, tag="left"):
    """The client went offline at `at_ms`; `will_due_ms` is 0 if no will is left."""

    client: str
    expiry_s: int
    at_ms: int
    will_due_ms: int


class SessionEnded(_Record, frozen=True, tag="end"):
    client: str


class Subscribed(_Record, frozen=True, tag="sub"):
    client: str
    pattern: str
    qos: int
    is_local_excluded: bool
    keeps_retained_flag: bool
    identifier: int
    where: str
    xpath: str
    history: tuple[int, int, int, str, bool] | None = None  # `catch_up.Progress`
    expect: tuple[str, ...] = ()  # expectations as JSON
    # For persistent channels: start time, and position by node, or None once live.
    persistent_history: tuple[int, dict[str, tuple[int, int, str]] | None] | None = None


class Unsubscribed(_Record, frozen=True, tag="unsub"):
    client: str
    pattern: str


class Stored(_Record, frozen=True, tag="msg"):
    """A message that later records refer to by `number`; the last three fields identify it."""

    number: int
    channel: str
    payload: bytes
    qos: int
    is_retained: bool
    publisher: str
    received_ms: int
    expires_ms: int
    expiry_s: int
    block: bytes
    event: int = 0
    event_node: str = ""
    event_number: int = 0


class StoredRun(_Record, frozen=True, tag="msgs"):
    """Messages as frames, stored under `number` and the numbers after it.

    `events` are their event numbers as ranges: first number and count.
    """

    number: int
    frames: bytes
    is_v5: bool
    publisher: str
    received_ms: int
    events: tuple[tuple[int, int], ...]


class Retained(_Record, frozen=True, tag="retain"):
    number: int


class RetainedCleared(_Record, frozen=True, tag="clear"):
    channel: str


class Queued(_Record, frozen=True, tag="queue"):
    client: str
    packet_id: int
    number: int
    qos: int
    is_retained: bool
    identifiers: tuple[int, ...]
    was_sent: bool = False


class QueuedRun(_Record, frozen=True, tag="queues"):
    """QoS 1 messages stored from `number` on, with packet identifiers from `packet_id` on."""

    client: str
    packet_id: int
    number: int
    count: PacketIds
    was_sent: bool = False


class Released(_Record, frozen=True, tag="rel"):
    """The client has received the QoS 2 message (PUBREC), and PUBREL is due."""

    client: str
    packet_id: int


class Done(_Record, frozen=True, tag="done"):
    client: str
    packet_id: int


class DoneRun(_Record, frozen=True, tag="dones"):
    client: str
    packet_id: int
    count: PacketIds


class ReceivedRecord(_Record, frozen=True, tag="recv"):
    """A QoS 2 message of the client was accepted; a repetition is ignored."""

    client: str
    packet_id: int


class Completed(_Record, frozen=True, tag="comp"):
    client: str
    packet_id: int


class KeptThrough(_Record, frozen=True, tag="kept"):
    """The effects of all events before this journal offset are recorded."""

    offset: int


class AtomicRecords(_Record, frozen=True, tag="all"):
    """Records of which a crash keeps all or none."""

    records: tuple[bytes, ...]


SessionRecord = (
    SessionLeft
    | SessionEnded
    | Subscribed
    | Unsubscribed
    | Queued
    | QueuedRun
    | Released
    | Done
    | DoneRun
    | ReceivedRecord
    | Completed
)
SessionLogRecord = (
    SessionOpened
    | SessionRecord
    | Stored
    | StoredRun
    | Retained
    | RetainedCleared
    | KeptThrough
    | AtomicRecords
)

encode_record: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(SessionLogRecord)


def decode_record(data: bytes) -> SessionLogRecord:
    """Raises msgspec.ValidationError or msgspec.DecodeError if `data` is not a record."""
    record: SessionLogRecord = _decoder.decode(data)
    return record


def stored_record(number: int, message: MqttMessage) -> Stored:
    return Stored(
        number,
        message.channel,
        message.payload,
        message.qos,
        message.is_retained,
        message.publisher,
        message.received_ms,
        message.expires_ms,
        message.expiry_s,
        message.block,
        message.number,
        message.event_node,
        message.event_number,
    )


def restored_message(record: Stored) -> MqttMessage:
    """The message of `record`.

    Raises ProtocolError if its properties are damaged; EventError or ValueError if it could not be
    sent by any client.
    """
    if not (-1 <= record.expiry_s <= MAX_EXPIRY_S and 0 <= record.qos <= MAX_QOS):
        raise EventError("message", "expected an expiry of 32 bits, and QoS 0, 1 or 2")
    if problem := problem_with_name(record.event_node):
        raise EventError("message", problem)
    if not (0 <= record.event <= MAX_NUMBER and -1 <= record.event_number <= MAX_NUMBER):
        raise EventError("message", f"expected numbers up to {MAX_NUMBER}")
    message = MqttMessage(
        record.channel,
        string_bytes(record.channel),
        record.payload,
        record.qos,
        record.is_retained,
        record.publisher,
        record.received_ms,
        read_forwarded(record.block),
        record.block,
        record.expires_ms,
    )
    message.expiry_s = record.expiry_s
    message.number = record.event
    message.event_node, message.event_number = record.event_node, record.event_number
    message.stored_as = record.number
    return message
