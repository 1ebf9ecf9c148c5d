"""Links between a secondary node and its parents, as used by services.

A service sends the same messages to a node of the other tier as to a neighbour in the overlay:
unreliable and of bounded size. Which nodes are present, and the delay of events from them, both
ends know from the protocol between child and parent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.overlay.signalling import TemplateMessage

MAX_BYTES: Final = 1 << 20  # of one message
# Smaller differences of a delay are ignored: measurements vary, and a change is announced to all
# nodes.
_CLOSE_SHARE: Final = 0.3
_CLOSE_US: Final = 500

Hear = Callable[[str, bytes, int], None]  # sender, body, time


class TierLink(msgspec.Struct, frozen=True):
    """Delay of events from the other end; over a standby parent only once it takes over.

    `life` is the child's incarnation, and `turn` its parent epoch: the count of its choices of an
    active parent in that incarnation.
    """

    delay_us: int
    is_active: bool
    life: int = 0
    turn: int = 0


class TierLinks:
    """Current links to the other tier; `version` changes with `links`, the driver sets `send`.

    `began` holds the version at which each neighbour appeared: if it differs, the neighbour may
    have restarted.
    """

    def __init__(self) -> None:
        self.links: dict[str, TierLink] = {}
        self.began: dict[str, int] = {}
        self.version = 0
        self.dropped = 0  # messages without service or link here, or too large
        self.send: Callable[[str, TemplateMessage], None] = lambda *_: None
        self._services: dict[str, Hear] = {}
        self._on_left: list[Callable[[str], None]] = []

    def serve(self, service: str, hear: Hear) -> None:
        self._services[service] = hear

    def watch_leaving(self, left: Callable[[str], None]) -> None:
        """Call `left` when a neighbour has left and is not expected back soon."""
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
