"""Replicates this node's versioned log to its neighbours over links that lose and reorder.

Each neighbour is sent the changes after the version it has acknowledged, in bounded messages,
retransmitted until acknowledged. A receiver applies a delta that continues its version, even if it
is duplicated or late, and replies to any other with the version it has. Its copy therefore always
equals the sender's log at some version.

A receiver starts a new session when the link comes up or its node starts, and repeats the session
open until a delta arrives in that session: the sender may have noticed nothing and assume that the
receiver is up to date. A sender likewise repeats until it is acknowledged. Both fall silent once
messages get through, because an ack in a session proves that a delta arrived in it.

Tombstones are kept until all neighbours have acknowledged them, or up to a limit
(`overlay.change_log`). A receiver that may have missed a discarded one is reset: it gets a snapshot
and deletes every key that is not in it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from accord.core.model.units import NEVER_US
from accord.core.overlay.change_log import ChangeLog, DeltaLimits
from accord.core.quality.costs import TableCost
from accord.core.quality.messages import (
    MAX_CHANGES,
    NO_SESSION,
    RESET,
    EntryKey,
    ForwardedProfile,
    NegotiationAck,
    NegotiationChange,
    NegotiationDelta,
    NegotiationEntry,
    SessionId,
)

FLUSH_US: Final = 5_000
RESEND_US: Final = 200_000
MAX_RESEND_US: Final = 5_000_000
MAX_SAID: Final = 200_000
MAX_HEARD_BYTES: Final = 128 << 20  # entries of one neighbour
MAX_BYTES: Final = 128_000  # of one message, approximately

_encode: Final = msgspec.msgpack.Encoder().encode

Replacement = tuple[
    NegotiationEntry | None, NegotiationEntry | None
]  # the entry before and after a change


class _PeerCursor:
    __slots__ = ("due_us", "floor", "heard", "is_known", "resend_us", "sent", "session")

    def __init__(self, now_us: int) -> None:
        self.session: SessionId = NO_SESSION
        self.is_known = False  # it has acknowledged this incarnation
        self.heard = 0
        self.floor = 0  # of the log, when the receiver reported version 0
        self.sent = 0  # version sent so far, at least `heard`
        self.due_us = now_us  # retransmission timer
        self.resend_us = RESEND_US

    def begin(self, session: SessionId, now_us: int) -> None:
        self.session = session
        self.is_known = False
        self.heard = self.sent = self.floor = 0
        self.due_us = now_us


class DeltaSender:
    """This node's log, with a cursor and a retransmission timer per neighbour."""

    def __init__(self, incarnation: int, limit: int = MAX_SAID) -> None:
        self.incarnation = incarnation
        self.refused = 0  # entries refused because the log was full
        self._limit = limit
        limits = DeltaLimits(changes=MAX_CHANGES, bytes=MAX_BYTES, gone=limit)
        self._log: ChangeLog[EntryKey, NegotiationEntry] = ChangeLog(limits, _bytes_of)
        self._listeners: dict[str, _PeerCursor] = {}
        self._flush_us = NEVER_US

    @property
    def version(self) -> int:
        return self._log.version

    def say(self, key: EntryKey, value: NegotiationEntry | None, now_us: int) -> None:
        before = self._log.get(key)
        if before == value:
            return
        if before is None and len(self._log) >= self._limit:
            self.refused += 1
            return
        self._log.put(key, value)
        if value is None and not self._listeners:
            self._log.all_know(self.version)
        self._flush_us = min(self._flush_us, now_us + FLUSH_US)

    def said(self) -> dict[EntryKey, NegotiationEntry]:
        return self._log.values()

    def link_up(self, neighbour: str, now_us: int) -> None:
        self._listeners[neighbour] = _PeerCursor(now_us)
        self._flush_us = min(self._flush_us, now_us)

    def link_down(self, neighbour: str) -> None:
        self._listeners.pop(neighbour, None)
        self._log.all_know(self._heard_by_all())

    def heard(self, neighbour: str, message: NegotiationAck, now_us: int) -> None:
        listener = self._listeners.get(neighbour)
        if listener is None or message.session < listener.session:
            return
        if message.session > listener.session:
            listener.begin(message.session, now_us)
        was_known, listener.is_known = listener.is_known, message.incarnation == self.incarnation
        version = message.version if listener.is_known else 0
        if not 0 <= version <= self.version:
            version = 0
        if not message.version and (listener.is_known or not listener.heard):
            listener.floor = self._log.floor  # tombstones discarded so far do not concern it
        if version < listener.heard or (was_known and not listener.is_known):
            listener.due_us = now_us  # the receiver was reset
            listener.sent = version
        elif version > listener.heard:
            listener.resend_us = RESEND_US
            listener.due_us = now_us + RESEND_US
        listener.heard = version
        listener.sent = max(listener.sent, version)
        if listener.sent < self.version or listener.due_us <= now_us:
            self._flush_us = min(self._flush_us, now_us)
        self._log.all_know(self._heard_by_all())

    def next_due_us(self) -> int:
        behind = [e.due_us for e in self._listeners.values() if self._is_behind(e)]
        return min([self._flush_us, *behind]) if self._listeners else NEVER_US

    def take(self, now_us: int) -> list[tuple[str, NegotiationDelta]]:
        """Returns the deltas to send now, by neighbour."""
        if now_us < self.next_due_us():
            return []
        sends: list[tuple[str, NegotiationDelta]] = []
        for neighbour, listener in self._listeners.items():
            if not self._is_behind(listener):
                continue
            is_late = now_us >= listener.due_us
            if is_late:
                if listener.sent > listener.heard:
                    listener.resend_us = min(2 * listener.resend_us, MAX_RESEND_US)
                listener.sent = listener.heard
            if is_late or listener.sent < self.version:
                if listener.sent == listener.heard:  # else its timer runs already
                    listener.due_us = now_us + listener.resend_us
                sends.append((neighbour, self._next(listener)))
        self._flush_us = NEVER_US
        return sends

    def check_invariants(self) -> None:
        self._log.check_invariants(self._heard_by_all())
        assert len(self._log) <= self._limit
        for listener in self._listeners.values():
            assert 0 <= listener.heard <= listener.sent <= self.version

    def _is_behind(self, listener: _PeerCursor) -> bool:
        return listener.heard < self.version or not listener.is_known

    def _next(self, listener: _PeerCursor) -> NegotiationDelta:
        base = listener.sent
        if not self._log.can_go_on(base, listener.floor):
            if listener.heard:
                listener.sent = self.version  # nothing more to send until it replies
                return NegotiationDelta(self.incarnation, RESET, 0, (), listener.session)
            base = 0
        listener.sent, changes = self._log.after(base)
        told = tuple(NegotiationChange(*each) for each in changes)
        return NegotiationDelta(self.incarnation, base, listener.sent, told, listener.session)

    def _heard_by_all(self) -> int:
        return min((each.heard for each in self._listeners.values()), default=self.version)


class DeltaReceiver:
    """Copy of one neighbour's log."""

    def __init__(
        self, session: SessionId = NO_SESSION, now_us: int = 0, limit: int = MAX_SAID
    ) -> None:
        self.session = session
        self.is_spoken_to = False
        self.due_us = now_us  # when to repeat the session open
        self._again_us = RESEND_US
        self.incarnation = 0
        self.version = 0
        self.refused = 0
        self._limit = limit
        self._said: dict[EntryKey, NegotiationEntry] = {}
        self._sizes: dict[EntryKey, int] = {}
        self._bytes = 0

    def hear(self, news: NegotiationDelta) -> list[Replacement]:
        """Applies a delta; returns the entries that changed."""
        if news.session not in (NO_SESSION, self.session):
            return []
        self.is_spoken_to = self.is_spoken_to or news.session == self.session
        if news.incarnation < self.incarnation:
            return []
        if news.incarnation > self.incarnation:
            if news.base:
                return []
            self.incarnation, self.version = news.incarnation, 0
        if news.base == RESET and news.session == self.session:
            self.version = 0
        if news.base > self.version or news.version <= self.version:
            return []
        fresh = {change.key: change.value for change in news.changes}
        if not news.base:
            fresh = {key: fresh.get(key) for key in [*self._said, *fresh]}
        self.version = news.version
        found: list[Replacement] = []
        for key, value in fresh.items():
            before = self._said.get(key)
            if before != value and self._set(key, value):
                found.append((before, value))
        return found

    def answer(self) -> NegotiationAck:
        # Deltas sent before the sender knew this session must not count as received in it.
        if not self.is_spoken_to:
            return NegotiationAck(0, 0, self.session)
        return NegotiationAck(self.incarnation, self.version, self.session)

    def next_due_us(self) -> int:
        return NEVER_US if self.is_spoken_to else self.due_us

    def greet(self, now_us: int) -> NegotiationAck | None:
        """Returns the session open to send now, if one is due."""
        if now_us < self.next_due_us():
            return None
        self.due_us = now_us + self._again_us
        self._again_us = min(2 * self._again_us, MAX_RESEND_US)
        return self.answer()

    def said(self) -> dict[EntryKey, NegotiationEntry]:
        return self._said

    def _set(self, key: EntryKey, value: NegotiationEntry | None) -> bool:
        size = 0 if value is None else sum(map(len, key)) + len(_encode(value))
        grown = self._bytes + size - self._sizes.get(key, 0)
        is_one_more = value is not None and key not in self._said
        if (is_one_more and len(self._said) >= self._limit) or (size and grown > MAX_HEARD_BYTES):
            self.refused += 1
            return False
        self._bytes = grown
        if value is None:
            del self._said[key], self._sizes[key]
        else:
            self._said[key] = value
            self._sizes[key] = size
        return True

    def check_invariants(self) -> None:
        assert len(self._said) <= self._limit
        assert self._said.keys() == self._sizes.keys()
        assert self._bytes == sum(self._sizes.values()) <= MAX_HEARD_BYTES
        assert self.version >= 0


def _bytes_of(key: EntryKey, value: NegotiationEntry | None) -> int:
    # The value repeats the key; everything else is small, except cost tables.
    size = 100 + 2 * sum(map(len, key))
    if isinstance(value, ForwardedProfile):
        for capability in value.capabilities:
            size += 50
            if isinstance(capability.cost, TableCost):
                size += 20 * len(capability.cost.points)
    return size
