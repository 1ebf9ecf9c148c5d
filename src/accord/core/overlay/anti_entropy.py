"""Anti-entropy with neighbours: handles deltas, digests, version vectors and delta requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.overlay.gossip import DeltaRequests, Gossip, Sends
from accord.core.overlay.name_conflicts import NameConflicts
from accord.core.overlay.replica_set import Change, OriginReplica, ReplicaSet
from accord.core.overlay.state_messages import (
    NOTHING,
    DeltaRequest,
    FactMessage,
    OriginVersion,
    StateDelta,
    StateDigest,
    StateOptions,
    VersionVector,
    is_name,
    is_sound,
    is_stamp,
)

_SETTLED_DIGESTS: Final = 2  # older changes, in digest intervals, should have arrived everywhere


class RejectedCounts:
    """Counts of rejected messages and records."""

    def __init__(self) -> None:
        self.malformed = 0
        self.stray = 0  # not from a neighbour
        self.refused = 0  # no room


class AntiEntropy:
    """Replication of a `ReplicaSet` with all neighbours."""

    def __init__(
        self, replicas: ReplicaSet, options: StateOptions, random: Callable[[], float]
    ) -> None:
        self.counts = RejectedCounts()
        self.spreading = Gossip(options, random)
        self.namesakes = NameConflicts(replicas.own.origin)
        self._replicas = replicas
        self._options = options
        self._asking = DeltaRequests(options)
        # Expired origins: the neighbour that has records of it, and their version.
        self._withheld: dict[str, tuple[str, OriginVersion]] = {}

    def link_up(self, neighbour: str, now_us: int, sends: Sends) -> None:
        self.recall(neighbour)
        self.spreading.link_up(neighbour, now_us)
        self._asking.link_up(neighbour)
        self._send_all_stamps(neighbour, now_us, sends)

    def link_down(self, neighbour: str) -> None:
        self.spreading.link_down(neighbour)
        self._asking.link_down(neighbour)

    def forget(self, origin: str) -> list[Change]:
        self.spreading.forget(origin)
        self._asking.forget(origin)
        return self._replicas.forget(origin)

    def recall(self, origin: str) -> None:
        self._replicas.recall(origin)
        neighbour, stamp = self._withheld.pop(origin, ("", NOTHING))
        if neighbour in self.spreading.neighbours:
            self._offered(neighbour, origin, stamp)

    def receive(
        self, neighbour: str, message: FactMessage, now_us: int, sends: Sends
    ) -> list[Change]:
        """Handle a message; returns the changes of a delta."""
        if neighbour not in self.spreading.neighbours:
            self.counts.stray += 1
        elif isinstance(message, StateDelta):
            return self._on_facts(neighbour, message, now_us)
        elif isinstance(message, StateDigest):
            self._on_digest(neighbour, message, now_us, sends)
        elif isinstance(message, VersionVector):
            self._on_stamps(neighbour, message, now_us, sends)
        else:
            self._on_wanted(neighbour, message, now_us)
        return []

    def advance(self, now_us: int, sends: Sends) -> None:
        self.spreading.flush(self._replicas.by_origin, now_us, sends)
        self.spreading.send_digests(self._replicas.digest, now_us, sends)
        for neighbour, origin in self._asking.take(now_us):
            sends.append((neighbour, DeltaRequest(origin, *self._replicas.stamp(origin))))

    def next_due_us(self, now_us: int) -> int | None:
        return earlier(self.spreading.next_due_us(), self._asking.next_due_us(now_us))

    def check_invariants(self) -> None:
        self.spreading.check_invariants(self._replicas.by_origin)
        self._asking.check_invariants()
        assert len(self._withheld) <= self._options.origins_limit

    def _on_facts(self, neighbour: str, message: StateDelta, now_us: int) -> list[Change]:
        origin, stamp = message.origin, (message.incarnation, message.version)
        if stamp == self._replicas.stamp(origin):
            # The usual case: every node gets each delta from all its neighbours.
            self.spreading.has(neighbour, origin)
            return []
        if not is_sound(message, self._options):
            self.counts.malformed += 1
            return []
        if not self._is_news(neighbour, origin, stamp):
            return []
        known = self._replicas.known_to(message)
        if message.base > known:
            self._offered(neighbour, origin, stamp)
            return []
        changes = None
        if self._replicas.has_room_for_origin(origin):
            changes = self._replicas.accept(message, now_us)
        if changes is None:
            self.counts.refused += 1
            self._asking.forget(origin)
            return []
        self._asking.came(origin, stamp)
        self._withheld.pop(origin, None)
        self.spreading.news(origin, known, neighbour)
        return changes

    def _on_digest(self, neighbour: str, message: StateDigest, now_us: int, sends: Sends) -> None:
        is_equal = message.hash == self._replicas.digest
        origins = len(self._replicas.by_origin)
        if self.spreading.is_worth_all_stamps(neighbour, is_equal, origins, now_us):
            self._send_all_stamps(neighbour, now_us, sends)

    def _on_stamps(self, neighbour: str, message: VersionVector, now_us: int, sends: Sends) -> None:
        replicas = self._replicas.by_origin
        for origin, stamp in message.stamps.items():
            replica = replicas.get(origin)
            if replica is not None and replica.stamp == stamp:
                self.spreading.has(neighbour, origin)
            elif not (is_name(origin) and is_stamp(stamp)):
                self.counts.malformed += 1
            elif self._is_news(neighbour, origin, stamp):
                self._offered(neighbour, origin, stamp)
        if message.is_all and not self.spreading.has_joined_lately(neighbour, now_us):
            self._tell_more(neighbour, message, now_us, sends)

    def _tell_more(self, neighbour: str, message: VersionVector, now_us: int, sends: Sends) -> None:
        """Schedule what the sender of a complete version vector lacks."""
        for origin, replica in self._replicas.by_origin.items():
            theirs = message.stamps.get(origin, NOTHING)
            if replica.stamp <= theirs or replica.stamp <= message.forgotten.get(origin, NOTHING):
                continue
            if origin == neighbour:
                # Records from its earlier incarnation are newer: it needs only their version.
                sends.append((neighbour, VersionVector({origin: replica.stamp})))
                continue
            is_same = theirs[0] == replica.incarnation
            self.spreading.lacks(neighbour, origin, theirs[1] if is_same else 0)
            self._note_missed(neighbour, replica, now_us)

    def _on_wanted(self, neighbour: str, message: DeltaRequest, now_us: int) -> None:
        stamp = message.incarnation, message.version
        if stamp != NOTHING and not is_stamp(stamp):
            self.counts.malformed += 1
            return
        replica = self._replicas.by_origin.get(message.origin)
        if replica is None or replica.stamp <= stamp:
            return
        is_same = message.incarnation == replica.incarnation
        self.spreading.ask(neighbour, message.origin, message.version if is_same else 0)
        self._note_missed(neighbour, replica, now_us)

    def _note_missed(self, neighbour: str, replica: OriginReplica, now_us: int) -> None:
        """Record a loss if the neighbour lacks a change that is not recent."""
        if replica.changed_us < now_us - _SETTLED_DIGESTS * self._options.digest_us:
            self.spreading.has_missed(neighbour, len(self._replicas.by_origin))

    def _is_news(self, neighbour: str, origin: str, stamp: OriginVersion) -> bool:
        """Whether `stamp` of `origin`, held by `neighbour`, is newer than here and accepted."""
        known = self._replicas.stamp(origin)
        if stamp <= known:
            return False
        if origin == self._replicas.own.origin:
            self.namesakes.claim(stamp, neighbour)
            return False
        if self._replicas.is_forgotten(origin, stamp):
            if origin in self._withheld or len(self._withheld) < self._options.origins_limit:
                self._withheld[origin] = neighbour, stamp
            return False
        return True

    def _offered(self, neighbour: str, origin: str, stamp: OriginVersion) -> None:
        if self._replicas.has_room_for_origin(origin):
            self._asking.offer(neighbour, origin, stamp)

    def _send_all_stamps(self, neighbour: str, now_us: int, sends: Sends) -> None:
        replicas = self._replicas.by_origin
        stamps = {origin: replica.stamp for origin, replica in replicas.items()}
        forgotten = dict(self._replicas.forgotten)
        sends.append((neighbour, VersionVector(stamps, is_all=True, forgotten=forgotten)))
        self.spreading.told_all(neighbour, now_us)


def earlier(one_us: int | None, other_us: int | None) -> int | None:
    if one_us is None or other_us is None:
        return other_us if one_us is None else one_us
    return one_us if one_us <= other_us else other_us  # quicker than min()
