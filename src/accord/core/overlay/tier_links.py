"""Links between secondary nodes and their parents, and the change logs replicated over them.

A service sends the same messages to a node of the other tier as to a neighbour in the overlay:
unreliable and of bounded size. Which nodes are present, and the delay of events from them, both
ends know from the protocol between child and parent.

`TierDeltaSender` replicates a change log to the neighbours of the other tier. Each is sent the
changes after the version it has acknowledged, retransmitted until it acknowledges more. Each link
starts a session, which begins with a snapshot; so does a reset, when tombstones that a neighbour
needs have been discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from accord.core.model.units import NEVER_US
from accord.core.overlay.change_log import ChangeLog
from accord.core.overlay.signalling import TemplateMessage

MAX_BYTES: Final = 1 << 20  # of one message
# Smaller differences of a delay are ignored: measurements vary, and a change is announced to all
# nodes.
_CLOSE_SHARE: Final = 0.3
_CLOSE_US: Final = 500

MessageHandler = Callable[[str, bytes, int], None]  # sender, body, time


class TierLink(msgspec.Struct, frozen=True):
    """Delay of events from the other end; over a standby parent only once it takes over.

    `incarnation` is the child's incarnation, and `parent_epoch` its parent epoch: the count of its
    choices of an active parent in that incarnation.
    """

    delay_us: int
    is_active: bool
    incarnation: int = 0
    parent_epoch: int = 0


class TierLinks:
    """Current links to the other tier; `version` changes with `links`, the driver sets `send`.

    `appeared` holds the version at which each neighbour appeared: if it differs, the neighbour may
    have restarted.
    """

    def __init__(self) -> None:
        self.links: dict[str, TierLink] = {}
        self.appeared: dict[str, int] = {}
        self.version = 0
        self.dropped = 0  # messages without service or link here, or too large
        self.send: Callable[[str, TemplateMessage], None] = lambda *_: None
        self._services: dict[str, MessageHandler] = {}
        self._on_left: list[Callable[[str], None]] = []

    def register(self, service: str, handler: MessageHandler) -> None:
        self._services[service] = handler

    def watch_left(self, callback: Callable[[str], None]) -> None:
        """Call `callback` when a neighbour has left and is not expected back soon."""
        self._on_left.append(callback)

    def send_message(self, neighbour: str, service: str, body: bytes) -> None:
        if neighbour in self.links:
            self.send(neighbour, TemplateMessage(service, "", body))

    def on_message(self, neighbour: str, message: TemplateMessage, now_us: int) -> None:
        handler = self._services.get(message.template)
        if handler is None or neighbour not in self.links or len(message.body) > MAX_BYTES:
            self.dropped += 1
        else:
            handler(neighbour, message.body, now_us)

    def set(self, neighbour: str, link: TierLink) -> None:
        known = self.links.get(neighbour)
        if known is None or not _is_close(known, link):
            self.links[neighbour] = link
            self.version += 1
            self.appeared.setdefault(neighbour, self.version)

    def drop(self, neighbour: str) -> None:
        if self.links.pop(neighbour, None) is not None:
            self.version += 1
            del self.appeared[neighbour]

    def on_left(self, neighbour: str) -> None:
        self.drop(neighbour)
        for each in self._on_left:
            each(neighbour)


def _is_close(one: TierLink, other: TierLink) -> bool:
    off_us = abs(one.delay_us - other.delay_us)
    is_near = off_us <= max(_CLOSE_US, _CLOSE_SHARE * one.delay_us)
    return is_near and _role(one) == _role(other)


def _role(link: TierLink) -> tuple[bool, int, int]:
    return link.is_active, link.incarnation, link.parent_epoch


class TierPeerCursor:
    """Progress of one neighbour, which has acknowledged all changes up to `version`."""

    def __init__(self, link: int) -> None:
        self.version = 0
        self.session = 0  # numbered over all neighbours
        self.link = link
        self.floor = 0  # of the log when the session started
        self.due_us = 0


class TierDeltaSender:
    """Cursors of all neighbours into the log; `retransmit_us` is the retransmission timeout."""

    def __init__(self, log: ChangeLog[Any, Any], tiers: TierLinks, retransmit_us: int) -> None:
        self._log = log
        self._tiers = tiers
        self._retransmit_us = retransmit_us
        self._cursors: dict[str, TierPeerCursor] = {}
        self._sessions = 0
        self._seen = -1

    def get(self, neighbour: str) -> TierPeerCursor | None:
        return self._cursors.get(neighbour)

    def on_ack(self, neighbour: str, version: int, now_us: int) -> None:
        """A neighbour acknowledged `version`; lower than before if it has restarted."""
        reader = self._cursors.get(neighbour)
        if reader is not None and version != reader.version and 0 <= version <= self._log.version:
            reader.version = version
            reader.due_us = now_us
            self._discard_acked()

    def due(self, now_us: int) -> list[tuple[str, TierPeerCursor]]:
        """Neighbours to send changes to now."""
        if self._tiers.version != self._seen:
            self._refresh_links()
        found = [each for each in self._behind() if each[1].due_us <= now_us]
        for _, reader in found:
            reader.due_us = now_us + self._retransmit_us
            if not self._log.can_resume_from(reader.version, reader.floor):
                self._start_session(reader)
        return found

    def next_due_us(self) -> int:
        if self._tiers.version != self._seen:
            return 0
        return min((reader.due_us for _, reader in self._behind()), default=NEVER_US)

    def check_invariants(self) -> None:
        self._log.check_invariants()
        assert all(0 <= each.version <= self._log.version for each in self._cursors.values())

    def _behind(self) -> list[tuple[str, TierPeerCursor]]:
        top = self._log.version
        return [each for each in self._cursors.items() if each[1].version < top]

    def _start_session(self, reader: TierPeerCursor) -> None:
        self._sessions += 1
        reader.session, reader.version, reader.floor = self._sessions, 0, self._log.floor

    def _refresh_links(self) -> None:
        self._seen = self._tiers.version
        before, self._cursors = self._cursors, {}
        for neighbour, link in self._tiers.appeared.items():
            reader = before.get(neighbour)
            if reader is None or reader.link != link:
                reader = TierPeerCursor(link)
                self._start_session(reader)
            self._cursors[neighbour] = reader
        self._discard_acked()

    def _discard_acked(self) -> None:
        readers = self._cursors.values()
        self._log.acknowledge_through(
            min((each.version for each in readers), default=self._log.version)
        )
