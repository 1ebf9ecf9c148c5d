"""Links between a secondary node and its parents, for services that speak over them, too.

A service says to a node of the other tier what it says to a neighbour in the overlay: messages that
may be lost, and are of limited size. Who is there, and how long events take from there, is known by
both ends from what they say to each other anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.overlay.signalling import TemplateMessage

MAX_BYTES: Final = 1 << 20  # of one message
# A delay that differs by less is the same: what is measured varies by itself, and a change is told
# to all nodes.
_CLOSE_SHARE: Final = 0.3
_CLOSE_US: Final = 500

Hear = Callable[[str, bytes, int], None]  # from whom, what, and when


class TierLink(msgspec.Struct, frozen=True):
    """How long events take from there: over a parent that stands by, not before it takes over.

    `turn` counts, in each life of the child, its choices of an active parent.
    """

    delay_us: int
    is_active: bool
    life: int = 0
    turn: int = 0


class TierLinks:
    """`version` changes with `links`; `send` is set by whoever has the links.

    `began` says of each neighbour from which version on it has been there: another one means that
    it may have begun anew.
    """

    def __init__(self) -> None:
        self.links: dict[str, TierLink] = {}
        self.began: dict[str, int] = {}
        self.version = 0
        self.dropped = 0  # messages that nobody here understands
        self.send: Callable[[str, TemplateMessage], None] = lambda *_: None
        self._services: dict[str, Hear] = {}
        self._on_left: list[Callable[[str], None]] = []

    def serve(self, service: str, hear: Hear) -> None:
        self._services[service] = hear

    def watch_leaving(self, left: Callable[[str], None]) -> None:
        """Have `left` called when a neighbour does not come back soon."""
        self._on_left.append(left)

    def say(self, neighbour: str, service: str, body: bytes) -> None:
        if neighbour in self.links:
            self.send(neighbour, TemplateMessage(service, "", body))

    def heard(self, neighbour: str, said: TemplateMessage, now_us: int) -> None:
        hear = self._services.get(said.template)
        if hear is None or neighbour not in self.links or len(said.body) > MAX_BYTES:
            self.dropped += 1
        else:
            hear(neighbour, said.body, now_us)

    def set(self, neighbour: str, link: TierLink) -> None:
        known = self.links.get(neighbour)
        if known is None or not _is_close(known, link):
            self.links[neighbour] = link
            self.version += 1
            self.began.setdefault(neighbour, self.version)

    def drop(self, neighbour: str) -> None:
        if self.links.pop(neighbour, None) is not None:
            self.version += 1
            del self.began[neighbour]

    def left(self, neighbour: str) -> None:
        self.drop(neighbour)
        for each in self._on_left:
            each(neighbour)


def _is_close(one: TierLink, other: TierLink) -> bool:
    off_us = abs(one.delay_us - other.delay_us)
    is_near = off_us <= max(_CLOSE_US, _CLOSE_SHARE * one.delay_us)
    return is_near and _role(one) == _role(other)


def _role(link: TierLink) -> tuple[bool, int, int]:
    return link.is_active, link.life, link.turn
