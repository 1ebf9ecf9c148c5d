"""Replicas of all origins within memory limits, with a digest.

The digest is updated incrementally with every change: it is the XOR of one hash per origin.
"""

from __future__ import annotations

from typing import Final

from accord.core.overlay.origin_replica import Change, OriginReplica, cost_of, whole_replica
from accord.core.overlay.state_messages import (
    NOTHING,
    OriginVersion,
    StateDelta,
    StateOptions,
    StateRecord,
)

_PURGES: Final = 8  # scans per lifetime of a tombstone


class ReplicaSet:
    """This node's own records and the replicas of all other origins."""

    def __init__(self, own: OriginReplica, options: StateOptions) -> None:
        self.own = own
        self.by_origin: dict[str, OriginReplica] = {own.origin: own}
        self.digest = own.hash
        self.others_bytes = 0
        self.purge_due_us = -1  # below 0: there are no tombstones
        self._options = options
        # Expired origins, with the version up to which their records are not accepted.
        self.forgotten: dict[str, OriginVersion] = {}
        self._reserved: dict[str, int] = {}  # bytes of the own budget, by kind
        self._used: dict[str, int] = {}  # bytes used, of those kinds

    def reserve(self, kind: str, size: int) -> None:
        """Reserve bytes of the own budget for records of that kind."""
        self._reserved[kind] = size
        said = [self.own.fact(kind, key) for key in self.own.values.get(kind, {})]
        self._used[kind] = sum(cost_of(fact) for fact in said if fact is not None)

    def stamp(self, origin: str) -> OriginVersion:
        replica = self.by_origin.get(origin)
        return NOTHING if replica is None else replica.stamp

    def is_forgotten(self, origin: str, stamp: OriginVersion) -> bool:
        """Whether `stamp` is not newer than the expired version of `origin`."""
        return stamp <= self.forgotten.get(origin, NOTHING)

    def known_to(self, message: StateDelta) -> int:
        """Version held of the message's origin and incarnation; 0 if none."""
        replica = self.by_origin.get(message.origin)
        is_same = replica is not None and replica.incarnation == message.incarnation
        return replica.version if replica is not None and is_same else 0

    def has_room_for_origin(self, origin: str) -> bool:
        return origin in self.by_origin or len(self.by_origin) < self._options.origins_limit

    def room_to_say(self, kind: str) -> int:
        """Bytes left for own records of that kind; negative if over the limit."""
        return self._options.origin_bytes_limit - self.own.bytes - self._kept_for_others(kind)

    def has_room_to_say(self, fact: StateRecord) -> bool:
        count, size = self.own.growth((fact,))
        if len(self.own) + count > self._options.facts_limit:
            return False
        size += self._kept_for_others(fact.kind)
        while self.own.bytes + size > self._options.origin_bytes_limit:
            if not self.own.tombstones:
                return False
            self.own.purge(0, self.own.tombstones // 2)  # records matter more than tombstones
        return True

    def say(self, fact: StateRecord, now_us: int) -> None:
        """Apply a change of an own record."""
        own = self.own
        if fact.kind in self._reserved:
            before = own.fact(fact.kind, fact.key)
            self._used[fact.kind] += _used(fact) - (0 if before is None else _used(before))
        own.set(fact, now_us)
        self.move_own((own.incarnation, fact.version), now_us)
        self._bury(own, now_us)

    def move_own(self, stamp: OriginVersion, now_us: int) -> None:
        self.digest ^= self.own.hash
        self.own.move(stamp, now_us)
        self.digest ^= self.own.hash

    def accept(self, message: StateDelta, now_us: int) -> list[Change] | None:
        """Apply a delta that continues the replica, or a snapshot; None if there is no room."""
        origin = message.origin
        before = self.by_origin.get(origin)
        bytes_before = 0 if before is None else before.bytes
        hash_before = 0 if before is None else before.hash
        if before is not None and message.base > 0:
            count, size = before.growth(message.facts)
            if not self._has_room(len(before) + count, before.bytes + size, bytes_before):
                # Its origin may have discarded its tombstones earlier.
                before.purge(0, 0)
                self.others_bytes += before.bytes - bytes_before
                bytes_before = before.bytes
                count, size = before.growth(message.facts)
            if not self._has_room(len(before) + count, before.bytes + size, bytes_before):
                return None
            changes = before.apply(message, now_us)
            replica = before
        else:
            replica = whole_replica(message, now_us)
            if not self._has_room(len(replica), replica.bytes, bytes_before):
                return None
            changes = replica.changes_from(before)
            self.by_origin[origin] = replica
        self._bury(replica, now_us)
        self.digest ^= hash_before ^ replica.hash
        self.others_bytes += replica.bytes - bytes_before
        self.forgotten.pop(origin, None)
        return changes

    def forget(self, origin: str) -> list[Change]:
        replica = self.by_origin.pop(origin, None)
        if replica is None:
            return []
        self.digest ^= replica.hash
        self.others_bytes -= replica.bytes
        self.forgotten[origin] = replica.stamp
        if len(self.forgotten) > self._options.origins_limit:
            del self.forgotten[next(iter(self.forgotten))]
        return OriginReplica(origin, replica.stamp, 0, 0).changes_from(replica)

    def recall(self, origin: str) -> None:
        self.forgotten.pop(origin, None)

    def purge(self, now_us: int) -> None:
        """Expire old tombstones when a scan is due."""
        if self.purge_due_us < 0 or now_us < self.purge_due_us:
            return
        self.purge_due_us = -1
        before_us = now_us - self._options.tombstone_us
        for replica in self.by_origin.values():
            if replica.tombstones:
                self._purge(replica, before_us)
            if replica.tombstones:
                self._expect_purge(now_us)

    def check_invariants(self) -> None:
        assert self.by_origin[self.own.origin] is self.own
        digest = others_bytes = 0
        for origin, replica in self.by_origin.items():
            assert replica.origin == origin
            replica.check_invariants()
            assert len(replica) <= self._options.facts_limit
            assert replica.tombstones <= self._options.tombstones_limit
            assert replica.bytes <= self._options.origin_bytes_limit or replica is self.own
            assert not replica.tombstones or self.purge_due_us >= 0
            digest ^= replica.hash
            others_bytes += 0 if replica is self.own else replica.bytes
        assert self.digest == digest
        for kind, used in self._used.items():
            facts = (self.own.fact(kind, key) for key in self.own.values.get(kind, {}))
            assert used == sum(cost_of(fact) for fact in facts if fact is not None)
        assert self.others_bytes == others_bytes <= self._options.bytes_limit
        assert len(self.by_origin) <= self._options.origins_limit
        assert len(self.forgotten) <= self._options.origins_limit
        assert not any(origin in self.by_origin for origin in self.forgotten)

    def _kept_for_others(self, kind: str) -> int:
        """Unused bytes that are reserved for other kinds."""
        size = 0
        for each, reserved in self._reserved.items():
            size += 0 if each == kind else max(0, reserved - self._used[each])
        return size

    def _has_room(self, count: int, size: int, size_before: int) -> bool:
        return (
            count <= self._options.facts_limit
            and size <= self._options.origin_bytes_limit
            and self.others_bytes + size - size_before <= self._options.bytes_limit
        )

    def _bury(self, replica: OriginReplica, now_us: int) -> None:
        """Enforce the limit on tombstones after a change, and schedule the next scan."""
        if replica.tombstones > self._options.tombstones_limit:
            replica.purge(0, self._options.tombstones_limit)
        if replica.tombstones:
            self._expect_purge(now_us)

    def _purge(self, replica: OriginReplica, before_us: int) -> None:
        size = replica.bytes
        replica.purge(before_us, self._options.tombstones_limit)
        if replica is not self.own:
            self.others_bytes += replica.bytes - size

    def _expect_purge(self, now_us: int) -> None:
        if self.purge_due_us < 0:
            self.purge_due_us = now_us + max(self._options.tombstone_us // _PURGES, 1)


def _used(fact: StateRecord) -> int:
    return 0 if fact.value is None else cost_of(fact)
