"""Replicated key-value store of the state records of all nodes, with one writer per record.

A state record is a value under a kind and a key. Only its origin may change it, so no consensus is
needed: of two states of an origin, the one with the higher version is newer. A version is the
origin's incarnation (its start time in milliseconds) and the count of its changes, so a node that
restarts without its state replaces all its earlier records. `replica_set` holds the records by
origin, `anti_entropy` handles the messages of neighbours, and `gossip` selects what to push to each
of them and what to pull from which.

The records of a node that has been unreachable for long expire. Other nodes expire them earlier or
later and must not bring them back: versions not newer than the expired one are ignored until the
origin is recalled. An origin is recalled when a reachable node reports it as its neighbour.

Watchers are called in the order of changes, even if a callback causes changes. A failing watcher
does not keep others, or itself, from later changes: the first error is raised after all changes
have been reported to all watchers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from accord.core.overlay.anti_entropy import AntiEntropy, earlier
from accord.core.overlay.replica_set import Change, OriginReplica, ReplicaSet
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
    is_valid_name,
    is_valid_record,
)

Watcher = Callable[[str, str, bytes | None], None]  # origin, key, value


class Watchers:
    """Watchers of one state store, by kind of record."""

    def __init__(self) -> None:
        self._by_kind: dict[str, list[Watcher]] = {}
        self._changes: list[tuple[str, Change]] = []
        self._is_notifying = False

    def add(self, kind: str, watcher: Watcher) -> None:
        self._by_kind.setdefault(kind, []).append(watcher)

    def notify(self, origin: str, changes: list[Change]) -> None:
        """Report changes to the watchers of their kind; reentrant calls are queued."""
        self._changes += [(origin, each) for each in changes if each[0] in self._by_kind]
        if self._is_notifying:
            return
        self._is_notifying = True
        failure: Exception | None = None
        try:
            while self._changes:
                batch, self._changes = self._changes, []
                for by, (kind, key, value) in batch:
                    for watcher in list(self._by_kind[kind]):
                        try:
                            watcher(by, key, value)
                        except Exception as error:  # the remaining watchers are called anyway
                            failure = failure or error
        finally:
            self._is_notifying = False
        if failure is not None:
            raise failure


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
    """The store of one node. The caller drains and sends `sends`; `random` returns 0 to 1."""

    def __init__(
        self,
        own_name: str,
        incarnation: int,
        options: StateOptions | None = None,
        random: Callable[[], float] = _middle,
    ) -> None:
        if not is_valid_name(own_name):
            raise ValueError(f"own_name: expected 1 to {MAX_NAME} characters, got {own_name!r}")
        if not 0 <= incarnation <= MAX_STAMP:
            raise ValueError(f"incarnation: expected 0 to {MAX_STAMP}, got {incarnation}")
        self.name = own_name
        self.options = StateOptions() if options is None else options
        self.sends: list[tuple[str, FactMessage]] = []
        # Version 1 without records: it replaces the records from before a restart.
        own = OriginReplica(own_name, (incarnation, 1), 0, 0)
        self._own = own
        self._replicas = ReplicaSet(own, self.options)
        self._anti_entropy = AntiEntropy(self._replicas, self.options, random)
        self._watchers = Watchers()
        self._now_us = 0
        self._own_base = -1  # own changes after this version are to be flooded; below 0: none
        self._own_free_us = 0
        self._is_due_known = False
        self._due_us: int | None = None  # valid if `_is_due_known`
        self.counts = self._anti_entropy.counts

    @property
    def incarnation(self) -> int:
        """The given incarnation, unless a name conflict raised it."""
        return self._own.incarnation

    @property
    def digest(self) -> int:
        """Equal at two nodes if all their versions are."""
        return self._replicas.digest

    @property
    def jumps(self) -> int:
        """How often another node published newer records under this node's name."""
        return self._anti_entropy.name_conflicts.jumps

    @property
    def problem(self) -> str:
        """Description of the name conflict for operators; empty if there was none."""
        return self._anti_entropy.name_conflicts.problem

    @property
    def tombstones(self) -> int:
        """Number of tombstones of all origins."""
        return sum(each.tombstones for each in self._replicas.by_origin.values())

    @property
    def memory_bytes(self) -> int:
        """Approximate memory taken by all records."""
        return self._own.bytes + self._replicas.others_bytes

    def reserve(self, kind: str, size: int) -> None:
        """Reserve bytes of the own records' budget for one kind."""
        self._replicas.reserve(kind, size)

    def room(self, kind: str) -> int:
        """Bytes left for own records of that kind."""
        return self._replicas.own_room(kind)

    def put(self, kind: str, key: str, value: bytes) -> bool:
        """Write an own record; False if it is invalid or there is no room for it."""
        if self._own.get(kind, key) == value:
            return True
        fact = StateRecord(kind, key, value, self._own.version + 1)
        if is_valid_record(fact, self.options) and self._replicas.has_own_room(fact):
            self._write(fact)
            return True
        self.counts.refused += 1
        return False

    def drop(self, kind: str, key: str) -> None:
        """Delete an own record."""
        if self._own.get(kind, key) is not None:
            self._write(StateRecord(kind, key, None, self._own.version + 1))

    def get(self, origin: str, kind: str, key: str) -> bytes | None:
        replica = self._replicas.by_origin.get(origin)
        return None if replica is None else replica.get(kind, key)

    def of(self, origin: str, kind: str) -> dict[str, bytes]:
        """Records of `origin` of this kind, by key."""
        replica = self._replicas.by_origin.get(origin)
        return {} if replica is None else dict(replica.values.get(kind, {}))

    def all(self, kind: str) -> Iterator[tuple[str, str, bytes]]:
        """Origin, key and value of each record; concurrent changes may or may not be included."""
        for origin, replica in list(self._replicas.by_origin.items()):
            for key, value in list(replica.values.get(kind, {}).items()):
                yield origin, key, value

    def origins(self) -> list[str]:
        """All known origins, this node first."""
        return list(self._replicas.by_origin)

    def version_of(self, origin: str) -> OriginVersion:
        """Version of `origin` held here; zeros if none."""
        return self._replicas.version_of(origin)

    def watch(self, kind: str, callback: Watcher) -> None:
        """Call `callback` after each further change of this kind, in order."""
        self._watchers.add(kind, callback)

    def link_up(self, neighbour: str, now_us: int) -> None:
        """The link is up; messages sent on it before may be lost."""
        if neighbour == self.name:
            raise ValueError(f"expected another node than {neighbour!r} as its neighbour")
        self._advance_clock(now_us)
        self._anti_entropy.link_up(neighbour, self._now_us, self.sends)
        self._is_due_known = False

    def link_down(self, neighbour: str) -> None:
        self._anti_entropy.link_down(neighbour)
        self._is_due_known = False

    def set_adjacent(self, neighbour: str, *, is_adjacent: bool) -> None:
        """Whether the link is in use: then the neighbour's records are accepted over it alone."""
        self._anti_entropy.set_adjacent(neighbour, is_adjacent=is_adjacent)
        self._is_due_known = False

    def expire(self, origin: str) -> None:
        """Expire the records of an unreachable origin until a newer version or a recall."""
        if origin == self.name:
            raise ValueError(f"expected another node to forget than {origin!r} itself")
        self._is_due_known = False
        self._watchers.notify(origin, self._anti_entropy.expire(origin))

    def recall(self, origin: str) -> None:
        """Accept the records of an expired origin from other nodes again."""
        self._anti_entropy.recall(origin)
        self._is_due_known = False

    def receive(self, neighbour: str, message: FactMessage, now_us: int) -> None:
        self._advance_clock(now_us)
        changes = self._anti_entropy.receive(neighbour, message, self._now_us, self.sends)
        self._is_due_known = False
        if changes and isinstance(message, StateDelta):
            self._watchers.notify(message.origin, changes)

    def advance(self, now_us: int) -> None:
        """Perform all work that is due."""
        self._advance_clock(now_us)
        due_us = self.next_due_us()
        if due_us is None or due_us > self._now_us:
            return
        self._resolve_conflict()
        self._replicas.purge(self._now_us)
        self._flood_own()
        self._anti_entropy.advance(self._now_us, self.sends)
        self._is_due_known = False

    def next_due_us(self) -> int | None:
        """When to call `advance` next; a time that has passed means now."""
        if not self._is_due_known:
            self._is_due_known = True
            self._due_us = self._find_due_us()
        return self._due_us

    def _find_due_us(self) -> int | None:
        due_us = self._anti_entropy.next_due_us(self._now_us)
        due_us = earlier(due_us, self._anti_entropy.name_conflicts.next_due_us())
        if self._replicas.purge_due_us >= 0:
            due_us = earlier(due_us, self._replicas.purge_due_us)
        if self._own_base >= 0:
            due_us = earlier(due_us, self._own_due_us())
        return due_us

    def check_invariants(self) -> None:
        self._replicas.check_invariants()
        self._anti_entropy.check_invariants()
        assert self._own_base < self._own.version
        if self._is_due_known and self._due_us != self._find_due_us():
            assert self._due_us is not None
            assert self._due_us <= self._now_us  # both mean now

    def _write(self, fact: StateRecord) -> None:
        if self._own_base < 0:
            self._own_base = self._own.version
        self._replicas.write_own(fact, self._now_us)
        self._is_due_known = False
        self._watchers.notify(self.name, [(fact.kind, fact.key, fact.value)])

    def _resolve_conflict(self) -> None:
        stamp = self._anti_entropy.name_conflicts.next_version(
            self._own.origin_version, self._now_us
        )
        if stamp is not None:
            self._replicas.advance_own(stamp, self._now_us)
            self._own_base = 0

    def _flood_own(self) -> None:
        """Flood own changes, within the rate limit (`own_us`, `own_burst`)."""
        if self._own_base < 0 or self._now_us < self._own_due_us():
            return
        self._own_free_us = max(self._own_free_us, self._now_us) + self.options.own_us
        self._anti_entropy.gossip.schedule_push(self.name, self._own_base, "")
        self._own_base = -1

    def _own_due_us(self) -> int:
        return self._own_free_us - self.options.own_us * (self.options.own_burst - 1)

    def _advance_clock(self, now_us: int) -> None:
        """Move the clock on; it never runs backwards."""
        self._now_us = max(self._now_us, now_us)
