"""Anti-entropy with neighbours: handles deltas, digests, version vectors and delta requests.

The records of an adjacent node, one whose link is in use, are accepted over that link alone: no
other node can speak for it there. If others claim newer ones, the node is told, and outdoes them
with a new incarnation, which then replaces them everywhere (as an OSPF router does with LSAs that
it did not originate). Implausible incarnations (`replica_set`) are ignored, also by their node:
going beyond them would make its own implausible to all others.

Name conflicts: state records under this node's name that it did not write.

A node whose clock went back across a restart finds records of its earlier incarnation that are
newer; it raises its incarnation beyond theirs once, which resolves the conflict. If that recurs,
another node has the same name, and the two replace each other's records everywhere. An operator has
to rename one; until then the incarnation is raised with exponential backoff, so that it costs
little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from accord.core.overlay.gossip import DeltaRequests, Gossip, Sends
from accord.core.overlay.replica_set import Change, OriginReplica, ReplicaSet
from accord.core.overlay.state_messages import (
    MAX_STAMP,
    NOTHING,
    DeltaRequest,
    FactMessage,
    OriginVersion,
    StateDelta,
    StateDigest,
    StateOptions,
    VersionVector,
    is_valid_delta,
    is_valid_name,
    is_valid_version,
)

_FIRST_WAIT_US: Final = 1_000_000
_MAX_DOUBLINGS: Final = 6


class NameConflicts:
    """Detects conflicts and computes the incarnations that override them."""

    def __init__(self, name: str) -> None:
        self.jumps = 0
        self.problem = ""  # description for operators
        self._name = name
        self._conflicting = NOTHING
        self._neighbour = ""
        self._due_us = 0  # earliest time of the next jump

    def on_conflict(self, stamp: OriginVersion, neighbour: str) -> None:
        """`neighbour` has records under this node's name, newer than its own."""
        if stamp > self._conflicting and stamp[0] < MAX_STAMP:
            self._conflicting = stamp
            self._neighbour = neighbour

    def next_version(self, own: OriginVersion, now_us: int) -> OriginVersion | None:
        """The version to continue with, if a jump is needed and due.

        It is needed even if `own` has passed the other version since: others may hold different
        records up to that one.
        """
        if self._conflicting == NOTHING or now_us < self._due_us:
            return None
        beyond = max(self._conflicting[0], own[0]) + 1
        self._conflicting = NOTHING
        self._due_us = now_us + (_FIRST_WAIT_US << min(self.jumps, _MAX_DOUBLINGS))
        self.jumps += 1
        self.problem = (
            f"state records of {self._name!r} came through {self._neighbour!r}"
            f" that this node did not write ({self.jumps} times):"
            + (
                " another node has the same name, one of them must be renamed"
                if self.jumps > 1
                else " from before a restart with the clock set back, or another node has the name"
            )
        )
        return beyond, own[1]

    def next_due_us(self) -> int | None:
        return None if self._conflicting == NOTHING else self._due_us


_SPREAD_DIGESTS: Final = 2  # older changes, in digest intervals, should have arrived everywhere


class RejectedCounts:
    """Counts of rejected messages and records."""

    def __init__(self) -> None:
        self.malformed = 0
        self.stray = 0  # not from a neighbour
        self.refused = 0  # no room
        self.implausible = 0  # incarnations


class AntiEntropy:
    """Replication of a `ReplicaSet` with all neighbours."""

    def __init__(
        self, replicas: ReplicaSet, options: StateOptions, random: Callable[[], float]
    ) -> None:
        self.counts = RejectedCounts()
        self.gossip = Gossip(options, random)
        self.name_conflicts = NameConflicts(replicas.own.origin)
        self._replicas = replicas
        self._options = options
        self._requests = DeltaRequests(options)
        self._adjacent: set[str] = set()
        # Expired origins and adjacent ones: the neighbour with newer records, and their version.
        self._withheld: dict[str, tuple[str, OriginVersion]] = {}

    def link_up(self, neighbour: str, now_us: int, sends: Sends) -> None:
        self.recall(neighbour)
        self.gossip.link_up(neighbour, now_us)
        self._requests.link_up(neighbour)
        self._send_version_vector(neighbour, now_us, sends)

    def set_adjacent(self, neighbour: str, *, is_adjacent: bool) -> None:
        if is_adjacent:
            self._adjacent.add(neighbour)
        else:
            self._adjacent.discard(neighbour)
            self.recall(neighbour)

    def link_down(self, neighbour: str) -> None:
        self._adjacent.discard(neighbour)
        self.gossip.link_down(neighbour)
        self._requests.link_down(neighbour)

    def expire(self, origin: str) -> list[Change]:
        self.gossip.remove_origin(origin)
        self._requests.remove_origin(origin)
        return self._replicas.expire(origin)

    def recall(self, origin: str) -> None:
        self._replicas.recall(origin)
        neighbour, stamp = self._withheld.pop(origin, ("", NOTHING))
        if neighbour in self.gossip.neighbours:
            self._on_offer(neighbour, origin, stamp)

    def receive(
        self, neighbour: str, message: FactMessage, now_us: int, sends: Sends
    ) -> list[Change]:
        """Handle a message; returns the changes of a delta."""
        if neighbour not in self.gossip.neighbours:
            self.counts.stray += 1
        elif isinstance(message, StateDelta):
            return self._on_delta(neighbour, message, now_us, sends)
        elif isinstance(message, StateDigest):
            self._on_digest(neighbour, message, now_us, sends)
        elif isinstance(message, VersionVector):
            self._on_version_vector(neighbour, message, now_us, sends)
        else:
            self._on_request(neighbour, message, now_us)
        return []

    def advance(self, now_us: int, sends: Sends) -> None:
        self.gossip.flush(self._replicas.by_origin, now_us, sends)
        self.gossip.send_digests(self._replicas.digest, now_us, sends)
        for neighbour, origin in self._requests.take(now_us):
            sends.append((neighbour, DeltaRequest(origin, *self._replicas.version_of(origin))))

    def next_due_us(self, now_us: int) -> int | None:
        return earlier(self.gossip.next_due_us(), self._requests.next_due_us(now_us))

    def check_invariants(self) -> None:
        self.gossip.check_invariants(self._replicas.by_origin)
        self._requests.check_invariants()
        assert len(self._withheld) <= self._options.origins_limit

    def _on_delta(
        self, neighbour: str, message: StateDelta, now_us: int, sends: Sends
    ) -> list[Change]:
        origin, stamp = message.origin, (message.incarnation, message.version)
        if stamp == self._replicas.version_of(origin):
            # The usual case: every node gets each delta from all its neighbours.
            self.gossip.on_up_to_date(neighbour, origin)
            return []
        if not is_valid_delta(message, self._options):
            self.counts.malformed += 1
            return []
        if not self._is_newer(neighbour, origin, stamp, now_us, sends):
            return []
        known = self._replicas.held_version(message)
        if message.base > known:
            self._on_offer(neighbour, origin, stamp)
            return []
        changes = None
        if self._replicas.has_room_for_origin(origin):
            changes = self._replicas.accept(message, now_us)
        if changes is None:
            self.counts.refused += 1
            self._requests.remove_origin(origin)
            return []
        self._requests.on_delta(origin, stamp)
        self._withheld.pop(origin, None)
        self.gossip.schedule_push(origin, known, neighbour)
        return changes

    def _on_digest(self, neighbour: str, message: StateDigest, now_us: int, sends: Sends) -> None:
        is_equal = message.hash == self._replicas.digest
        origins = len(self._replicas.by_origin)
        if self.gossip.can_send_vector(neighbour, is_equal, origins, now_us):
            self._send_version_vector(neighbour, now_us, sends)

    def _on_version_vector(
        self, neighbour: str, message: VersionVector, now_us: int, sends: Sends
    ) -> None:
        replicas = self._replicas.by_origin
        for origin, stamp in message.versions.items():
            replica = replicas.get(origin)
            if replica is not None and replica.origin_version == stamp:
                self.gossip.on_up_to_date(neighbour, origin)
            elif not (is_valid_name(origin) and is_valid_version(stamp)):
                self.counts.malformed += 1
            elif self._is_newer(neighbour, origin, stamp, now_us, sends):
                self._on_offer(neighbour, origin, stamp)
        if message.is_complete and not self.gossip.has_joined_recently(neighbour, now_us):
            self._schedule_missing(neighbour, message, now_us, sends)

    def _schedule_missing(
        self, neighbour: str, message: VersionVector, now_us: int, sends: Sends
    ) -> None:
        """Schedule what the sender of a complete version vector lacks."""
        for origin, replica in self._replicas.by_origin.items():
            theirs = message.versions.get(origin, NOTHING)
            if replica.origin_version <= theirs or replica.origin_version <= message.expired.get(
                origin, NOTHING
            ):
                continue
            if origin == neighbour:
                # Records from its earlier incarnation are newer: it needs only their version.
                sends.append((neighbour, VersionVector({origin: replica.origin_version})))
                continue
            is_same = theirs[0] == replica.incarnation
            self.gossip.schedule_missing(neighbour, origin, theirs[1] if is_same else 0)
            self._detect_loss(neighbour, replica, now_us)

    def _on_request(self, neighbour: str, message: DeltaRequest, now_us: int) -> None:
        stamp = message.incarnation, message.version
        if stamp != NOTHING and not is_valid_version(stamp):
            self.counts.malformed += 1
            return
        replica = self._replicas.by_origin.get(message.origin)
        if replica is None or replica.origin_version <= stamp:
            return
        is_same = message.incarnation == replica.incarnation
        self.gossip.on_request(neighbour, message.origin, message.version if is_same else 0)
        self._detect_loss(neighbour, replica, now_us)

    def _detect_loss(self, neighbour: str, replica: OriginReplica, now_us: int) -> None:
        """Record a loss if the neighbour lacks a change that is not recent."""
        if replica.changed_us < now_us - _SPREAD_DIGESTS * self._options.digest_us:
            self.gossip.on_loss(neighbour, len(self._replicas.by_origin))

    def _is_newer(
        self, neighbour: str, origin: str, stamp: OriginVersion, now_us: int, sends: Sends
    ) -> bool:
        """Whether `stamp` of `origin`, held by `neighbour`, is newer than here and accepted."""
        known = self._replicas.version_of(origin)
        if stamp <= known:
            return False
        if origin != neighbour and not self._replicas.is_plausible(origin, stamp[0], now_us):
            self.counts.implausible += 1
            return False
        if origin == self._replicas.own.origin:
            self.name_conflicts.on_conflict(stamp, neighbour)
            return False
        if origin != neighbour and origin in self._adjacent:
            if stamp > self._withheld.get(origin, ("", NOTHING))[1]:
                self._withhold(neighbour, origin, stamp)
                sends.append((origin, VersionVector({origin: stamp})))
            return False
        if self._replicas.is_expired(origin, stamp):
            self._withhold(neighbour, origin, stamp)
            return False
        return True

    def _withhold(self, neighbour: str, origin: str, stamp: OriginVersion) -> None:
        if origin in self._withheld or len(self._withheld) < self._options.origins_limit:
            self._withheld[origin] = neighbour, stamp

    def _on_offer(self, neighbour: str, origin: str, stamp: OriginVersion) -> None:
        if self._replicas.has_room_for_origin(origin):
            self._requests.on_offer(neighbour, origin, stamp)

    def _send_version_vector(self, neighbour: str, now_us: int, sends: Sends) -> None:
        replicas = self._replicas.by_origin
        stamps = {origin: replica.origin_version for origin, replica in replicas.items()}
        expired = dict(self._replicas.expired)
        sends.append((neighbour, VersionVector(stamps, is_complete=True, expired=expired)))
        self.gossip.on_vector_sent(neighbour, now_us)


def earlier(one_us: int | None, other_us: int | None) -> int | None:
    if one_us is None or other_us is None:
        return other_us if one_us is None else one_us
    return one_us if one_us <= other_us else other_us  # quicker than min()
