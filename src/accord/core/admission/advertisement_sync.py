"""Replicates a secondary node's advertisements to its parents over links that lose messages.

The child keeps a versioned change log. Each parent is sent the changes after the version it has
acknowledged, retransmitted until acknowledged. Each link starts a session, in which the parent
first gets a snapshot and deletes all keys that are not in it. A new session also starts when a
tombstone that a parent still needs has been discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.overlay.change_log import ChangeLog, DeltaLimits
from accord.core.overlay.tier_links import TierDeltaSender, TierLinks

RETRANSMIT_US: Final = 500_000
MAX_ADVERTISEMENTS: Final = 100_000  # advertisements per child
_MAX_CHANGES: Final = 64
MAX_TOMBSTONES: Final = 16_384  # tombstones kept
_LIMITS: Final = DeltaLimits(changes=_MAX_CHANGES, bytes=64_000, max_tombstones=MAX_TOMBSTONES)


class AdvertisementRecord(msgspec.Struct, frozen=True, array_like=True):
    """An advertisement as it is replicated."""

    channel: str
    where: str
    rate_hz: float


class AdvertisementDelta(msgspec.Struct, frozen=True, array_like=True, tag="post"):
    """The changes from version `since` to `version`; `top` is the newest version of the log.

    With `since` 0 it starts a snapshot, which is complete at `top`.
    """

    incarnation: int
    session: int
    since: int
    version: int
    log_version: int
    changes: tuple[tuple[str, str, AdvertisementRecord | None], ...]  # publisher, name


class AdvertisementAck(msgspec.Struct, frozen=True, array_like=True, tag="posted"):
    """The version that a parent has, of the child's incarnation and session."""

    incarnation: int
    session: int
    version: int


Which = tuple[str, str]  # publisher and name


class AdvertisementSender:
    """The child's side; `send` sends a message to a parent."""

    def __init__(
        self, incarnation: int, tiers: TierLinks, send: Callable[[str, AdvertisementDelta], None]
    ) -> None:
        self._incarnation = incarnation
        self._send = send
        self._log: ChangeLog[Which, AdvertisementRecord] = ChangeLog(_LIMITS, _bytes_of)
        self._cursors = TierDeltaSender(self._log, tiers, RETRANSMIT_US)

    def put(self, publisher: str, name: str, advert: AdvertisementRecord | None) -> None:
        """Set an advertisement; None removes it."""
        which = (publisher, name)
        if advert is not None or self._log.get(which) is not None:
            self._log.put(which, advert)

    def on_ack(self, parent: str, ack: AdvertisementAck, now_us: int) -> None:
        reader = self._cursors.get(parent)
        if reader is not None:
            session = self._incarnation, reader.session
            is_this = (ack.incarnation, ack.session) == session
            self._cursors.on_ack(parent, ack.version if is_this else 0, now_us)

    def advance(self, now_us: int) -> None:
        for parent, reader in self._cursors.due(now_us):
            since = reader.version
            version, changes = self._log.delta_after(since)
            adverts = tuple((*which, advert) for _, which, advert in changes)
            top = self._log.version
            post = AdvertisementDelta(
                self._incarnation, reader.session, since, version, top, adverts
            )
            self._send(parent, post)

    def next_due_us(self) -> int:
        return self._cursors.next_due_us()

    def check_invariants(self) -> None:
        self._cursors.check_invariants()


def _bytes_of(which: Which, advert: AdvertisementRecord | None) -> int:
    size = 50 + sum(map(len, which))
    return size if advert is None else size + len(advert.channel) + len(advert.where)


class AdvertisementReceiver:
    """A parent's copy of one child's advertisements."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.session = -1
        self.version = 0
        self.adverts: dict[Which, AdvertisementRecord] = {}
        self._stale: dict[Which, bool] = {}  # not in the snapshot yet
        self._complete_version = 0  # version at which the snapshot is complete

    def reset(self, incarnation: int) -> None:
        """Reset for a new incarnation of the child, which sends a snapshot."""
        self.incarnation, self.session, self.version = incarnation, -1, 0

    def apply(self, delta: AdvertisementDelta) -> list[tuple[Which, AdvertisementRecord | None]]:
        """Apply a delta and return what changed."""
        if delta.session > self.session and not delta.since:
            self.session, self.version = delta.session, 0
        is_next = delta.session == self.session and delta.since == self.version
        if not is_next or delta.version <= delta.since or _exceeds_limits(delta):
            return []
        if not delta.since:
            self._stale = dict.fromkeys(self.adverts, True)
            self._complete_version = delta.log_version
        found: dict[Which, AdvertisementRecord | None] = {}
        for publisher, name, advert in delta.changes:
            which = (publisher, name)
            if "\0" in publisher or "\n" in name:
                continue  # invalid names, which would collide with separators in keys
            self._stale.pop(which, None)
            if advert != self.adverts.get(which) and self._has_room(which, advert):
                found[which] = advert
        self.version = delta.version
        if self._stale and self.version >= self._complete_version:
            found |= dict.fromkeys(self._stale)
            self._stale = {}
        for which, advert in found.items():
            if advert is None:
                self.adverts.pop(which, None)
            else:
                self.adverts[which] = advert
        return list(found.items())

    def _has_room(self, which: Which, advert: AdvertisementRecord | None) -> bool:
        return advert is None or which in self.adverts or len(self.adverts) < MAX_ADVERTISEMENTS


def _exceeds_limits(delta: AdvertisementDelta) -> bool:
    """Check whether it exceeds the limits a child keeps to: decoding it takes time."""
    size = sum(_bytes_of((publisher, name), advert) for publisher, name, advert in delta.changes)
    return len(delta.changes) > _MAX_CHANGES or (len(delta.changes) > 1 and size > _LIMITS.bytes)
