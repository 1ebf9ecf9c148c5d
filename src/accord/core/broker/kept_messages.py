"""Kept events on their way back to clients: results of queries, and the past of a subscription.

They are messages like those that were published, with what the archive knows besides as user
properties. What was said of their use at the time (expiry, replacement key) does not bind them: who
asks for the past wants just what is over.

An event has one name wherever it goes, given where it was published. The journal has it: it is the
number of the record's event and the node whose journal it is, or what `to_keep` noted besides.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.broker.message import MqttMessage
from accord.core.monitoring.channel_counts import ChannelCounts
from accord.core.monitoring.ledger import event_id
from accord.core.mqtt.properties import Properties, passed_on_block, read_block
from accord.core.mqtt.reserved_properties import CHANNEL, EVENT, NODE, ORIGIN, PUBLISHER, RECEIVED
from accord.core.mqtt.wire import string_bytes
from accord.core.overlay.validation import MAX_NUMBER
from accord.core.queries.messages import QueryHit

_NOTED: Final = (NODE, ORIGIN)
_DIGITS: Final = 19  # of a number of 63 bits


def history_message(
    found: QueryHit, counts: ChannelCounts, now_ms: int, name: tuple[str, int] | None
) -> MqttMessage:
    """A kept event for a subscription; ProtocolError where its properties are damaged.

    Its client is told the `name`, or else what the node that kept it calls it.
    """
    kept = read_block(found.properties)
    properties = _published(kept)
    if name is None:
        told = (*properties.user, *_copied(kept), *_called(found.number, found.received_ms))
    else:
        home, number = name
        told = (*properties.user, *_called(number, found.received_ms))
        told = (*told, (NODE, home)) if home else told
    message = _message(found, string_bytes(found.channel), properties, told, now_ms)
    message.counts = counts
    return message


def result_message(
    found: QueryHit, topic: str, correlation_data: bytes | None, now_ms: int
) -> MqttMessage:
    """A kept event for who asked for it, on `topic`; ProtocolError as above."""
    kept = read_block(found.properties)
    published = _published(kept)
    answering = Properties(
        payload_format=published.payload_format,
        content_type=published.content_type,
        correlation_data=correlation_data,
        user=published.user,
    )
    told = (
        *published.user,
        *_copied(kept),
        (CHANNEL, found.channel),
        *_called(found.number, found.received_ms),
        (PUBLISHER, found.publisher),
    )
    return _message(found, string_bytes(topic), answering, told, now_ms)


def journal_form(message: MqttMessage, node: str = "") -> MqttMessage:
    """The same as it is kept, with its name where that is not its number at this node.

    `node` is the one that it came from, where that is another.
    """
    notes = [(NODE, node)] if node else []
    if message.home_number > 0 and (message.home, message.home_number) != (node, message.number):
        notes.append((ORIGIN, f"{message.home_number}@{message.home}"))
    if not notes:
        return message
    user = (*message.properties.user, *notes)
    block = passed_on_block(msgspec.structs.replace(message.properties, user=user))
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


def as_published(block: bytes) -> bytes:
    """A block of properties without what `to_keep` noted; ProtocolError where it is damaged."""
    if not any(name.encode() in block for name in _NOTED):
        return block
    return passed_on_block(_published(read_block(block)))


def origin_of(block: bytes) -> tuple[str, int]:
    """Node and number that `to_keep` has noted as a name; ProtocolError where it is damaged."""
    return _origin(read_block(block)) if ORIGIN.encode() in block else ("", 0)


def name_of(found: QueryHit, node: str) -> tuple[str, int]:
    """Where an event that `node` kept was published, and its number; ProtocolError if damaged."""
    properties = read_block(found.properties)
    origin, original = _origin(properties)
    if origin:
        return origin, original
    return next((text for name, text in properties.user if name == NODE), node), found.number


def is_of_node(block: bytes) -> bool:
    """Whether an event that was kept here was published at another node."""
    return NODE.encode() in block and any(name == NODE for name, _ in read_block(block).user)


def _origin(properties: Properties) -> tuple[str, int]:
    for name, text in properties.user:
        number, _, origin = text.partition("@")
        is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
        if name == ORIGIN and is_number and int(number) <= MAX_NUMBER:
            return origin, int(number)
    return "", 0


def _published(kept: Properties) -> Properties:
    """Without what `to_keep` noted."""
    user = tuple(each for each in kept.user if each[0] not in _NOTED)
    return kept if len(user) == len(kept.user) else msgspec.structs.replace(kept, user=user)


def _copied(kept: Properties) -> tuple[tuple[str, str], ...]:
    """Of a copy, whose event it is."""
    return tuple(each for each in kept.user if each[0] == NODE)


def _called(number: int, received_ms: int) -> tuple[tuple[str, str], ...]:
    """What a node calls it, and when it came."""
    return (EVENT, event_id(number)), (RECEIVED, str(received_ms))


def _message(
    found: QueryHit,
    topic: bytes,
    properties: Properties,
    told: tuple[tuple[str, str], ...],
    now_ms: int,
) -> MqttMessage:
    """What policies see are the properties as published; the client is `told` more of them."""
    message = MqttMessage(
        found.channel,
        topic,
        found.payload,
        found.qos,
        False,
        found.publisher,
        now_ms,
        properties,
        passed_on_block(msgspec.structs.replace(properties, user=told)),
        0,
    )
    message.expiry_s = -1
    message.number = found.number
    message.home_number = -1  # `told` has its name
    return message
