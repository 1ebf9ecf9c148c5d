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
_FACT_BYTES: Final = 500  # approximate overhead of a state record

_encode: Final = msgspec.msgpack.Encoder().encode
_rank: Final = msgspec.msgpack.Decoder(ParentRank)

Take = Callable[[str, str, bytes | None], None]  # origin, key, value


def key_of(publisher: str, name: str) -> str:
    return f"{publisher}\n{name}"


class ChildAdvertisements:
    """The parent's side; its own announcements are also passed to `take`.

    `dropped` counts advertisements not announced for lack of space.
    """

    def __init__(
        self,
        name: str,
        store: StateStore,
        tiers: TierLinks,
        elsewhere: RemoteAdvertisements,
        take: Take,
    ) -> None:
        self.dropped = 0
        self._name = name
        self._store = store
        self._tiers = tiers
        self._seen = 0  # version of `tiers` last processed
        self._elsewhere = elsewhere
        self._take = take
        self._boards: dict[str, AdvertisementReceiver] = {}  # by child
        self._bytes: dict[str, int] = {}  # announced, by child
        store.reserve(ADVERTISER, _ROOM_BYTES)

    @property
    def is_due(self) -> bool:
        return self._tiers.version != self._seen

    def advance(self) -> None:
        if self.is_due:
            self._seen = self._tiers.version
            self._tell_ranks()

    def posted(self, child: str, post: AdvertisementDelta) -> AdvertisementAck | None:
        """Apply a child's delta; returns the ack, if any."""
        board = self._boards.get(child)
        if board is None:
            board = self._boards[child] = AdvertisementReceiver(post.incarnation)
            self._tell_ranks()
        if post.incarnation < board.incarnation:
            return None
        if post.incarnation > board.incarnation:
            board.begin(post.incarnation)
        for which, advert in board.read(post):
            if not self._repeat(child, which, advert):
                self.dropped += 1
                board.adverts.pop(which, None)  # not kept: it could be of any size
        return AdvertisementAck(board.incarnation, board.session, board.version)

    def left(self, child: str) -> None:
        board = self._boards.pop(child, None)
        if board is not None:
            for which in list(board.adverts):
                self._repeat(child, which, None)
            self._bytes.pop(child, None)
            self._store.drop(ADVERTISER, child)
            self._elsewhere.rank(self._name, child, None)

    def told(self, origin: str, child: str, value: bytes | None) -> None:
        """Process another node's rank as parent of a child."""
        if origin != self._name:
            rank = None if value is None else decode_or_none(_rank, value)
            self._elsewhere.rank(origin, child, rank)

    def _repeat(self, child: str, which: Which, advert: AdvertisementRecord | None) -> bool:
        """Announce a child's advertisement as a state record; False if it does not fit."""
        key = key_of(publisher_of(child, which[0]), which[1])
        before = self._store.get(self._name, ADVERT, key)
        value = None if advert is None else _encode(advert)
        held = self._bytes.get(child, 0) - _size(key, before)
        is_told = (
            value is not None
            and held + _size(key, value) <= self._store.room(ADVERT) + _size(key, before)
            and self._store.put(ADVERT, key, value)
        )
        if not is_told:
            self._store.drop(ADVERT, key)  # the previous value is void, too
        self._bytes[child] = held + _size(key, value if is_told else None)
        self._take(self._name, key, value if is_told else None)
        return is_told or advert is None

    def _tell_ranks(self) -> None:
        """Announce this node's rank for each of its children."""
        for child in self._boards:
            link = self._tiers.links.get(child)
            if link is not None:
                rank = (link.life, link.turn, link.is_active)
                self._store.put(ADVERTISER, child, _encode(rank))
                self._elsewhere.rank(self._name, child, rank)


def _size(key: str, value: bytes | None) -> int:
    return 0 if value is None else _FACT_BYTES + len(key) + len(value)
