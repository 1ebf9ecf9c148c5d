"""Advertisements of children, which each parent announces as its own state records.

Each parent also announces for which children it does so, and its rank among their parents
(`remote_advertisements`). The state store is bounded, and no child may use more of it than is left
for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.admission.advertisement_sync import (
    AdvertisementAck,
    AdvertisementDelta,
    AdvertisementReceiver,
    AdvertisementRecord,
    Which,
)
from accord.core.admission.remote_advertisements import (
    ParentRank,
    RemoteAdvertisements,
    publisher_of,
)
from accord.core.model.errors import decode_or_none
from accord.core.overlay.state_store import StateStore
from accord.core.overlay.tier_links import TierLinks

ADVERT: Final = "advert"
ADVERTISER: Final = "advertiser"  # a node's rank as parent of a child

_ROOM_BYTES: Final = 32 << 10  # reserved in the state store for ranks
_RECORD_BYTES: Final = 500  # approximate overhead of a state record

_encode: Final = msgspec.msgpack.Encoder().encode
_rank: Final = msgspec.msgpack.Decoder(ParentRank)

OnRecord = Callable[[str, str, bytes | None], None]  # origin, key, value


def key_of(publisher: str, name: str) -> str:
    return f"{publisher}\n{name}"


class ChildAdvertisements:
    """The parent's side; its own announcements are also passed to `on_record`.

    `dropped` counts advertisements not announced for lack of space.
    """

    def __init__(
        self,
        name: str,
        store: StateStore,
        tiers: TierLinks,
        remote: RemoteAdvertisements,
        on_record: OnRecord,
    ) -> None:
        self.dropped = 0
        self._name = name
        self._store = store
        self._tiers = tiers
        self._seen = 0  # version of `tiers` last processed
        self._remote = remote
        self._on_record = on_record
        self._receivers: dict[str, AdvertisementReceiver] = {}  # by child
        self._bytes: dict[str, int] = {}  # announced, by child
        store.reserve(ADVERTISER, _ROOM_BYTES)

    @property
    def is_due(self) -> bool:
        return self._tiers.version != self._seen

    def advance(self) -> None:
        if self.is_due:
            self._seen = self._tiers.version
            self._announce_ranks()

    def on_delta(self, child: str, delta: AdvertisementDelta) -> AdvertisementAck | None:
        """Apply a child's delta; returns the ack, if any."""
        board = self._receivers.get(child)
        if board is None:
            board = self._receivers[child] = AdvertisementReceiver(delta.incarnation)
            self._announce_ranks()
        if delta.incarnation < board.incarnation:
            return None
        if delta.incarnation > board.incarnation:
            board.reset(delta.incarnation)
        for which, advert in board.apply(delta):
            if not self._announce(child, which, advert):
                self.dropped += 1
                board.adverts.pop(which, None)  # not kept: it could be of any size
        return AdvertisementAck(board.incarnation, board.session, board.version)

    def on_left(self, child: str) -> None:
        board = self._receivers.pop(child, None)
        if board is not None:
            for which in list(board.adverts):
                self._announce(child, which, None)
            self._bytes.pop(child, None)
            self._store.drop(ADVERTISER, child)
            self._remote.set_rank(self._name, child, None)

    def on_rank(self, origin: str, child: str, value: bytes | None) -> None:
        """Process another node's rank as parent of a child."""
        if origin != self._name:
            rank = None if value is None else decode_or_none(_rank, value)
            self._remote.set_rank(origin, child, rank)

    def _announce(self, child: str, which: Which, advert: AdvertisementRecord | None) -> bool:
        """Announce a child's advertisement as a state record; False if it does not fit."""
        key = key_of(publisher_of(child, which[0]), which[1])
        before = self._store.get(self._name, ADVERT, key)
        value = None if advert is None else _encode(advert)
        held = self._bytes.get(child, 0) - _size(key, before)
        is_announced = (
            value is not None
            and held + _size(key, value) <= self._store.room(ADVERT) + _size(key, before)
            and self._store.put(ADVERT, key, value)
        )
        if not is_announced:
            self._store.drop(ADVERT, key)  # the previous value is void, too
        self._bytes[child] = held + _size(key, value if is_announced else None)
        self._on_record(self._name, key, value if is_announced else None)
        return is_announced or advert is None

    def _announce_ranks(self) -> None:
        """Announce this node's rank for each of its children."""
        for child in self._receivers:
            link = self._tiers.links.get(child)
            if link is not None:
                rank = (link.incarnation, link.parent_epoch, link.is_active)
                self._store.put(ADVERTISER, child, _encode(rank))
                self._remote.set_rank(self._name, child, rank)


def _size(key: str, value: bytes | None) -> int:
    return 0 if value is None else _RECORD_BYTES + len(key) + len(value)
