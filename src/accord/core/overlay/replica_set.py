"""Replicas of all origins' state records, within memory limits, with a digest.

The digest is updated incrementally with every change: it is the XOR of one hash per origin.

The replica of one origin is at exactly one of its versions. An origin counts its changes. A replica
at version v holds the last change up to v of each key, so its delta (base, v] is all that a replica
at base lacks. Every replica therefore always equals its origin's state at some time, whatever the
paths and order of messages.

An incarnation is a start by the wall clock in milliseconds, so it rises no faster than time passes,
but for clocks that are corrected. Otherwise a single record with the highest incarnation, under the
name of another node, would outdo that node for ever. A rise is plausible up to `MAX_RISE` at any
time, and up to `MAX_LEAP` once a minute, with a burst. What is claimed can so be outdone by the
origin itself (`NameConflicts`): that is a rise by one. For a node that did not hear the claim it
may be one more than `MAX_LEAP`, so the limit rises slowly while larger incarnations are offered.

A deleted record leaves a tombstone for replicas that still have it. Tombstones expire: `floor` is
the highest version of a discarded one. A replica below it gets a snapshot instead, and deletes
every record that is not in it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from accord.core.overlay.state_messages import (
    MAX_FIRST_INCARNATION,
    NOTHING,
    OriginVersion,
    StateDelta,
    StateOptions,
    StateRecord,
)

# Memory of a record besides its texts: objects, and entries in three dictionaries.
_RECORD_BYTES: Final = 400
_WIRE_BYTES: Final = 16
MAX_RISE: Final = 1 << 16  # ms; a start with the clock set back is a minute beyond the last
MAX_LEAP: Final = 1 << 42  # ms: 139 years, further than from an unset clock to the time
_OFFERED_US: Final = 10_000_000  # longest pause between two offers
_LEAP_US: Final = 60_000_000
_LEAP_BURST: Final = 10  # starts that arrive late, one after the other

Change = tuple[str, str, bytes | None]  # kind, key, value


class OriginReplica:
    """Records and tombstones by ascending version; tombstones with their local time of arrival."""

    def __init__(self, origin: str, origin_version: OriginVersion, floor: int, now_us: int) -> None:
        self.origin = origin
        self.origin_version = origin_version
        self.incarnation, self.version = origin_version
        self.floor = floor
        self.bytes = _RECORD_BYTES
        self.changed_us = now_us
        self.leaps_free_us = 0  # rate limiter: each leap of the incarnation moves it on
        self._offered_us = 0  # when a leap was last offered, and
        self._offered_since_us = 0  # since when, without a long pause
        self.hash = version_hash(origin, origin_version)
        self.values: dict[str, dict[str, bytes]] = {}
        self._records: dict[tuple[str, str], StateRecord] = {}
        self._buried_at_us: dict[tuple[str, str], int] = {}

    @property
    def tombstones(self) -> int:
        return len(self._buried_at_us)

    def get(self, kind: str, key: str) -> bytes | None:
        of_kind = self.values.get(kind)
        return None if of_kind is None else of_kind.get(key)

    def record(self, kind: str, key: str) -> StateRecord | None:
        """The last change of a key, unless it is a discarded tombstone."""
        return self._records.get((kind, key))

    def __len__(self) -> int:
        return len(self._records) - len(self._buried_at_us)

    def is_plausible(self, incarnation: int, now_us: int) -> bool:
        """Whether the origin may have started anew with that incarnation."""
        rise = incarnation - self.incarnation
        if rise <= MAX_RISE:
            return True
        if now_us - self._offered_us > _OFFERED_US:
            self._offered_since_us = now_us
        self._offered_us = now_us
        is_free = now_us >= self.leaps_free_us - _LEAP_US * (_LEAP_BURST - 1)
        return is_free and rise <= MAX_LEAP + now_us - self._offered_since_us

    def leaps_free_after(self, incarnation: int, now_us: int) -> int:
        """`leaps_free_us` once the origin has that incarnation."""
        if incarnation - self.incarnation <= MAX_RISE:
            return self.leaps_free_us
        return max(self.leaps_free_us, now_us) + _LEAP_US

    def advance_to(self, stamp: OriginVersion, now_us: int) -> None:
        """Advance to a later version, after all records up to it were set."""
        assert stamp > self.origin_version
        self.leaps_free_us = self.leaps_free_after(stamp[0], now_us)
        self.origin_version = stamp
        self.incarnation, self.version = stamp
        self.changed_us = now_us
        self.hash = version_hash(self.origin, stamp)

    def set(self, fact: StateRecord, now_us: int) -> None:
        """Set a record, whose version is the highest so far."""
        at = fact.kind, fact.key
        before = self._records.pop(at, None)
        if before is not None:
            self.bytes -= cost_of(before)
        # Appended: the dictionary is ordered by version.
        self._records[at] = fact
        self.bytes += cost_of(fact)
        if fact.value is None:
            self._drop_value(fact.kind, fact.key)
            self._buried_at_us.pop(at, None)
            self._buried_at_us[at] = now_us
        else:
            self._buried_at_us.pop(at, None)
            self.values.setdefault(fact.kind, {})[fact.key] = fact.value

    def purge(self, before_us: int, limit: int) -> None:
        """Expire tombstones older than `before_us`, and evict the oldest beyond `limit`."""
        gone: list[tuple[str, str]] = []
        for at, buried_us in self._buried_at_us.items():
            if buried_us >= before_us and len(self._buried_at_us) - len(gone) <= limit:
                break
            gone.append(at)
        for at in gone:
            del self._buried_at_us[at]
            fact = self._records.pop(at)
            self.bytes -= cost_of(fact)
            self.floor = max(self.floor, fact.version)

    def delta_after(self, base: int) -> StateDelta:
        """The delta for a replica at version `base`, or a snapshot if that is below `floor`."""
        if base < self.floor:
            base = 0
        facts: list[StateRecord] = []
        for fact in reversed(self._records.values()):
            if fact.version <= base:
                break
            if base or fact.value is not None:
                facts.append(fact)
        facts.reverse()
        return StateDelta(self.origin, self.incarnation, base, self.version, tuple(facts))

    def growth(self, facts: tuple[StateRecord, ...]) -> tuple[int, int]:
        """Records and bytes that the newer ones of `facts` would add."""
        count = size = 0
        for fact in facts:
            if fact.version > self.version:
                before = self._records.get((fact.kind, fact.key))
                if before is not None:
                    size -= cost_of(before)
                    count -= int(before.value is not None)
                size += cost_of(fact)
                count += int(fact.value is not None)
        return count, size

    def apply(self, message: StateDelta, now_us: int) -> list[Change]:
        """Apply a delta that continues this version; returns the changes."""
        changes: list[Change] = []
        for fact in message.records:
            if fact.version > self.version:
                if fact.value != self.get(fact.kind, fact.key):
                    changes.append((fact.kind, fact.key, fact.value))
                self.set(fact, now_us)
        self.advance_to((message.incarnation, message.version), now_us)
        return changes

    def changes_from(self, before: OriginReplica | None) -> list[Change]:
        """Differences from `before`, the previous replica of this origin: deletions first."""
        changes: list[Change] = []
        if before is not None:
            for kind, of_kind in before.values.items():
                changes += [(kind, key, None) for key in of_kind if self.get(kind, key) is None]
        for fact in self._records.values():
            known = None if before is None else before.get(fact.kind, fact.key)
            if fact.value is not None and fact.value != known:
                changes.append((fact.kind, fact.key, fact.value))
        return changes

    def check_invariants(self) -> None:
        versions = [fact.version for fact in self._records.values()]
        assert versions == sorted(set(versions))
        assert not versions or (versions[0] > 0 and versions[-1] <= self.version)
        assert self.origin_version == (self.incarnation, self.version)
        assert 0 <= self.floor <= self.version
        assert self.bytes == _RECORD_BYTES + sum(cost_of(fact) for fact in self._records.values())
        assert self.hash == version_hash(self.origin, self.origin_version)
        alive = {at: fact.value for at, fact in self._records.items() if fact.value is not None}
        assert alive == {
            (kind, key): value
            for kind, of_kind in self.values.items()
            for key, value in of_kind.items()
        }
        assert all(self.values.values())
        buried = [at for at, fact in self._records.items() if fact.value is None]
        assert buried == list(self._buried_at_us)
        assert list(self._buried_at_us.values()) == sorted(self._buried_at_us.values())

    def _drop_value(self, kind: str, key: str) -> None:
        of_kind = self.values.get(kind)
        if of_kind is not None:
            of_kind.pop(key, None)
            if not of_kind:
                del self.values[kind]


def replica_from_snapshot(message: StateDelta, now_us: int) -> OriginReplica:
    """Replica from a snapshot, without tombstones: it serves no deltas from below its version.

    Tombstones in the message are skipped: all records that are not in it are deleted anyway.
    """
    stamp = message.incarnation, message.version
    replica = OriginReplica(message.origin, stamp, message.version, now_us)
    for fact in message.records:
        if fact.value is not None:
            replica.set(fact, now_us)
    return replica


def cost_of(fact: StateRecord) -> int:
    """Approximate memory of a record."""
    return _RECORD_BYTES + len(fact.kind) + len(fact.key) + len(fact.value or b"")


def delta_bytes(message: StateDelta) -> int:
    """Approximate size of a delta on the wire."""
    size = _WIRE_BYTES + len(message.origin)
    for fact in message.records:
        size += _WIRE_BYTES + len(fact.kind) + len(fact.key) + len(fact.value or b"")
    return size


def version_hash(origin: str, stamp: OriginVersion) -> int:
    """An origin's part of the digest: the same at all nodes, in all runs."""
    text = f"{stamp[0]} {stamp[1]} {origin}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())


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
        self.expired: dict[str, OriginVersion] = {}
        self._reserved: dict[str, int] = {}  # bytes of the own budget, by kind
        self._used: dict[str, int] = {}  # bytes used, of those kinds

    def reserve(self, kind: str, size: int) -> None:
        """Reserve bytes of the own budget for records of that kind."""
        self._reserved[kind] = size
        records = [self.own.record(kind, key) for key in self.own.values.get(kind, {})]
        self._used[kind] = sum(cost_of(fact) for fact in records if fact is not None)

    def version_of(self, origin: str) -> OriginVersion:
        replica = self.by_origin.get(origin)
        return NOTHING if replica is None else replica.origin_version

    def is_expired(self, origin: str, stamp: OriginVersion) -> bool:
        """Whether `origin_version` is not newer than the expired version of `origin`."""
        return stamp <= self.expired.get(origin, NOTHING)

    def is_plausible(self, origin: str, incarnation: int, now_us: int) -> bool:
        """Whether `incarnation` can be that of `origin`, as far as it is known here."""
        replica = self.by_origin.get(origin)
        if replica is None:
            return incarnation <= MAX_FIRST_INCARNATION
        return replica.is_plausible(incarnation, now_us)

    def held_version(self, message: StateDelta) -> int:
        """Version held of the message's origin and incarnation; 0 if none."""
        replica = self.by_origin.get(message.origin)
        is_same = replica is not None and replica.incarnation == message.incarnation
        return replica.version if replica is not None and is_same else 0

    def has_room_for_origin(self, origin: str) -> bool:
        return origin in self.by_origin or len(self.by_origin) < self._options.origins_limit

    def own_room(self, kind: str) -> int:
        """Bytes left for own records of that kind; negative if over the limit."""
        return self._options.origin_bytes_limit - self.own.bytes - self._reserved_for_others(kind)

    def has_own_room(self, fact: StateRecord) -> bool:
        count, size = self.own.growth((fact,))
        if len(self.own) + count > self._options.records_limit:
            return False
        size += self._reserved_for_others(fact.kind)
        while self.own.bytes + size > self._options.origin_bytes_limit:
            if not self.own.tombstones:
                return False
            self.own.purge(0, self.own.tombstones // 2)  # records matter more than tombstones
        return True

    def write_own(self, fact: StateRecord, now_us: int) -> None:
        """Apply a change of an own record."""
        own = self.own
        if fact.kind in self._reserved:
            before = own.record(fact.kind, fact.key)
            self._used[fact.kind] += _used(fact) - (0 if before is None else _used(before))
        own.set(fact, now_us)
        self.advance_own((own.incarnation, fact.version), now_us)
        self._limit_tombstones(own, now_us)

    def advance_own(self, stamp: OriginVersion, now_us: int) -> None:
        self.digest ^= self.own.hash
        self.own.advance_to(stamp, now_us)
        self.digest ^= self.own.hash

    def accept(self, message: StateDelta, now_us: int) -> list[Change] | None:
        """Apply a delta that continues the replica, or a snapshot; None if there is no room."""
        origin = message.origin
        before = self.by_origin.get(origin)
        bytes_before = 0 if before is None else before.bytes
        hash_before = 0 if before is None else before.hash
        if before is not None and message.base > 0:
            count, size = before.growth(message.records)
            if not self._has_room(len(before) + count, before.bytes + size, bytes_before):
                # Its origin may have discarded its tombstones earlier.
                before.purge(0, 0)
                self.others_bytes += before.bytes - bytes_before
                bytes_before = before.bytes
                count, size = before.growth(message.records)
            if not self._has_room(len(before) + count, before.bytes + size, bytes_before):
                return None
            changes = before.apply(message, now_us)
            replica = before
        else:
            replica = replica_from_snapshot(message, now_us)
            if not self._has_room(len(replica), replica.bytes, bytes_before):
                return None
            changes = replica.changes_from(before)
            if before is not None:
                replica.leaps_free_us = before.leaps_free_after(message.incarnation, now_us)
            self.by_origin[origin] = replica
        self._limit_tombstones(replica, now_us)
        self.digest ^= hash_before ^ replica.hash
        self.others_bytes += replica.bytes - bytes_before
        self.expired.pop(origin, None)
        return changes

    def expire(self, origin: str) -> list[Change]:
        replica = self.by_origin.pop(origin, None)
        if replica is None:
            return []
        self.digest ^= replica.hash
        self.others_bytes -= replica.bytes
        self.expired[origin] = replica.origin_version
        if len(self.expired) > self._options.origins_limit:
            del self.expired[next(iter(self.expired))]
        return OriginReplica(origin, replica.origin_version, 0, 0).changes_from(replica)

    def recall(self, origin: str) -> None:
        self.expired.pop(origin, None)

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
                self._schedule_purge(now_us)

    def check_invariants(self) -> None:
        assert self.by_origin[self.own.origin] is self.own
        digest = others_bytes = 0
        for origin, replica in self.by_origin.items():
            assert replica.origin == origin
            replica.check_invariants()
            assert len(replica) <= self._options.records_limit
            assert replica.tombstones <= self._options.tombstones_limit
            assert replica.bytes <= self._options.origin_bytes_limit or replica is self.own
            assert not replica.tombstones or self.purge_due_us >= 0
            digest ^= replica.hash
            others_bytes += 0 if replica is self.own else replica.bytes
        assert self.digest == digest
        for kind, used in self._used.items():
            facts = (self.own.record(kind, key) for key in self.own.values.get(kind, {}))
            assert used == sum(cost_of(fact) for fact in facts if fact is not None)
        assert self.others_bytes == others_bytes <= self._options.bytes_limit
        assert len(self.by_origin) <= self._options.origins_limit
        assert len(self.expired) <= self._options.origins_limit
        assert not any(origin in self.by_origin for origin in self.expired)

    def _reserved_for_others(self, kind: str) -> int:
        """Unused bytes that are reserved for other kinds."""
        size = 0
        for each, reserved in self._reserved.items():
            size += 0 if each == kind else max(0, reserved - self._used[each])
        return size

    def _has_room(self, count: int, size: int, size_before: int) -> bool:
        return (
            count <= self._options.records_limit
            and size <= self._options.origin_bytes_limit
            and self.others_bytes + size - size_before <= self._options.bytes_limit
        )

    def _limit_tombstones(self, replica: OriginReplica, now_us: int) -> None:
        """Enforce the limit on tombstones after a change, and schedule the next scan."""
        if replica.tombstones > self._options.tombstones_limit:
            replica.purge(0, self._options.tombstones_limit)
        if replica.tombstones:
            self._schedule_purge(now_us)

    def _purge(self, replica: OriginReplica, before_us: int) -> None:
        size = replica.bytes
        replica.purge(before_us, self._options.tombstones_limit)
        if replica is not self.own:
            self.others_bytes += replica.bytes - size

    def _schedule_purge(self, now_us: int) -> None:
        if self.purge_due_us < 0:
            self.purge_due_us = now_us + max(self._options.tombstone_us // _PURGES, 1)


def _used(fact: StateRecord) -> int:
    return 0 if fact.value is None else cost_of(fact)
