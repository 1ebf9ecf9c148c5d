"""Definitions of properties across tiers, where no facts go: told in a row until they are heard.

Each end has a list to which it only adds. It tells a neighbour the next of them, and again until
that says up to where it has heard; who begins to listen anew is told everything. To hear a
definition twice does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.model.decoding import decoded
from accord.core.negotiation.properties import MAX_PROPERTIES
from accord.core.overlay.tier_links import TierLinks

SERVICE: Final = "$properties"
AGAIN_US: Final = 1_000_000
_AT_ONCE: Final = 32
_NEVER: Final = 2**62


class Define(msgspec.Struct, frozen=True, array_like=True, tag="define"):
    """The definitions from the place `first` on."""

    first: int
    texts: tuple[str, ...]


class Defined(msgspec.Struct, frozen=True, array_like=True, tag="defined"):
    """All before the place `next` were heard."""

    next: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[Define | Defined]] = msgspec.msgpack.Decoder(
    Define | Defined
)


class Defining:
    """`on_told` is called with what a neighbour defines, as a file has it."""

    def __init__(self, tiers: TierLinks) -> None:
        self.on_told: Callable[[str, str], object] = lambda *_: None
        self._tiers = tiers
        self._texts: dict[str, str] = {}  # by name of the property
        self._heard: dict[str, int] = {}  # by each neighbour that is there
        self._began: dict[str, int] = {}
        self._due_us: dict[str, int] = {}
        self._seen = -1
        tiers.serve(SERVICE, self._hear)

    def tell(self, name: str, text: str) -> None:
        """To all who are there, or will be."""
        if name not in self._texts and len(self._texts) < MAX_PROPERTIES:
            self._texts[name] = text
            for neighbour in self._heard:
                self._due_us.setdefault(neighbour, 0)

    def advance(self, now_us: int) -> None:
        self._look_at_links()
        for neighbour, due_us in self._due_us.items():
            if due_us <= now_us:
                first = self._heard[neighbour]
                texts = tuple(self._texts.values())[first : first + _AT_ONCE]
                self._tiers.say(neighbour, SERVICE, _encode(Define(first, texts)))
                self._due_us[neighbour] = now_us + AGAIN_US

    def next_due_us(self) -> int:
        if self._tiers.version != self._seen:
            return 0
        return min(self._due_us.values(), default=_NEVER)

    def _look_at_links(self) -> None:
        if self._tiers.version == self._seen:
            return
        self._seen = self._tiers.version
        before, there = self._began, dict(self._tiers.began)
        self._began = there
        self._heard = {
            neighbour: self._heard[neighbour] if before.get(neighbour) == began else 0
            for neighbour, began in there.items()
        }
        for neighbour in list(self._due_us):
            if neighbour not in there:
                del self._due_us[neighbour]
        for neighbour, heard in self._heard.items():
            if heard < len(self._texts):
                self._due_us.setdefault(neighbour, 0)

    def _hear(self, neighbour: str, body: bytes, now_us: int) -> None:
        message = decoded(_decoder, body)
        if isinstance(message, Define):
            if len(message.texts) > _AT_ONCE or not 0 <= message.first <= MAX_PROPERTIES:
                return  # nobody has so many
            for text in message.texts:
                self.on_told(neighbour, text)
            heard = Defined(message.first + len(message.texts))
            self._tiers.say(neighbour, SERVICE, _encode(heard))
        elif isinstance(message, Defined) and neighbour in self._heard:
            heard_to = min(message.next, len(self._texts))
            self._heard[neighbour] = max(self._heard[neighbour], heard_to)
            if self._heard[neighbour] == len(self._texts):
                self._due_us.pop(neighbour, None)
            else:
                self._due_us[neighbour] = now_us
