"""Kept events as MQTT messages: query results, and the history of a subscription.

They resemble the published messages, with further facts from the archive as user properties. Their
expiry and replacement key no longer apply: a reader of history wants outdated events too.

An event has one event ID everywhere, assigned where it was published. The journal has it: the
record's event number and the node of the journal, or else what `journal_form` added.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.broker.message import MqttMessage
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.monitoring.ledger import event_id
from accord.core.mqtt.properties import (
    CHANNEL,
    EVENT,
    NODE,
    ORIGIN,
    PUBLISHER,
    RECEIVED,
    Properties,
    forwarded_block,
    read_block,
)
from accord.core.mqtt.wire import string_bytes
from accord.core.overlay.validation import MAX_NUMBER
from accord.core.queries.messages import QueryHit

_JOURNAL_PROPERTIES: Final = (NODE, ORIGIN)
_DIGITS: Final = 19  # of a 63-bit number


def history_message(
    found: QueryHit, counts: ChannelCounts, now_ms: int, name: tuple[str, int] | None
) -> MqttMessage:
    """A kept event for a subscription; raises ProtocolError if its properties are damaged.

    The client sees the event ID `name`, or else the one at the node that kept it.
    """
    kept = read_block(found.properties)
    properties = _published_properties(kept)
    if name is None:
        user_properties = (
            *properties.user,
            *_source_property(kept),
            *_id_properties(found.number, found.received_ms),
        )
    else:
        home, number = name
        user_properties = (*properties.user, *_id_properties(number, found.received_ms))
        user_properties = (*user_properties, (NODE, home)) if home else user_properties
    message = _message(found, string_bytes(found.channel), properties, user_properties, now_ms)
    message.counts = counts
    return message


def result_message(
    found: QueryHit, topic: str, correlation_data: bytes | None, now_ms: int
) -> MqttMessage:
    """A kept event as a query result on `topic`; raises ProtocolError if it is damaged."""
    kept = read_block(found.properties)
    published = _published_properties(kept)
    answering = Properties(
        payload_format=published.payload_format,
        content_type=published.content_type,
        correlation_data=correlation_data,
        user=published.user,
    )
    user_properties = (
        *published.user,
        *_source_property(kept),
        (CHANNEL, found.channel),
        *_id_properties(found.number, found.received_ms),
        (PUBLISHER, found.publisher),
    )
    return _message(found, string_bytes(topic), answering, user_properties, now_ms)


def journal_form(message: MqttMessage, node: str = "") -> MqttMessage:
    """The message as it is kept, with its event ID if that differs from its number here.

    `node` is the event's source, if that is another node.
    """
    notes = [(NODE, node)] if node else []
    if message.event_number > 0 and (message.event_node, message.event_number) != (
        node,
        message.number,
    ):
        notes.append((ORIGIN, f"{message.event_number}@{message.event_node}"))
    if not notes:
        return message
    user = (*message.properties.user, *notes)
    block = forwarded_block(msgspec.structs.replace(message.properties, user=user))
    kept = MqttMessage(
        message.channel,
        message.topic,
        message.payload,
        message.qos,
        message.is_retained,
        message.publisher,
        message.received_ms,
        message.properties,
        block,
        message.expires_ms,
    )
    kept.number = message.number
    kept.packet_id = message.packet_id
    return kept


def published_block(block: bytes) -> bytes:
    """A property block without what `journal_form` added; raises ProtocolError if damaged."""
    if not any(name.encode() in block for name in _JOURNAL_PROPERTIES):
        return block
    return forwarded_block(_published_properties(read_block(block)))


def journalled_id(block: bytes) -> tuple[str, int]:
    """The event ID that `journal_form` added, if any; raises ProtocolError if damaged."""
    return _journalled_id(read_block(block)) if ORIGIN.encode() in block else ("", 0)


def kept_event_id(found: QueryHit, node: str) -> tuple[str, int]:
    """The event ID of an event that `node` kept; raises ProtocolError if damaged."""
    properties = read_block(found.properties)
    origin, original = _journalled_id(properties)
    if origin:
        return origin, original
    return next((text for name, text in properties.user if name == NODE), node), found.number


def is_remote(block: bytes) -> bool:
    """Whether an event kept here was published at another node."""
    return NODE.encode() in block and any(name == NODE for name, _ in read_block(block).user)


def _journalled_id(properties: Properties) -> tuple[str, int]:
    for name, text in properties.user:
        number, _, origin = text.partition("@")
        is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
        if name == ORIGIN and is_number and int(number) <= MAX_NUMBER:
            return origin, int(number)
    return "", 0


def _published_properties(kept: Properties) -> Properties:
    """Properties without what `journal_form` added."""
    user = tuple(each for each in kept.user if each[0] not in _JOURNAL_PROPERTIES)
    return kept if len(user) == len(kept.user) else msgspec.structs.replace(kept, user=user)


def _source_property(kept: Properties) -> tuple[tuple[str, str], ...]:
    """The source of a copy, as a user property."""
    return tuple(each for each in kept.user if each[0] == NODE)


def _id_properties(number: int, received_ms: int) -> tuple[tuple[str, str], ...]:
    """The event ID and the time of arrival, as user properties."""
    return (EVENT, event_id(number)), (RECEIVED, str(received_ms))


def _message(
    found: QueryHit,
    topic: bytes,
    properties: Properties,
    user: tuple[tuple[str, str], ...],
    now_ms: int,
) -> MqttMessage:
    """Policies see the properties as published; the client also gets those in `user`."""
    message = MqttMessage(
        found.channel,
        topic,
        found.payload,
        found.qos,
        False,
        found.publisher,
        now_ms,
        properties,
        forwarded_block(msgspec.structs.replace(properties, user=user)),
        0,
    )
    message.expiry_s = -1
    message.number = found.number
    message.event_number = -1  # `user` has the event ID
    return message
