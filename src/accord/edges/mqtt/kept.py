"""Kept events on their way back to clients: results of queries, and the past of a subscription.

They are messages like those that were published, with what the archive knows besides as user
properties. What was said of their use at the time (expiry, replacement key) does not bind them: who
asks for the past wants just what is over.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.monitoring.channels import ChannelCounts
from accord.core.monitoring.ledger import event_id
from accord.edges.mqtt.message import MqttMessage
from accord.edges.mqtt.names import CHANNEL, EVENT, NODE, ORIGIN, PUBLISHER, RECEIVED
from accord.edges.mqtt.properties import Properties, passed_on_block, read_block
from accord.edges.mqtt.wire import string_bytes
from accord.edges.pipeline.messages import Found

_DIGITS: Final = 19  # of a number of 63 bits


def past_message(found: Found, counts: ChannelCounts, now_ms: int, node: str = "") -> MqttMessage:
    """A kept event for a subscription; ProtocolError where its properties are damaged."""
    properties = read_block(found.properties)
    user = tuple(each for each in properties.user if each[0] != ORIGIN)
    told = (*user, *_named(found), *(((NODE, node),) if node else ()))
    message = _message(found, string_bytes(found.channel), properties, told, now_ms)
    message.counts = counts
    return message


def result_message(
    found: Found, topic: str, correlation_data: bytes | None, now_ms: int
) -> MqttMessage:
    """A kept event for who asked for it, on `topic`; ProtocolError as above."""
    published = read_block(found.properties)
    answering = Properties(
        payload_format=published.payload_format,
        content_type=published.content_type,
        correlation_data=correlation_data,
        user=published.user,
    )
    told = (
        *published.user,
        (CHANNEL, found.channel),
        *_named(found),
        (PUBLISHER, found.publisher),
    )
    return _message(found, string_bytes(topic), answering, told, now_ms)


def of_node(message: MqttMessage, node: str) -> MqttMessage:
    """The same to be kept here, though it was published at another node."""
    return _noted(message, NODE, node)


def of_child(message: MqttMessage, origin: str, original: int) -> MqttMessage:
    """The same to be kept, with what the secondary node calls it where it was published."""
    return _noted(message, ORIGIN, f"{original}@{origin}")


def origin_of(block: bytes) -> tuple[str, int]:
    """What `of_child` has noted of an event that was kept; ProtocolError where it is damaged."""
    if ORIGIN.encode() in block:
        for name, text in read_block(block).user:
            number, _, origin = text.partition("@")
            is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
            if name == ORIGIN and is_number:
                return origin, int(number)
    return "", 0


def _noted(message: MqttMessage, name: str, text: str) -> MqttMessage:
    user = (*message.properties.user, (name, text))
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
    return kept


def is_of_node(block: bytes) -> bool:
    """Whether an event that was kept here was published at another node."""
    return NODE.encode() in block and any(name == NODE for name, _ in read_block(block).user)


def _named(found: Found) -> tuple[tuple[str, str], ...]:
    """What the node calls it, and when it came."""
    return (EVENT, event_id(found.number)), (RECEIVED, str(found.received_ms))


def _message(
    found: Found,
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
