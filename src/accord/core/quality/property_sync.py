"""Replicates property definitions across tiers, where no state records are sent.

Each end has an append-only list. It sends a neighbour the next definitions and retransmits them
until the neighbour acknowledges their end; in a new session it starts from the beginning. Applying
a definition twice is harmless.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.model.errors import decode_or_none
from accord.core.overlay.change_log import ChangeLog, DeltaLimits
from accord.core.overlay.tier_links import MAX_BYTES, TierDeltaSender, TierLinks
from accord.core.quality.properties import MAX_PROPERTIES

SERVICE: Final = "$properties"
RETRANSMIT_US: Final = 1_000_000
_MAX_DEFINITIONS: Final = 32
_LIMITS: Final = DeltaLimits(changes=_MAX_DEFINITIONS, bytes=MAX_BYTES // 8, max_tombstones=0)


class PropertyDelta(msgspec.Struct, frozen=True, array_like=True, tag="define"):
    """The definitions from index `first`."""

    first: int
    texts: tuple[str, ...]


class PropertyAck(msgspec.Struct, frozen=True, array_like=True, tag="defined"):
    """Acknowledges all definitions before index `next`."""

    next: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[PropertyDelta | PropertyAck]] = msgspec.msgpack.Decoder(
    PropertyDelta | PropertyAck
)


class PropertySync:
    """Sends definitions to tier neighbours and receives theirs.

    `on_definition` is called with the neighbour and each definition it sends, in the format of a
    file.
    """

    def __init__(self, tiers: TierLinks) -> None:
        self.on_definition: Callable[[str, str], object] = lambda *_: None
        self._tiers = tiers
        self._texts: ChangeLog[str, str] = ChangeLog(_LIMITS, lambda _, text: len(text or ""))
        self._sender = TierDeltaSender(self._texts, tiers, RETRANSMIT_US)
        tiers.register(SERVICE, self._on_message)

    def announce(self, name: str, text: str) -> None:
        """Sends a definition to all present and future neighbours."""
        if self._texts.get(name) is None and len(self._texts) < MAX_PROPERTIES:
            self._texts.put(name, text)

    def advance(self, now_us: int) -> None:
        for neighbour, reader in self._sender.due(now_us):
            _, changes = self._texts.delta_after(reader.version)
            define = PropertyDelta(reader.version, tuple(text or "" for _, _, text in changes))
            self._tiers.send_message(neighbour, SERVICE, _encode(define))

    def next_due_us(self) -> int:
        return self._sender.next_due_us()

    def _on_message(self, neighbour: str, body: bytes, now_us: int) -> None:
        message = decode_or_none(_decoder, body)
        if isinstance(message, PropertyDelta):
            if len(message.texts) > _MAX_DEFINITIONS or not 0 <= message.first <= MAX_PROPERTIES:
                return  # more than a node can define
            for text in message.texts:
                self.on_definition(neighbour, text)
            ack = PropertyAck(message.first + len(message.texts))
            self._tiers.send_message(neighbour, SERVICE, _encode(ack))
        elif isinstance(message, PropertyAck):
            self._sender.on_ack(neighbour, message.next, now_us)
