"""What is advertised at a secondary node, as its parents come to know it over links that lose.

The child counts its changes. To each parent goes what changed after the version it is known to be
at, and again until it says that it is there. With each link a session begins, in which a parent is
told everything first; what it had before and is not among that goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from accord.core.overlay.tier_links import TierLinks

AGAIN_US: Final = 500_000
MOST: Final = 100_000  # advertisements of one child
_AT_ONCE: Final = 64
_BYTES: Final = 64_000  # of one message, about
_NEVER: Final = 2**62


class Advert(msgspec.Struct, frozen=True, array_like=True):
    channel: str
    where: str
    rate_hz: float


class Post(msgspec.Struct, frozen=True, array_like=True, tag="post"):
    """What changes from version `since` to `version`, of `top` that there are.

    From 0 on: all there is, up to `top`.
    """

    incarnation: int
    session: int
    since: int
    version: int
    top: int
    changes: tuple[tuple[str, str, Advert | None], ...]  # publisher, name


class Posted(msgspec.Struct, frozen=True, array_like=True, tag="posted"):
    """A parent is at this version of what the child's life `incarnation` says in a session."""

    incarnation: int
    session: int
    version: int


Which = tuple[str, str]  # publisher and name


class _Reader:
    def __init__(self, session: int) -> None:
        self.session = session
        self.version = 0
        self.due_us = 0


class Posting:
    """At the child: `say` sends a message to a parent."""

    def __init__(
        self, incarnation: int, tiers: TierLinks, say: Callable[[str, Post], None]
    ) -> None:
        self._incarnation = incarnation
        self._tiers = tiers
        self._say = say
        self._version = 0
        self._changes: dict[Which, tuple[int, Advert | None]] = {}  # by version, lowest first
        self._taken_back: dict[Which, int] = {}  # the same of those that are None
        self._readers: dict[str, _Reader] = {}
        self._seen = -1

    def put(self, publisher: str, name: str, advert: Advert | None) -> None:
        """None: it is taken back."""
        which = (publisher, name)
        before = self._changes.pop(which, None)
        if before is None and advert is None:
            return
        self._version += 1
        self._changes[which] = (self._version, advert)
        self._taken_back.pop(which, None)
        if advert is None:
            self._taken_back[which] = self._version
        for reader in self._readers.values():
            if reader.version == self._version - 1:
                reader.due_us = 0
        self._forget()

    def heard(self, parent: str, posted: Posted, now_us: int) -> None:
        reader = self._readers.get(parent)
        if reader is None:
            return
        session = self._incarnation, reader.session
        is_this = (posted.incarnation, posted.session) == session
        version = posted.version if is_this and posted.version <= self._version else 0
        if version != reader.version:
            reader.version = version
            reader.due_us = now_us
            self._forget()

    def advance(self, now_us: int) -> None:
        self._look_at_links()
        for parent, reader in self._readers.items():
            if reader.version < self._version and reader.due_us <= now_us:
                reader.due_us = now_us + AGAIN_US
                self._say(parent, self._since(reader.version, reader.session))

    def next_due_us(self) -> int:
        if self._tiers.version != self._seen:
            return 0
        behind = [each for each in self._readers.values() if each.version < self._version]
        return min((each.due_us for each in behind), default=_NEVER)

    def check_invariants(self) -> None:
        versions = [version for version, _ in self._changes.values()]
        assert versions == sorted(set(versions))
        none = {which: at for which, (at, advert) in self._changes.items() if advert is None}
        assert list(self._taken_back.items()) == list(none.items())
        assert all(each.version <= self._version for each in self._readers.values())

    def _look_at_links(self) -> None:
        if self._tiers.version == self._seen:
            return
        self._seen = self._tiers.version
        before, self._readers = self._readers, {}
        for parent, session in self._tiers.began.items():
            known = before.get(parent)
            is_same = known is not None and known.session == session
            self._readers[parent] = known if known is not None and is_same else _Reader(session)
        self._forget()

    def _since(self, since: int, session: int) -> Post:
        changes: list[tuple[str, str, Advert | None]] = []
        version, size = self._version, 0
        last = since
        for (publisher, name), (at, advert) in self._changes.items():
            if at <= since or (not since and advert is None):
                continue
            size += _size(publisher, name, advert)
            if changes and (size > _BYTES or len(changes) == _AT_ONCE):
                version = last
                break
            changes.append((publisher, name, advert))
            last = at
        return Post(self._incarnation, session, since, version, self._version, tuple(changes))

    def _forget(self) -> None:
        """What was taken back, where all parents know it."""
        known = min((each.version for each in self._readers.values()), default=self._version)
        gone = [which for which, version in self._taken_back.items() if version <= known]
        for which in gone:
            del self._changes[which], self._taken_back[which]


class Board:
    """At a parent: what one child advertises."""

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.session = -1
        self.version = 0
        self.adverts: dict[Which, Advert] = {}
        self._stale: dict[Which, bool] = {}  # of before: gone unless it is said again
        self._top = 0  # when all has been

    def begin(self, incarnation: int) -> None:
        """Another life of the child, that says everything anew."""
        self.incarnation, self.session, self.version = incarnation, -1, 0

    def read(self, post: Post) -> list[tuple[Which, Advert | None]]:
        """What is different now."""
        if post.session > self.session and not post.since:
            self.session, self.version = post.session, 0
        is_next = post.session == self.session and post.since == self.version
        if not is_next or post.version <= post.since or _is_too_much(post):
            return []
        if not post.since:
            self._stale = dict.fromkeys(self.adverts, True)
            self._top = post.top
        found: dict[Which, Advert | None] = {}
        for publisher, name, advert in post.changes:
            which = (publisher, name)
            if "\0" in publisher or "\n" in name:
                continue  # nobody is called so, and others would take it for something else
            self._stale.pop(which, None)
            if advert != self.adverts.get(which) and self._has_room(which, advert):
                found[which] = advert
        self.version = post.version
        if self._stale and self.version >= self._top:
            found |= dict.fromkeys(self._stale)
            self._stale = {}
        for which, advert in found.items():
            if advert is None:
                self.adverts.pop(which, None)
            else:
                self.adverts[which] = advert
        return list(found.items())

    def _has_room(self, which: Which, advert: Advert | None) -> bool:
        return advert is None or which in self.adverts or len(self.adverts) < MOST


def _is_too_much(post: Post) -> bool:
    """Whether it has more than a child says at once: to read it takes a while."""
    size = sum(_size(*each) for each in post.changes)
    return len(post.changes) > _AT_ONCE or (len(post.changes) > 1 and size > _BYTES)


def _size(publisher: str, name: str, advert: Advert | None) -> int:
    size = 50 + len(publisher) + len(name)
    return size if advert is None else size + len(advert.channel) + len(advert.where)
