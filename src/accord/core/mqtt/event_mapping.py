"""Maps events to MQTT 5 messages and back.

An attribute is a user property; text in the form of a number, a boolean or a time becomes that type
(see `infer`). A *string* attribute in such a form, such as "42", therefore arrives as the number
42: MQTT can't distinguish them. All other values arrive unchanged. Of a repeated user property the
first counts. Three names are not attributes: `metadata` (XML), `key` and `deadline-ms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from accord.core.model.document import Document
from accord.core.model.errors import EventError
from accord.core.model.event import MAX_ATTRIBUTES, Event
from accord.core.model.values import INTEGER_MAX, Value, infer
from accord.core.mqtt.properties import Properties
from accord.core.mqtt.wire import MAX_BLOCK

METADATA: Final = "metadata"
KEY: Final = "key"
DEADLINE: Final = "deadline-ms"
RESERVED: Final = frozenset({METADATA, KEY, DEADLINE})

# A CONNECT user property that requests event IDs in acknowledgements, as user property EVENT.
EVENT_IDS: Final = ("event-ids", "yes")
EVENT: Final = "event"
# One that requests event IDs with received events; CONNACK repeats it if granted.
EVENT_NAMES: Final = ("event-names", "yes")

MAX_EXPIRY_S: Final = 2**32 - 1

_DIGITS: Final = re.compile(r"[0-9]{1,19}")


def to_event(
    topic: str, payload: bytes, properties: Properties, *, received_ms: int, source: str = ""
) -> Event:
    """The event of a message; raises EventError with the invalid field.

    MQTT carries no publication time: the time of receipt is used.
    """
    attributes, reserved = _split_user(properties)
    return Event(
        channel=topic,
        attributes=attributes,
        payload=payload,
        metadata=_document(reserved),
        key=reserved.get(KEY),
        deadline_ms=_deadline_ms(reserved.get(DEADLINE), properties.message_expiry_s),
        published_ms=received_ms,
        received_ms=received_ms,
        source=source,
    )


def to_values(properties: Properties) -> tuple[Mapping[str, Value], Document | None]:
    """What predicates see of an event: its values, and its XML metadata if any.

    Cheaper than the whole event; raises EventError likewise.
    """
    attributes, reserved = _split_user(properties)
    document = _document(reserved) if reserved else None
    if len(attributes) > MAX_ATTRIBUTES:
        problem = f"{len(attributes)} attributes, at most {MAX_ATTRIBUTES} accepted"
        raise EventError("attributes", problem)
    return attributes if document is None else {**document.attributes, **attributes}, document


def _split_user(properties: Properties) -> tuple[dict[str, Value], dict[str, str]]:
    """Attributes, and reserved user properties."""
    attributes: dict[str, Value] = {}
    reserved: dict[str, str] = {}
    for name, text in properties.user:
        if name in RESERVED:
            if name in reserved:
                raise EventError(name, "expected once, given twice")
            reserved[name] = text
        elif name not in attributes:
            attributes[name] = infer(text)
    return attributes, reserved


def _document(reserved: Mapping[str, str]) -> Document | None:
    metadata = reserved.get(METADATA)
    return None if metadata is None else Document(metadata.encode())


def _deadline_ms(text: str | None, expiry_s: int | None) -> int | None:
    if text is None:
        return None if expiry_s is None else expiry_s * 1000
    if not _DIGITS.fullmatch(text) or int(text) > INTEGER_MAX:
        raise EventError(DEADLINE, f"expected whole milliseconds, got {text[:40]!r}")
    return int(text)


def from_event(event: Event) -> tuple[str, bytes, Properties]:
    """Topic, payload and properties of `event`; raises EventError if MQTT can't express it.

    The deadline is included twice: to the millisecond, and rounded up as the message expiry
    interval, which any broker obeys.
    """
    user: list[tuple[str, str]] = []
    if event.metadata is not None:
        user.append((METADATA, _metadata_text(event.metadata)))
    if event.key is not None:
        user.append((KEY, event.key))
    expiry_s = None
    if event.deadline_ms is not None:
        user.append((DEADLINE, str(event.deadline_ms)))
        seconds = -(-event.deadline_ms // 1000)
        expiry_s = seconds if seconds <= MAX_EXPIRY_S else None
    user += attributes_to_user(event.attributes)
    return event.channel, event.payload, Properties(message_expiry_s=expiry_s, user=tuple(user))


def attributes_to_user(attributes: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _text(name, value)) for name, value in attributes.items())


def _text(name: str, value: Value) -> str:
    if name in RESERVED:
        raise EventError(f"attributes.{name}", "this name is reserved and can't be an attribute")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"
    if not isinstance(value, str):
        return repr(value)
    _check_text(f"attributes.{name}", value)
    return value


def _metadata_text(metadata: Document) -> str:
    try:
        text = metadata.source.decode()
    except UnicodeDecodeError:
        raise EventError(METADATA, "expected XML in UTF-8 to send it by MQTT") from None
    _check_text(METADATA, text)
    return text


def _check_text(field: str, text: str) -> None:
    if "\0" in text:
        raise EventError(field, "expected no null character")
    size = len(text.encode())
    if size > MAX_BLOCK:
        raise EventError(field, f"{size} bytes of text, at most {MAX_BLOCK} fit into MQTT")
