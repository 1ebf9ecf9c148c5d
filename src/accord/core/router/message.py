"""A published message inside the node, decoded no further than needed."""

from __future__ import annotations

from collections.abc import Mapping

from accord.core.model.document import Document
from accord.core.model.values import Value


class Message:
    """Common form of a publication, independent of the edge that received it.

    `number` is its number at this node; `publisher` is the client it came from; `expires_ms` is 0
    if it does not expire. While it is queued, a later message of the same channel and non-empty
    `key` replaces it.
    """

    __slots__ = (
        "channel",
        "expires_ms",
        "is_retained",
        "key",
        "number",
        "payload",
        "publisher",
        "qos",
        "received_ms",
    )

    def __init__(
        self,
        channel: str,
        payload: bytes,
        qos: int,
        is_retained: bool,
        publisher: str,
        received_ms: int,
        expires_ms: int,
    ) -> None:
        self.channel = channel
        self.payload = payload
        self.qos = qos
        self.is_retained = is_retained
        self.publisher = publisher
        self.received_ms = received_ms
        self.expires_ms = expires_ms
        self.key = ""
        self.number = 0

    def values(self) -> Mapping[str, Value]:
        """Return what selectors see; EventError if the publisher's attributes are malformed."""
        raise NotImplementedError

    def document(self) -> Document | None:
        """Return what XPath conditions see; EventError as for `values`."""
        raise NotImplementedError

    def size(self) -> int:
        """Return the approximate size in bytes, to send or to store."""
        raise NotImplementedError
