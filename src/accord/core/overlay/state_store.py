"""What all nodes must know of each other, replicated to each of them.

A fact is a value under a kind and a key, said by one node, its origin, who alone may change it. So
there is nothing to agree on: of two states of an origin the one with the higher stamp is newer.
The stamp is the origin's incarnation (when it started, in milliseconds) and the count of its
changes, so that a node that comes back without memory replaces all it said before. `replica` holds
what is known of one origin, `exchange` deals with neighbours, `spreading` says who is to be told
what, `asking` whom to ask.

A node that can't be reached for long is forgotten. Others forget it earlier or later, and must not
bring it back: what is not newer than what was forgotten does not count, until it is recalled. To be
recalled is whoever a reachable node calls its neighbour: then what others know of it counts again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from accord.core.overlay.anti_entropy import AntiEntropy, earlier
from accord.core.overlay.origin_replica import OriginReplica
from accord.core.overlay.replica_set import ReplicaSet
from accord.core.overlay.state_messages import (
    MAX_NAME,
    MAX_STAMP,
    DeltaRequest,
    FactMessage,
    OriginVersion,
    StateDelta,
    StateDigest,
    StateOptions,
    StateRecord,
    VersionVector,
    is_fact,
    is_name,
)
from accord.core.overlay.watchers import Watcher, Watchers

__all__ = [
    "DeltaRequest",
    "FactMessage",
    "OriginVersion",
    "StateDelta",
    "StateDigest",
    "StateOptions",
    "StateRecord",
    "StateStore",
    "VersionVector",
]


def _middle() -> float:
    return 0.5


class StateStore:
    """One node's. What `sends` has is to be sent and taken out; `random` gives 0 to 1."""

    def __init__(
        self,
        own_name: str,
        incarnation: int,
        options: StateOptions | None = None,
        random: Callable[[], float] = _middle,
    ) -> None:
        if not is_name(own_name):
            raise ValueError(f"own_name: expected 1 to {MAX_NAME} characters, got {own_name!r}")
        if not 0 <= incarnation <= MAX_STAMP:
            raise ValueError(f"incarnation: expected 0 to {MAX_STAMP}, got {incarnation}")
        self.name = own_name
        self.options = StateOptions() if options is None else options
        self.sends: list[tuple[str, FactMessage]] = []
        # That it is there is its first change: so it replaces what it said before a restart.
        own = OriginReplica(own_name, (incarnation, 1), 0, 0)
        self._own = own
        self._replicas = ReplicaSet(own, self.options)
        self._exchange = AntiEntropy(self._replicas, self.options, random)
        self._watchers = Watchers()
        self._now_us = 0
        self._own_base = -1  # what changed after it is still to be flooded
        self._own_free_us = 0
        self._is_due_known = False
        self._due_us: int | None = None  # as far as that is known
        self.counts = self._exchange.counts

    @property
    def incarnation(self) -> int:
        """As given, unless facts in this node's name made it jump."""
        return self._own.incarnation

    @property
    def digest(self) -> int:
        """Equal where all stamps are."""
        return self._replicas.digest

    @property
    def jumps(self) -> int:
        """How often somebody said newer facts in this node's name."""
        return self._exchange.namesakes.jumps

    @property
    def problem(self) -> str:
        """What people should know of that; empty if it never happened."""
        return self._exchange.namesakes.problem

    @property
    def tombstones(self) -> int:
        """How many facts are remembered to have been dropped."""
        return sum(each.tombstones for each in self._replicas.by_origin.values())

    @property
    def memory_bytes(self) -> int:
        """About what all that is known takes."""
        return self._own.bytes + self._replicas.others_bytes

    def reserve(self, kind: str, size: int) -> None:
        """Keep so many bytes for facts of that kind, whatever else there is to say."""
        self._replicas.reserve(kind, size)

    def room(self, kind: str) -> int:
        """How many bytes more this node may say of that kind."""
        return self._replicas.room_to_say(kind)

    def put(self, kind: str, key: str, value: bytes) -> bool:
        """Say so from now on; False if there is no room for it."""
        if self._own.get(kind, key) == value:
            return True
        fact = StateRecord(kind, key, value, self._own.version + 1)
        if is_fact(fact, self.options) and self._replicas.has_room_to_say(fact):
            self._say(fact)
            return True
        self.counts.refused += 1
        return False

    def drop(self, kind: str, key: str) -> None:
        """Say it no more."""
        if self._own.get(kind, key) is not None:
            self._say(StateRecord(kind, key, None, self._own.version + 1))

    def get(self, origin: str, kind: str, key: str) -> bytes | None:
        replica = self._replicas.by_origin.get(origin)
        return None if replica is None else replica.get(kind, key)

    def of(self, origin: str, kind: str) -> dict[str, bytes]:
        """What `origin` says of this kind, by key."""
        replica = self._replicas.by_origin.get(origin)
        return {} if replica is None else dict(replica.values.get(kind, {}))

    def all(self, kind: str) -> Iterator[tuple[str, str, bytes]]:
        """Origin, key and value of each; what changes meanwhile may be in it or not."""
        for origin, replica in list(self._replicas.by_origin.items()):
            for key, value in list(replica.values.get(kind, {}).items()):
                yield origin, key, value

    def origins(self) -> list[str]:
        """All that are known, this node first."""
        return list(self._replicas.by_origin)

    def stamp(self, origin: str) -> OriginVersion:
        """How much of `origin` is known; zeros for nothing."""
        return self._replicas.stamp(origin)

    def watch(self, kind: str, callback: Watcher) -> None:
        """Have `callback` called after each change of this kind from now on, in order."""
        self._watchers.add(kind, callback)

    def link_up(self, neighbour: str, now_us: int) -> None:
        """Messages can be sent to it, and come from it; what was sent before may be lost."""
        if neighbour == self.name:
            raise ValueError(f"expected another node than {neighbour!r} as its neighbour")
        self._pass(now_us)
        self._exchange.link_up(neighbour, self._now_us, self.sends)
        self._is_due_known = False

    def link_down(self, neighbour: str) -> None:
        self._exchange.link_down(neighbour)
        self._is_due_known = False

    def forget(self, origin: str) -> None:
        """It can't be reached for long: it is gone until it says something new, or is recalled."""
        if origin == self.name:
            raise ValueError(f"expected another node to forget than {origin!r} itself")
        self._is_due_known = False
        self._watchers.tell(origin, self._exchange.forget(origin))

    def recall(self, origin: str) -> None:
        """It can be reached again, it seems: what others know of it counts again."""
        self._exchange.recall(origin)
        self._is_due_known = False

    def receive(self, neighbour: str, message: FactMessage, now_us: int) -> None:
        self._pass(now_us)
        changes = self._exchange.receive(neighbour, message, self._now_us, self.sends)
        self._is_due_known = False
        if changes and isinstance(message, StateDelta):
            self._watchers.tell(message.origin, changes)

    def advance(self, now_us: int) -> None:
        """Do what is due by now."""
        self._pass(now_us)
        due_us = self.next_due_us()
        if due_us is None or due_us > self._now_us:
            return
        self._jump()
        self._replicas.purge(self._now_us)
        self._flood_own()
        self._exchange.advance(self._now_us, self.sends)
        self._is_due_known = False

    def next_due_us(self) -> int | None:
        """When to advance next; a moment that has passed means now."""
        if not self._is_due_known:
            self._is_due_known = True
            self._due_us = self._find_due_us()
        return self._due_us

    def _find_due_us(self) -> int | None:
        due_us = self._exchange.next_due_us(self._now_us)
        due_us = earlier(due_us, self._exchange.namesakes.next_due_us(self._own.stamp))
        if self._replicas.purge_due_us >= 0:
            due_us = earlier(due_us, self._replicas.purge_due_us)
        if self._own_base >= 0:
            due_us = earlier(due_us, self._own_due_us())
        return due_us

    def check_invariants(self) -> None:
        self._replicas.check_invariants()
        self._exchange.check_invariants()
        assert self._own_base < self._own.version
        if self._is_due_known and self._due_us != self._find_due_us():
            assert self._due_us is not None
            assert self._due_us <= self._now_us  # both are now

    def _say(self, fact: StateRecord) -> None:
        if self._own_base < 0:
            self._own_base = self._own.version
        self._replicas.say(fact, self._now_us)
        self._is_due_known = False
        self._watchers.tell(self.name, [(fact.kind, fact.key, fact.value)])

    def _jump(self) -> None:
        stamp = self._exchange.namesakes.jump(self._own.stamp, self._now_us)
        if stamp is not None:
            self._replicas.move_own(stamp, self._now_us)
            self._own_base = 0

    def _flood_own(self) -> None:
        """Own changes, if there were not too many lately."""
        if self._own_base < 0 or self._now_us < self._own_due_us():
            return
        self._own_free_us = max(self._own_free_us, self._now_us) + self.options.own_us
        self._exchange.spreading.news(self.name, self._own_base, "")
        self._own_base = -1

    def _own_due_us(self) -> int:
        return self._own_free_us - self.options.own_us * (self.options.own_burst - 1)

    def _pass(self, now_us: int) -> None:
        """Time does not go back."""
        self._now_us = max(self._now_us, now_us)
