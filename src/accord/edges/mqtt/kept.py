"""Kept events on their way back to clients: results of queries, and the past of a subscription.

They are messages like those that were published, with what the archive knows besides as user
properties. What was said of their use at the time (expiry, replacement key) does not bind them: who
asks for the past wants just what is over.
"""

from __future__ import annotations

from accord.core.monitoring.channels import ChannelCounts
from accord.core.monitoring.ledger import event_id
from accord.edges.mqtt.codes import PacketType
from accord.edges.mqtt.message import MqttMessage
from accord.edges.mqtt.names import CHANNEL, EVENT, PUBLISHER, RECEIVED
from accord.edges.mqtt.properties import Properties, decode_properties, passed_on_block
from accord.edges.mqtt.wire import string_bytes, varint_bytes
from accord.edges.pipeline.messages import Found


def past_message(found: Found, counts: ChannelCounts, now_ms: int) -> MqttMessage:
    """A kept event for a subscription; ProtocolError where its properties are damaged."""
    properties = _properties(found)
    extra = ((EVENT, event_id(found.number)), (RECEIVED, str(found.received_ms)))
    message = _message(found, string_bytes(found.channel), properties, extra, now_ms)
    message.counts = counts
    return message


def result_message(
    found: Found, topic: str, correlation_data: bytes | None, now_ms: int
) -> MqttMessage:
    """A kept event for who asked for it, on `topic`; ProtocolError as above."""
    properties = _properties(found)
    extra = (
        (CHANNEL, found.channel),
        (EVENT, event_id(found.number)),
        (RECEIVED, str(found.received_ms)),
        (PUBLISHER, found.publisher),
    )
    answering = Properties(
        payload_format=properties.payload_format,
        content_type=properties.content_type,
        correlation_data=correlation_data,
        user=properties.user,
    )
    return _message(found, string_bytes(topic), answering, extra, now_ms)


def _properties(found: Found) -> Properties:
    encoded = varint_bytes(len(found.properties)) + found.properties
    return decode_properties(encoded, 0, len(encoded), PacketType.PUBLISH)[0]


def _message(
    found: Found,
    topic: bytes,
    properties: Properties,
    extra: tuple[tuple[str, str], ...],
    now_ms: int,
) -> MqttMessage:
    told = Properties(
        payload_format=properties.payload_format,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user=(*properties.user, *extra),
    )
    # What policies see are the attributes as published; `told` is what the client gets.
    message = MqttMessage(
        found.channel,
        topic,
        found.payload,
        found.qos,
        False,
        found.publisher,
        now_ms,
        properties,
        passed_on_block(told),
        0,
    )
    message.expiry_s = -1
    message.number = found.number
    return message
