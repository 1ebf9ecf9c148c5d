"""Received events as JSON lines, which `accord.apps.event_files.json_lines` reads again."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

from accord.client.messages import ReceivedEvent
from accord.core.model.values import Value


def json_line(event: ReceivedEvent) -> bytes:
    """The event as a line, without its end."""
    return json.dumps(to_fields(event), ensure_ascii=False).encode()


def to_fields(event: ReceivedEvent) -> dict[str, Any]:
    """The object that is parsed as this event."""
    fields: dict[str, Any] = {
        "channel": event.channel,
        "attributes": {name: _json_value(value) for name, value in event.attributes.items()},
    }
    try:
        fields["payload"] = event.payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(event.payload).decode()
    if event.metadata is not None:
        fields["metadata"] = event.metadata.source.decode()
    if event.key is not None:
        fields["key"] = event.key
    if event.deadline_ms is not None:
        fields["deadline_ms"] = event.deadline_ms
    fields["published_ms"] = event.published_ms
    if event.is_kept:
        fields |= {"received_ms": event.received_ms, "id": event.id}
        if event.source:
            fields["source"] = event.source
    return fields


def _json_value(value: Value) -> object:
    return (
        {"timestamp": value.isoformat().replace("+00:00", "Z")}
        if isinstance(value, datetime)
        else value
    )
