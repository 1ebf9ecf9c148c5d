"""The event: what is published, matched, kept and delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from accord.core.model.channels import problem_with_channel
from accord.core.model.document import Document
from accord.core.model.errors import EventError
from accord.core.model.values import INTEGER_MAX, Value, problem_with, problem_with_text

MAX_ATTRIBUTES: Final = 1_000
MAX_NAME_LENGTH: Final = 256
MAX_TEXT_LENGTH: Final = 65_535
MAX_PAYLOAD: Final = 268_435_455  # limit of one MQTT packet


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A typed information object.

    `attributes` are those set by the publisher; `values` adds those from XML metadata, and is what
    selectors see. `sequence` counts the events of one `source`. Times are milliseconds since 1970
    in UTC; `deadline_ms` is the time after `published_ms` within which the event is of use.
    """

    channel: str
    attributes: Mapping[str, Value] = field(default_factory=dict)
    payload: bytes = b""
    metadata: Document | None = None
    key: str | None = None
    deadline_ms: int | None = None
    published_ms: int = 0
    received_ms: int = 0
    source: str = ""
    sequence: int = 0

    def __post_init__(self) -> None:
        if problem := problem_with_channel(self.channel):
            raise EventError("channel", problem)
        _check_attributes(self.attributes)
        object.__setattr__(self, "attributes", _in_utc(self.attributes))
        if len(self.payload) > MAX_PAYLOAD:
            raise EventError(
                "payload", f"{len(self.payload)} bytes, at most {MAX_PAYLOAD} accepted"
            )
        for name, text in (("key", self.key), ("source", self.source)):
            if text is not None and (problem := problem_with_name(text)):
                raise EventError(name, problem)
        for name in ("published_ms", "received_ms", "sequence", "deadline_ms"):
            number = getattr(self, name)
            if number is not None and not 0 <= number <= INTEGER_MAX:
                raise EventError(name, f"expected 0 to {INTEGER_MAX}, got {number}")

    @property
    def values(self) -> Mapping[str, Value]:
        """Attributes as selectors see them: the publisher's take precedence over XML metadata."""
        if self.metadata is None:
            return self.attributes
        return {**self.metadata.attributes, **self.attributes}


def _check_attributes(attributes: Mapping[str, Value]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise EventError(
            "attributes", f"{len(attributes)} attributes, at most {MAX_ATTRIBUTES} accepted"
        )
    for name, value in attributes.items():
        problem = "expected a name" if not name else problem_with_name(name)
        if problem:
            raise EventError("attributes", f"{problem}, got {name[:40]!r}")
        if problem := problem_with(value):
            raise EventError(f"attributes.{name}", problem)
        if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
            raise EventError(
                f"attributes.{name}",
                f"{len(value)} characters, at most {MAX_TEXT_LENGTH} accepted",
            )


def _in_utc(attributes: Mapping[str, Value]) -> Mapping[str, Value]:
    """Converts times to UTC: Python compares zones by local clock, which may repeat an hour."""
    if all(getattr(value, "tzinfo", UTC) is UTC for value in attributes.values()):
        return attributes
    try:
        return {
            name: value.astimezone(UTC) if isinstance(value, datetime) else value
            for name, value in attributes.items()
        }
    except OverflowError:
        raise EventError("attributes", "expected timestamps from year 1 to 9999 in UTC") from None


def problem_with_name(name: str) -> str | None:
    """Why `name` is not a valid attribute name, or None if it is."""
    if len(name) > MAX_NAME_LENGTH:
        return f"expected at most {MAX_NAME_LENGTH} characters"
    if "\0" in name:
        return "expected no null character"
    return problem_with_text(name)
