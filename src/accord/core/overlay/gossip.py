"""State replication between neighbours: deltas pushed and pulled, repaired by anti-entropy.

*Push.* Deltas are pushed while that is cheap. Large ones, or too many at a time, are only offered
by version: most neighbours also get them elsewhere and need not get them twice. After a loss, the
periodic digests of two neighbours differ until it is repaired (anti-entropy): one sends its version
vector, the other pushes or offers what it has beyond it, and each requests what it lacks.

While much changes everywhere, digests differ because deltas are in flight. A version vector is long
in a large network, so it needs credit: every digest that differs earns a few entries. It is sent at
once if the digests were equal before, or if a request for an old change shows that something was
lost.

*Pull.* Origins that neighbours offer in newer versions are requested: each from one neighbour, a
few at a time. So a node that joins or returns gets everything once, and no faster than it can
process, however many neighbours have it. A request that times out is retried, perhaps at another
neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.overlay.replica_set import OriginReplica, delta_bytes
from accord.core.overlay.state_messages import (
    FactMessage,
    OriginVersion,
    StateDelta,
    StateDigest,
    StateOptions,
    VersionVector,
)

_CREDIT_PER_DIGEST: Final = 64
_JITTER: Final = 0.2

Sends = list[tuple[str, FactMessage]]


class GossipPeer:
    """Pending deltas for one neighbour: base version by origin, requested or to be pushed."""

    def __init__(self, name: str, digest_due_us: int, now_us: int) -> None:
        self.name = name
        self.requested: dict[str, int] = {}
        self.to_push: dict[str, int] = {}
        self.pushed_bytes = 0  # since the last digest
        self.digest_due_us = digest_due_us
        self.vector_sent_us = now_us  # when it was last sent the version vector
        self.joined_us = now_us
        self.credit = 0


class Gossip:
    """Pending deltas and digests for all neighbours."""

    def __init__(self, options: StateOptions, random: Callable[[], float]) -> None:
        self.neighbours: dict[str, GossipPeer] = {}
        self.flush_due_us = 0  # earliest time of the next flush
        self._options = options
        self._random = random

    def link_up(self, name: str, now_us: int) -> None:
        self.neighbours[name] = GossipPeer(name, self._digest_due_us(now_us), now_us)

    def link_down(self, name: str) -> None:
        self.neighbours.pop(name, None)

    def schedule_push(self, origin: str, base: int, source: str) -> None:
        """Schedule changes after `base` for all neighbours but `source` and the origin."""
        for neighbour in self.neighbours.values():
            if neighbour.name == source:
                neighbour.requested.pop(origin, None)
                neighbour.to_push.pop(origin, None)
            elif neighbour.name != origin:
                neighbour.to_push[origin] = min(base, neighbour.to_push.get(origin, base))
                if origin in neighbour.requested:
                    neighbour.requested[origin] = min(base, neighbour.requested[origin])

    def schedule_missing(self, name: str, origin: str, base: int) -> None:
        """Schedule changes after `base`, which `name` lacks."""
        missing = self.neighbours[name].to_push
        missing[origin] = min(base, missing.get(origin, base))

    def on_request(self, name: str, origin: str, base: int) -> None:
        """`name` requests the changes after `base`."""
        asked = self.neighbours[name].requested
        asked[origin] = min(base, asked.get(origin, base))

    def on_up_to_date(self, name: str, origin: str) -> None:
        """`name` is up to date with `origin`."""
        neighbour = self.neighbours[name]
        neighbour.requested.pop(origin, None)
        neighbour.to_push.pop(origin, None)

    def remove_origin(self, origin: str) -> None:
        for neighbour in self.neighbours.values():
            neighbour.requested.pop(origin, None)
            neighbour.to_push.pop(origin, None)

    def flush(self, replicas: dict[str, OriginReplica], now_us: int, sends: Sends) -> None:
        """Send pending replies and deltas if a flush is due."""
        if now_us < self.flush_due_us:
            return
        made: dict[tuple[str, int], StateDelta] = {}
        for neighbour in self.neighbours.values():
            if neighbour.requested or neighbour.to_push:
                self.flush_due_us = now_us + self._options.flush_us
                self._send_replies(neighbour, replicas, made, sends)
                self._push_deltas(neighbour, replicas, made, sends)

    def send_digests(self, digest: int, now_us: int, sends: Sends) -> None:
        for neighbour in self.neighbours.values():
            if now_us >= neighbour.digest_due_us:
                neighbour.digest_due_us = self._digest_due_us(now_us)
                neighbour.pushed_bytes = 0
                sends.append((neighbour.name, StateDigest(digest)))

    def can_send_vector(self, name: str, is_equal: bool, origins: int, now_us: int) -> bool:
        """Whether to reply to a neighbour's digest with the version vector."""
        neighbour = self.neighbours[name]
        if is_equal:
            neighbour.credit = origins
            return False
        # Rate limit: the neighbour decides how often it sends digests.
        if now_us < neighbour.vector_sent_us + self._options.digest_us // 2:
            return False
        neighbour.credit += _CREDIT_PER_DIGEST
        return neighbour.credit >= origins

    def on_vector_sent(self, name: str, now_us: int) -> None:
        """The neighbour was sent the version vector."""
        neighbour = self.neighbours[name]
        neighbour.vector_sent_us = now_us
        neighbour.credit = 0

    def has_joined_recently(self, name: str, now_us: int) -> bool:
        """A new neighbour requests what it lacks: it was sent the version vector at link-up."""
        return now_us < self.neighbours[name].joined_us + self._options.digest_us // 2

    def on_loss(self, name: str, origins: int) -> None:
        """A change sent to it was lost: the next digest that differs gets the version vector."""
        self.neighbours[name].credit = origins

    def next_due_us(self) -> int | None:
        due_us: int | None = None
        for neighbour in self.neighbours.values():
            own_us = neighbour.digest_due_us
            if neighbour.requested or neighbour.to_push:
                own_us = min(own_us, self.flush_due_us)
            if due_us is None or own_us < due_us:
                due_us = own_us
        return due_us

    def check_invariants(self, replicas: dict[str, OriginReplica]) -> None:
        for neighbour in self.neighbours.values():
            assert all(origin in replicas for origin in neighbour.requested)
            assert all(origin in replicas for origin in neighbour.to_push)
            assert neighbour.name not in neighbour.to_push

    def _send_replies(
        self,
        neighbour: GossipPeer,
        replicas: dict[str, OriginReplica],
        made: dict[tuple[str, int], StateDelta],
        sends: Sends,
    ) -> None:
        room = self._options.reply_bytes
        for origin, base in list(neighbour.requested.items()):
            if room <= 0:
                break
            del neighbour.requested[origin]
            neighbour.to_push.pop(origin, None)
            message = _delta_after(replicas[origin], base, made)
            room -= delta_bytes(message)
            sends.append((neighbour.name, message))

    def _push_deltas(
        self,
        neighbour: GossipPeer,
        replicas: dict[str, OriginReplica],
        made: dict[tuple[str, int], StateDelta],
        sends: Sends,
    ) -> None:
        offered = {}
        for origin, base in neighbour.to_push.items():
            if origin in neighbour.requested:
                continue  # sent as a reply later
            message = _delta_after(replicas[origin], base, made)
            size = delta_bytes(message)
            room = self._options.push_bytes - neighbour.pushed_bytes
            if size > min(room, self._options.push_limit):
                offered[origin] = replicas[origin].origin_version
            else:
                neighbour.pushed_bytes += size
                sends.append((neighbour.name, message))
        neighbour.to_push.clear()
        if offered:
            sends.append((neighbour.name, VersionVector(offered)))

    def _digest_due_us(self, now_us: int) -> int:
        share = 1 + _JITTER * (self._random() - 0.5)
        return now_us + max(round(self._options.digest_us * share), 1)


def _delta_after(
    replica: OriginReplica, base: int, made: dict[tuple[str, int], StateDelta]
) -> StateDelta:
    """The delta after `base`, built once for all neighbours."""
    at = replica.origin, base
    message = made.get(at)
    if message is None:
        message = made[at] = replica.delta_after(base)
    return message


_TRIES: Final = 4


class _Offer:
    __slots__ = ("tries", "version")

    def __init__(self, version: OriginVersion) -> None:
        self.version = version
        self.tries = 0


class _Asked:
    __slots__ = ("neighbour", "retry_us")

    def __init__(self, neighbour: str, retry_us: int) -> None:
        self.neighbour = neighbour
        self.retry_us = retry_us


class DeltaRequests:
    """Offers of neighbours, and outstanding requests."""

    def __init__(self, options: StateOptions) -> None:
        self._is_due = False  # there may be something to request
        self._options = options
        self._offers: dict[str, dict[str, _Offer]] = {}  # by neighbour and origin
        self._pending: dict[str, _Asked] = {}  # by origin

    def link_up(self, neighbour: str) -> None:
        self.link_down(neighbour)
        self._offers[neighbour] = {}

    def link_down(self, neighbour: str) -> None:
        """Drop the neighbour's offers; outstanding requests move to others."""
        self._offers.pop(neighbour, None)
        for origin, asked in list(self._pending.items()):
            if asked.neighbour == neighbour:
                del self._pending[origin]
                self._is_due = True

    def on_offer(self, neighbour: str, origin: str, stamp: OriginVersion) -> None:
        """A neighbour has `origin` up to `version`, which is newer than here."""
        offers = self._offers[neighbour]
        known = offers.get(origin)
        if known is None:
            if len(offers) >= self._options.origins_limit:
                return
        elif known.version >= stamp:
            return
        offers[origin] = _Offer(stamp)
        self._is_due = True

    def on_delta(self, origin: str, stamp: OriginVersion) -> None:
        """`origin` has advanced to `version` here."""
        for offers in self._offers.values():
            offer = offers.get(origin)
            if offer is None:
                continue
            if offer.version <= stamp:
                del offers[origin]
            else:
                offer.tries = 0  # requests make progress
        if self._pending.pop(origin, None) is not None:
            self._is_due = True

    def remove_origin(self, origin: str) -> None:
        """Drop all offers and requests for `origin`."""
        for offers in self._offers.values():
            offers.pop(origin, None)
        self._pending.pop(origin, None)

    def take(self, now_us: int) -> list[tuple[str, str]]:
        """Requests to send now, as (neighbour, origin)."""
        if self._pending:
            self._time_out(now_us)
        if not self._is_due:
            return []
        self._is_due = False
        open_: dict[str, int] = {}
        for asked in self._pending.values():
            open_[asked.neighbour] = open_.get(asked.neighbour, 0) + 1
        taken: list[tuple[str, str]] = []
        for neighbour, offers in self._offers.items():
            free = self._options.requests_limit - open_.get(neighbour, 0)
            for origin, offer in offers.items():
                if free <= 0:
                    break
                if origin not in self._pending:
                    again_us = now_us + (self._options.request_us << offer.tries)
                    offer.tries += 1
                    self._pending[origin] = _Asked(neighbour, again_us)
                    taken.append((neighbour, origin))
                    free -= 1
        return taken

    def next_due_us(self, now_us: int) -> int | None:
        """Now, or when the next request times out."""
        if self._is_due:
            return now_us
        if not self._pending:
            return None
        return min(asked.retry_us for asked in self._pending.values())

    def check_invariants(self) -> None:
        for neighbour, offers in self._offers.items():
            assert len(offers) <= self._options.origins_limit
            assert all(
                0 <= offer.tries < _TRIES or origin in self._pending
                for origin, offer in offers.items()
            )
            count = sum(asked.neighbour == neighbour for asked in self._pending.values())
            assert count <= self._options.requests_limit
        assert all(asked.neighbour in self._offers for asked in self._pending.values())

    def _time_out(self, now_us: int) -> None:
        for origin, asked in list(self._pending.items()):
            if asked.retry_us > now_us:
                continue
            del self._pending[origin]
            self._is_due = True
            offers = self._offers[asked.neighbour]
            offer = offers.pop(origin, None)
            # Moved to the end, up to a number of tries: the neighbour may no longer have it.
            if offer is not None and offer.tries < _TRIES:
                offers[origin] = offer
