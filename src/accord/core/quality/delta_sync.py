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
RETRANSMIT_US: Final = 200_000
MAX_RETRANSMIT_US: Final = 5_000_000
MAX_ENTRIES: Final = 200_000
MAX_PEER_BYTES: Final = 128 << 20  # entries of one neighbour
MAX_BYTES: Final = 128_000  # of one message, approximately

_encode: Final = msgspec.msgpack.Encoder().encode

Replacement = tuple[
    NegotiationEntry | None, NegotiationEntry | None
]  # the entry before and after a change


class _PeerCursor:
    __slots__ = ("acked", "due_us", "floor", "is_known", "retransmit_us", "sent", "session")

    def __init__(self, now_us: int) -> None:
        self.session: SessionId = NO_SESSION
        self.is_known = False  # it has acknowledged this incarnation
        self.acked = 0
        self.floor = 0  # of the log, when the receiver reported version 0
        self.sent = 0  # version sent so far, at least `acked`
        self.due_us = now_us  # retransmission timer
        self.retransmit_us = RETRANSMIT_US

    def start_session(self, session: SessionId, now_us: int) -> None:
        self.session = session
        self.is_known = False
        self.acked = self.sent = self.floor = 0
        self.due_us = now_us


class DeltaSender:
    """This node's log, with a cursor and a retransmission timer per neighbour."""

    def __init__(self, incarnation: int, limit: int = MAX_ENTRIES) -> None:
        self.incarnation = incarnation
        self.refused = 0  # entries refused because the log was full
        self._limit = limit
        limits = DeltaLimits(changes=MAX_CHANGES, bytes=MAX_BYTES, max_tombstones=limit)
        self._log: ChangeLog[EntryKey, NegotiationEntry] = ChangeLog(limits, _bytes_of)
        self._cursors: dict[str, _PeerCursor] = {}
        self._flush_us = NEVER_US

    @property
    def version(self) -> int:
        return self._log.version

    def announce(self, key: EntryKey, value: NegotiationEntry | None, now_us: int) -> None:
        before = self._log.get(key)
        if before == value:
            return
        if before is None and len(self._log) >= self._limit:
            self.refused += 1
            return
        self._log.put(key, value)
        if value is None and not self._cursors:
            self._log.acknowledge_through(self.version)
        self._flush_us = min(self._flush_us, now_us + FLUSH_US)

    def entries(self) -> dict[EntryKey, NegotiationEntry]:
        return self._log.values()

    def link_up(self, neighbour: str, now_us: int) -> None:
        self._cursors[neighbour] = _PeerCursor(now_us)
        self._flush_us = min(self._flush_us, now_us)

    def link_down(self, neighbour: str) -> None:
        self._cursors.pop(neighbour, None)
        self._log.acknowledge_through(self._acked_by_all())

    def on_ack(self, neighbour: str, message: NegotiationAck, now_us: int) -> None:
        listener = self._cursors.get(neighbour)
        if listener is None or message.session < listener.session:
            return
        if message.session > listener.session:
            listener.start_session(message.session, now_us)
        was_known, listener.is_known = listener.is_known, message.incarnation == self.incarnation
        version = message.version if listener.is_known else 0
        if not 0 <= version <= self.version:
            version = 0
        if not message.version and (listener.is_known or not listener.acked):
            listener.floor = self._log.floor  # tombstones discarded so far do not concern it
        if version < listener.acked or (was_known and not listener.is_known):
            listener.due_us = now_us  # the receiver was reset
            listener.sent = version
        elif version > listener.acked:
            listener.retransmit_us = RETRANSMIT_US
            listener.due_us = now_us + RETRANSMIT_US
        listener.acked = version
        listener.sent = max(listener.sent, version)
        if listener.sent < self.version or listener.due_us <= now_us:
            self._flush_us = min(self._flush_us, now_us)
        self._log.acknowledge_through(self._acked_by_all())

    def next_due_us(self) -> int:
        behind = [e.due_us for e in self._cursors.values() if self._is_behind(e)]
        return min([self._flush_us, *behind]) if self._cursors else NEVER_US

    def take(self, now_us: int) -> list[tuple[str, NegotiationDelta]]:
        """Returns the deltas to send now, by neighbour."""
        if now_us < self.next_due_us():
            return []
        sends: list[tuple[str, NegotiationDelta]] = []
        for neighbour, listener in self._cursors.items():
            if not self._is_behind(listener):
                continue
            is_late = now_us >= listener.due_us
            if is_late:
                if listener.sent > listener.acked:
                    listener.retransmit_us = min(2 * listener.retransmit_us, MAX_RETRANSMIT_US)
                listener.sent = listener.acked
            if is_late or listener.sent < self.version:
                if listener.sent == listener.acked:  # else its timer runs already
                    listener.due_us = now_us + listener.retransmit_us
                sends.append((neighbour, self._next_delta(listener)))
        self._flush_us = NEVER_US
        return sends

    def check_invariants(self) -> None:
        self._log.check_invariants(self._acked_by_all())
        assert len(self._log) <= self._limit
        for listener in self._cursors.values():
            assert 0 <= listener.acked <= listener.sent <= self.version

    def _is_behind(self, cursor: _PeerCursor) -> bool:
        return cursor.acked < self.version or not cursor.is_known

    def _next_delta(self, cursor: _PeerCursor) -> NegotiationDelta:
        base = cursor.sent
        if not self._log.can_resume_from(base, cursor.floor):
            if cursor.acked:
                cursor.sent = self.version  # nothing more to send until it replies
                return NegotiationDelta(self.incarnation, RESET, 0, (), cursor.session)
            base = 0
        cursor.sent, changes = self._log.delta_after(base)
        entries = tuple(NegotiationChange(*each) for each in changes)
        return NegotiationDelta(self.incarnation, base, cursor.sent, entries, cursor.session)

    def _acked_by_all(self) -> int:
        return min((each.acked for each in self._cursors.values()), default=self.version)


class DeltaReceiver:
    """Copy of one neighbour's log."""

    def __init__(
        self, session: SessionId = NO_SESSION, now_us: int = 0, limit: int = MAX_ENTRIES
    ) -> None:
        self.session = session
        self.is_established = False
        self.due_us = now_us  # when to repeat the session open
        self._retransmit_us = RETRANSMIT_US
        self.incarnation = 0
        self.version = 0
        self.refused = 0
        self._limit = limit
        self._entries: dict[EntryKey, NegotiationEntry] = {}
        self._sizes: dict[EntryKey, int] = {}
        self._bytes = 0

    def on_delta(self, delta: NegotiationDelta) -> list[Replacement]:
        """Applies a delta; returns the entries that changed."""
        if delta.session not in (NO_SESSION, self.session):
            return []
        self.is_established = self.is_established or delta.session == self.session
        if delta.incarnation < self.incarnation:
            return []
        if delta.incarnation > self.incarnation:
            if delta.base:
                return []
            self.incarnation, self.version = delta.incarnation, 0
        if delta.base == RESET and delta.session == self.session:
            self.version = 0
        if delta.base > self.version or delta.version <= self.version:
            return []
        fresh = {change.key: change.value for change in delta.changes}
        if not delta.base:
            fresh = {key: fresh.get(key) for key in [*self._entries, *fresh]}
        self.version = delta.version
        found: list[Replacement] = []
        for key, value in fresh.items():
            before = self._entries.get(key)
            if before != value and self._set(key, value):
                found.append((before, value))
        return found

    def ack(self) -> NegotiationAck:
        # Deltas sent before the sender knew this session must not count as received in it.
        if not self.is_established:
            return NegotiationAck(0, 0, self.session)
        return NegotiationAck(self.incarnation, self.version, self.session)

    def next_due_us(self) -> int:
        return NEVER_US if self.is_established else self.due_us

    def repeat_session_open(self, now_us: int) -> NegotiationAck | None:
        """Returns the session open to send now, if one is due."""
        if now_us < self.next_due_us():
            return None
        self.due_us = now_us + self._retransmit_us
        self._retransmit_us = min(2 * self._retransmit_us, MAX_RETRANSMIT_US)
        return self.ack()

    def entries(self) -> dict[EntryKey, NegotiationEntry]:
        return self._entries

    def _set(self, key: EntryKey, value: NegotiationEntry | None) -> bool:
        size = 0 if value is None else sum(map(len, key)) + len(_encode(value))
        grown = self._bytes + size - self._sizes.get(key, 0)
        is_one_more = value is not None and key not in self._entries
        if (is_one_more and len(self._entries) >= self._limit) or (size and grown > MAX_PEER_BYTES):
            self.refused += 1
            return False
        self._bytes = grown
        if value is None:
            del self._entries[key], self._sizes[key]
        else:
            self._entries[key] = value
            self._sizes[key] = size
        return True

    def check_invariants(self) -> None:
        assert len(self._entries) <= self._limit
        assert self._entries.keys() == self._sizes.keys()
        assert self._bytes == sum(self._sizes.values()) <= MAX_PEER_BYTES
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
