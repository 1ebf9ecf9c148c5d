"""Conversion between events and MQTT messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

import msgspec

from accord.core.model.document import Document
from accord.core.model.errors import EventError
from accord.core.model.event import Event
from accord.core.model.values import Value
from accord.core.mqtt.codes import Reason
from accord.core.mqtt.event_mapping import EVENT, MAX_EXPIRY_S, from_event, to_event
from accord.core.mqtt.packets import Publish
from accord.core.mqtt.properties import (
    CHANNEL,
    NO_PROPERTIES,
    OWN_PREFIX,
    PUBLISHER,
    RECEIVED,
    Properties,
)
from accord.core.mqtt.properties import EVENT as KEPT_EVENT
from accord.core.router.rights import FEEDBACK_PREFIX

UTF8: Final = 1  # a payload format
_DIGITS: Final = 18  # maximum length of a time value


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedEvent(Event):
    """An event as received, with the properties of its MQTT message.

    `problem` is why a message could not be decoded as an event; it then has its payload, and no
    attributes. An event from a query or from the history of a subscription has `is_kept`: its `id`
    is the node's event ID, and `received_ms` is when the node received it.
    """

    id: str = ""
    is_kept: bool = False
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES
    problem: str | None = None
    # Sends feedback through the session that received the event.
    respond: Callable[..., Awaitable[Outcome]] | None = field(
        default=None, repr=False, compare=False
    )

    @property
    def text(self) -> str:
        """The payload as text; raises UnicodeDecodeError if it is not UTF-8."""
        return self.payload.decode()

    @property
    def wants_feedback(self) -> bool:
        """Whether the source requested feedback."""
        return (self.properties.response_topic or "").startswith(FEEDBACK_PREFIX)

    async def feedback(
        self,
        payload: bytes | str = b"",
        /,
        *,
        qos: int = 1,
        attributes: Mapping[str, Value] | None = None,
        **more: Value,
    ) -> Outcome:
        """Send feedback to the source, which receives it from `Session.feedback` and can reply.

        Raises EventError if the source did not request feedback, and RefusedError, with the node's
        explanation, if it cannot be delivered.
        """
        if not self.wants_feedback:
            raise EventError("feedback", "the source of the event wants no answers")
        if self.respond is None:
            raise EventError("feedback", "the event was not received by a session")
        return await self.respond(self, payload, qos=qos, attributes=attributes, **more)


class Outcome(msgspec.Struct, frozen=True):
    """The server's reply to a publication that it accepted."""

    reason: Reason = Reason.SUCCESS
    explanation: str = ""
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def has_subscribers(self) -> bool:
        """False only if the server reported that there are no subscribers."""
        return self.reason != Reason.NO_MATCHING_SUBSCRIBERS

    @property
    def event(self) -> str:
        """The node's event ID, for `accord why`; empty if the server gave none."""
        return next((value for name, value in self.facts if name == EVENT), "")


class Extras(TypedDict, total=False):
    """Options of a publication besides channel, payload and attributes."""

    qos: int
    retain: bool
    key: str | None
    deadline_ms: int | None
    expiry_s: int | None
    metadata: str | bytes | None
    content_type: str | None
    response_topic: str | None
    correlation_data: bytes | None


def to_message(
    channel: str, payload: bytes | str, attributes: Mapping[str, Value], extras: Extras
) -> Publish:
    """Encode an event as a message; raises EventError if it cannot be encoded."""
    if not isinstance(payload, str | bytes | bytearray | memoryview):
        raise TypeError(
            f"payload: expected bytes or str, got {type(payload).__name__}; encode it, such as "
            "with json.dumps, or give its values as attributes"
        )
    metadata = extras.get("metadata")
    if isinstance(metadata, str):
        metadata = metadata.encode()
    event = Event(
        channel=channel,
        attributes=attributes,
        payload=payload.encode() if isinstance(payload, str) else bytes(payload),
        metadata=None if metadata is None else Document(metadata),
        key=extras.get("key"),
        deadline_ms=extras.get("deadline_ms"),
    )
    qos = extras.get("qos", 1)
    if qos not in (0, 1, 2):
        raise EventError("qos", f"expected 0, 1 or 2, got {qos}")
    topic, data, properties = from_event(event)
    properties = msgspec.structs.replace(
        properties,
        message_expiry_s=_expiry_s(extras.get("expiry_s"), properties.message_expiry_s),
        payload_format=UTF8 if isinstance(payload, str) else None,
        content_type=extras.get("content_type"),
        response_topic=extras.get("response_topic"),
        correlation_data=extras.get("correlation_data"),
    )
    return Publish(topic, data, qos, extras.get("retain", False), properties=properties)


def _expiry_s(asked_s: int | None, of_deadline_s: int | None) -> int | None:
    if asked_s is None:
        return of_deadline_s
    if not 0 < asked_s <= MAX_EXPIRY_S:
        raise EventError("expiry_s", f"expected 1 to {MAX_EXPIRY_S}, got {asked_s}")
    return asked_s


def time_to_send_ms(message: Publish, extras: Extras) -> int | None:
    """The time for which the message may wait to be sent; None if unlimited."""
    deadline_ms, expiry_s = extras.get("deadline_ms"), message.properties.message_expiry_s
    if deadline_ms is not None:
        return deadline_ms
    return None if expiry_s is None else expiry_s * 1000


def to_received(
    message: Publish,
    received_ms: int,
    *,
    respond: Callable[..., Awaitable[Outcome]] | None = None,
) -> ReceivedEvent:
    """Decode the event in a message; names that begin with `accord-` are no attributes."""
    topic, properties = message.topic, message.properties
    own = {name: text for name, text in properties.user if name.startswith(OWN_PREFIX)}
    if own:
        user = tuple(pair for pair in properties.user if pair[0] not in own)
        properties = msgspec.structs.replace(properties, user=user)
        topic = own.get(CHANNEL, topic)
        received_ms = _moment_ms(own.get(RECEIVED)) or received_ms
    source, problem = own.get(PUBLISHER, ""), None
    try:
        event = to_event(topic, message.payload, properties, received_ms=received_ms, source=source)
    except EventError as error:
        problem = str(error)
        event = Event(
            channel=message.topic,
            payload=message.payload,
            published_ms=received_ms,
            received_ms=received_ms,
        )
    return ReceivedEvent(
        channel=event.channel,
        attributes=event.attributes,
        payload=event.payload,
        metadata=event.metadata,
        key=event.key,
        deadline_ms=event.deadline_ms,
        published_ms=event.published_ms,
        received_ms=event.received_ms,
        source=event.source,
        id=own.get(KEPT_EVENT, ""),
        is_kept=RECEIVED in own,
        qos=message.qos,
        retain=message.retain,
        properties=message.properties,
        problem=problem,
        respond=respond,
    )


def _moment_ms(text: str | None) -> int | None:
    is_number = text is not None and len(text) <= _DIGITS and text.isascii() and text.isdecimal()
    return int(text) if text is not None and is_number else None
