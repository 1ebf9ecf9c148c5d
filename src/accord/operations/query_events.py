"""Kept events as operations answer them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from accord.core.model.errors import AccordError
from accord.core.monitoring.ledger import event_id
from accord.core.queries.messages import QueryHit

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SPACES: Final = frozenset("\t\n\r")


class QueryEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kept event: its payload as text where it is some, else as `payload_base64`.

    `problem` says what of it can't be read as an event's.
    """

    id: str
    channel: str
    received: str
    publisher: str
    qos: int = 0
    attributes: dict[str, str | int | float | bool] = {}
    metadata: str | None = None
    key: str | None = None
    deadline_ms: int | None = None
    payload: str | None = None
    payload_base64: str | None = None
    problem: str | None = None


def shown_events(events: Iterable[QueryHit]) -> tuple[QueryEvent, ...]:
    return tuple(shown_event(each) for each in events)


def shown_event(found: QueryHit) -> QueryEvent:
    text = _text(found.payload)
    event = _Contents()
    try:
        event = _contents(found)
    except AccordError as error:
        event.problem = str(error)
    return QueryEvent(
        id=event_id(found.number),
        channel=found.channel,
        received=iso_time(found.received_ms),
        publisher=found.publisher,
        qos=found.qos,
        attributes=event.attributes,
        metadata=event.metadata,
        key=event.key,
        deadline_ms=event.deadline_ms,
        payload=text,
        payload_base64=b64encode(found.payload).decode() if text is None else None,
        problem=event.problem,
    )


def iso_time(ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Contents(Struct):
    """Decoded properties of an event."""

    attributes: dict[str, str | int | float | bool] = {}
    metadata: str | None = None
    key: str | None = None
    deadline_ms: int | None = None
    problem: str | None = None


def _contents(found: QueryHit) -> _Contents:
    from accord.journal.events import KeptEvent  # noqa: PLC0415 (clients import this module)

    kept = KeptEvent(
        found.received_ms,
        found.channel,
        found.publisher,
        found.qos,
        -1,
        found.properties,
        found.payload,
        found.number,
    )
    event = kept.event()
    metadata = None if event.metadata is None else event.metadata.source
    return _Contents(
        attributes={
            name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
            for name, value in event.attributes.items()
        },
        metadata=None if metadata is None else metadata.decode(errors="replace"),
        key=event.key,
        deadline_ms=event.deadline_ms,
    )


def _text(payload: bytes) -> str | None:
    """The payload as text; None if it is not printable."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    is_readable = text.isprintable() or all(
        character.isprintable() or character in _SPACES for character in text
    )
    return text if is_readable else None
