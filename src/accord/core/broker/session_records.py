"""What must outlive a crash: sessions, their subscriptions and messages, and retained messages.

Each change is one record of the state log. Records name a session by its client identifier and a
message by the number it was stored under. Read in order, they give the state back; a snapshot is
just the records that would make the present state from nothing.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from accord.core.broker.message import MqttMessage
from accord.core.model.errors import EventError
from accord.core.mqtt.packets import Will
from accord.core.mqtt.properties import read_passed_on
from accord.core.mqtt.wire import string_bytes
from accord.core.overlay.validation import MAX_EXPIRY_S, MAX_NUMBER, MAX_QOS, problem_with_name

PacketIds = Annotated[int, msgspec.Meta(ge=1, le=65_535)]  # how many of them


class _Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class SessionOpened(_Record, frozen=True, tag="open"):
    """Also written when a session goes on, with what its client said this time."""

    client: str
    version: int
    expiry_s: int
    will: Will | None
    owner: str = ""


class SessionLeft(_Record, frozen=True, tag="left"):
    """The client went at `at_ms`; `will_due_ms` is 0 where there is no will any more."""

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
    history: tuple[int, int, int, str, bool] | None = None  # `history.Progress`
    expect: tuple[str, ...] = ()  # expectations as JSON
    # Of persistent channels: since when, and by node where it was, or None where it was live.
    past: tuple[int, dict[str, tuple[int, int, str]] | None] | None = None


class Unsubscribed(_Record, frozen=True, tag="unsub"):
    client: str
    pattern: str


class Stored(_Record, frozen=True, tag="msg"):
    """A message that records after it refer to by `number`; the last three are its names."""

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
    home: str = ""
    home_number: int = 0


class StoredRun(_Record, frozen=True, tag="msgs"):
    """Messages as frames, stored under `number` and those after it.

    `events` are their own numbers: stretches of them, each a first number and a count.
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
    """QoS 1 messages that were stored from `number` on, under identifiers from `packet_id` on."""

    client: str
    packet_id: int
    number: int
    count: PacketIds
    was_sent: bool = False


class Released(_Record, frozen=True, tag="rel"):
    """The client has the QoS 2 message and was told that it may forget the identifier."""

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
    """A QoS 2 message of the client was taken; a repetition is to be ignored."""

    client: str
    packet_id: int


class Completed(_Record, frozen=True, tag="comp"):
    client: str
    packet_id: int


class KeptThrough(_Record, frozen=True, tag="kept"):
    """What the events before this offset of the journal led to is recorded up to here."""

    offset: int


class AtomicRecords(_Record, frozen=True, tag="all"):
    """Records that a crash keeps all, or none of them."""

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
    """Raises msgspec.ValidationError or msgspec.DecodeError for what is no record."""
    record: SessionLogRecord = _decoder.decode(data)
    return record


def stored(number: int, message: MqttMessage) -> Stored:
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
        message.home,
        message.home_number,
    )


def restored(record: Stored) -> MqttMessage:
    """The message of `record`.

    ProtocolError where its properties are damaged; EventError or ValueError where it could not be
    sent, whoever it came from.
    """
    if not (-1 <= record.expiry_s <= MAX_EXPIRY_S and 0 <= record.qos <= MAX_QOS):
        raise EventError("message", "expected an expiry of 32 bits, and QoS 0, 1 or 2")
    if problem := problem_with_name(record.home):
        raise EventError("message", problem)
    if not (0 <= record.event <= MAX_NUMBER and -1 <= record.home_number <= MAX_NUMBER):
        raise EventError("message", f"expected numbers up to {MAX_NUMBER}")
    message = MqttMessage(
        record.channel,
        string_bytes(record.channel),
        record.payload,
        record.qos,
        record.is_retained,
        record.publisher,
        record.received_ms,
        read_passed_on(record.block),
        record.block,
        record.expires_ms,
    )
    message.expiry_s = record.expiry_s
    message.number = record.event
    message.home, message.home_number = record.home, record.home_number
    message.stored_as = record.number
    return message
