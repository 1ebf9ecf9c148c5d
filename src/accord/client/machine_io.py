"""Inputs of the client's machine, in the past tense, and its outputs, as orders."""

from __future__ import annotations

from typing import Final

import msgspec

from accord.client.errors import ClientError
from accord.client.inbox import ReceivedMessage
from accord.core.mqtt.packets import Publish, TopicFilter, Will
from accord.core.mqtt.properties import NO_PROPERTIES, Properties

DURABLE_S: Final = 3_600


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a session."""

    client_id: str = ""  # empty: the server chooses one
    username: str | None = None
    password: bytes | None = None
    clean_start: bool = True  # of the first connection; later ones resume
    session_expiry_s: int = DURABLE_S
    keep_alive_s: int = 30
    connect_timeout_ms: int = 10_000
    inflight_limit: int = 1_000  # publications sent and not yet acknowledged
    receive_maximum: int = 1_000  # events received and not yet acknowledged
    maximum_packet_size: int = 64 * 1024 * 1024
    will: Will | None = None
    wants_event_ids: bool = False  # event IDs; a server that does not give them is refused

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name}: expected {low} to {high}, got {value}")


_RANGES: Final = (
    ("session_expiry_s", 0, 2**32 - 1),
    ("keep_alive_s", 0, 65_535),
    ("connect_timeout_ms", 1, 86_400_000),
    ("inflight_limit", 1, 32_767),
    ("receive_maximum", 1, 65_535),
    ("maximum_packet_size", 1_024, 2**32 - 1),
)


# ------------------------------------------------------------------------------------------ inputs


class Opened(msgspec.Struct, frozen=True):
    """The transport is open."""


class Received(msgspec.Struct, frozen=True):
    """Bytes came in."""

    data: bytes


class Lost(msgspec.Struct, frozen=True):
    """The transport has closed or failed."""


class PublishRequested(msgspec.Struct, frozen=True):
    """A publication was requested; `deadline_ms` is relative to now."""

    token: int
    message: Publish
    deadline_ms: int | None = None


class Withdrawn(msgspec.Struct, frozen=True):
    """The requester of a publication is gone: if not sent yet, the publication is dropped."""

    token: int


class SubscribeRequested(msgspec.Struct, frozen=True):
    """A subscription was requested; `identifier` is new in this session."""

    token: int
    identifier: int
    filter: TopicFilter
    user: tuple[tuple[str, str], ...] = ()
    queue: int = 1_000


class UnsubscribeRequested(msgspec.Struct, frozen=True):
    """A subscription was left; with `is_kept` the server keeps it and continues to queue for it."""

    identifier: int
    is_kept: bool = False


class Consumed(msgspec.Struct, frozen=True):
    """The consumer has finished with this message, which may be acknowledged."""

    delivery: ReceivedMessage


class CloseRequested(msgspec.Struct, frozen=True):
    """The session was closed; with `is_discarded` the server may discard it."""

    is_discarded: bool


Input = (
    Opened
    | Received
    | Lost
    | PublishRequested
    | Withdrawn
    | SubscribeRequested
    | UnsubscribeRequested
    | Consumed
    | CloseRequested
)

# ----------------------------------------------------------------------------------------- outputs


class Send(msgspec.Struct, frozen=True):
    data: bytes


class Connected(msgspec.Struct, frozen=True):
    is_resumed: bool
    properties: Properties


class Close(msgspec.Struct, frozen=True):
    """Close the transport; with `is_final` do not reconnect."""

    error: ClientError
    is_final: bool


class Settled(msgspec.Struct, frozen=True):
    """The result of the request with `token`."""

    token: int
    reason: int = 0
    properties: Properties = NO_PROPERTIES
    error: ClientError | None = None


class Arrived(msgspec.Struct, frozen=True):
    """The subscription's inbox has something new."""

    identifier: int


class Ended(msgspec.Struct, frozen=True):
    """The server ended the subscription, or refused it after a lost session."""

    identifier: int
    error: ClientError


Output = Send | Connected | Close | Settled | Arrived | Ended
