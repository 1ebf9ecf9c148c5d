"""A published message on its way through the node, decoded no further than anybody needed."""

from __future__ import annotations

from collections.abc import Mapping

from accord.core.model.document import Document
from accord.core.model.values import Value


class Message:
    """What every edge makes of what a publisher sent.

    `number` is its own on this node; `publisher` names the client it came from; `expires_ms` is 0
    where it is of use for ever; a later message of the same channel and `key` replaces it while it
    waits, unless that is empty.
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
        """What selectors see; EventError where the publisher's attributes are bad."""
        raise NotImplementedError

    def document(self) -> Document | None:
        """What XPath conditions see; EventError as for `values`."""
        raise NotImplementedError

    def size(self) -> int:
        """About how many bytes it takes to send or keep."""
        raise NotImplementedError
