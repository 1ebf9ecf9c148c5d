"""Replica of one origin's state records at exactly one of its versions.

An origin counts its changes. A replica at version v holds the last change up to v of each key, so
its delta (base, v] is all that a replica at base lacks. Every replica therefore always equals its
origin's state at some time, whatever the paths and order of messages.

A deleted record leaves a tombstone for replicas that still have it. Tombstones expire: `floor` is
the highest version of a discarded one. A replica below it gets a snapshot instead, and deletes
every record that is not in it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from accord.core.overlay.state_messages import OriginVersion, StateDelta, StateRecord

# Memory of a record besides its texts: objects, and entries in three dictionaries.
_FACT_BYTES: Final = 400
_TOLD_BYTES: Final = 16

Change = tuple[str, str, bytes | None]  # kind, key, value


class OriginReplica:
    """Records and tombstones by ascending version; tombstones with their local time of arrival."""

    def __init__(self, origin: str, stamp: OriginVersion, floor: int, now_us: int) -> None:
        self.origin = origin
        self.stamp = stamp
        self.incarnation, self.version = stamp
        self.floor = floor
        self.bytes = _FACT_BYTES
        self.changed_us = now_us
        self.hash = stamp_hash(origin, stamp)
        self.values: dict[str, dict[str, bytes]] = {}
        self._facts: dict[tuple[str, str], StateRecord] = {}
        self._buried_us: dict[tuple[str, str], int] = {}

    @property
    def tombstones(self) -> int:
        return len(self._buried_us)

    def get(self, kind: str, key: str) -> bytes | None:
        of_kind = self.values.get(kind)
        return None if of_kind is None else of_kind.get(key)

    def fact(self, kind: str, key: str) -> StateRecord | None:
        """The last change of a key, unless it is a discarded tombstone."""
        return self._facts.get((kind, key))

    def __len__(self) -> int:
        return len(self._facts) - len(self._buried_us)

    def move(self, stamp: OriginVersion, now_us: int) -> None:
        """Advance to a later version, after all records up to it were set."""
        assert stamp > self.stamp
        self.stamp = stamp
        self.incarnation, self.version = stamp
        self.changed_us = now_us
        self.hash = stamp_hash(self.origin, stamp)

    def set(self, fact: StateRecord, now_us: int) -> None:
        """Set a record, whose version is the highest so far."""
        at = fact.kind, fact.key
        before = self._facts.pop(at, None)
        if before is not None:
            self.bytes -= cost_of(before)
        # Appended: the dictionary is ordered by version.
        self._facts[at] = fact
        self.bytes += cost_of(fact)
        if fact.value is None:
            self._drop_value(fact.kind, fact.key)
            self._buried_us.pop(at, None)
            self._buried_us[at] = now_us
        else:
            self._buried_us.pop(at, None)
            self.values.setdefault(fact.kind, {})[fact.key] = fact.value

    def purge(self, before_us: int, limit: int) -> None:
        """Expire tombstones older than `before_us`, and evict the oldest beyond `limit`."""
        gone: list[tuple[str, str]] = []
        for at, buried_us in self._buried_us.items():
            if buried_us >= before_us and len(self._buried_us) - len(gone) <= limit:
                break
            gone.append(at)
        for at in gone:
            del self._buried_us[at]
            fact = self._facts.pop(at)
            self.bytes -= cost_of(fact)
            self.floor = max(self.floor, fact.version)

    def since(self, base: int) -> StateDelta:
        """The delta for a replica at version `base`, or a snapshot if that is below `floor`."""
        if base < self.floor:
            base = 0
        facts: list[StateRecord] = []
        for fact in reversed(self._facts.values()):
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
                before = self._facts.get((fact.kind, fact.key))
                if before is not None:
                    size -= cost_of(before)
                    count -= int(before.value is not None)
                size += cost_of(fact)
                count += int(fact.value is not None)
        return count, size

    def apply(self, message: StateDelta, now_us: int) -> list[Change]:
        """Apply a delta that continues this version; returns the changes."""
        changes: list[Change] = []
        for fact in message.facts:
            if fact.version > self.version:
                if fact.value != self.get(fact.kind, fact.key):
                    changes.append((fact.kind, fact.key, fact.value))
                self.set(fact, now_us)
        self.move((message.incarnation, message.version), now_us)
        return changes

    def changes_from(self, before: OriginReplica | None) -> list[Change]:
        """Differences from `before`, the previous replica of this origin: deletions first."""
        changes: list[Change] = []
        if before is not None:
            for kind, of_kind in before.values.items():
                changes += [(kind, key, None) for key in of_kind if self.get(kind, key) is None]
        for fact in self._facts.values():
            known = None if before is None else before.get(fact.kind, fact.key)
            if fact.value is not None and fact.value != known:
                changes.append((fact.kind, fact.key, fact.value))
        return changes

    def check_invariants(self) -> None:
        versions = [fact.version for fact in self._facts.values()]
        assert versions == sorted(set(versions))
        assert not versions or (versions[0] > 0 and versions[-1] <= self.version)
        assert self.stamp == (self.incarnation, self.version)
        assert 0 <= self.floor <= self.version
        assert self.bytes == _FACT_BYTES + sum(cost_of(fact) for fact in self._facts.values())
        assert self.hash == stamp_hash(self.origin, self.stamp)
        alive = {at: fact.value for at, fact in self._facts.items() if fact.value is not None}
        assert alive == {
            (kind, key): value
            for kind, of_kind in self.values.items()
            for key, value in of_kind.items()
        }
        assert all(self.values.values())
        buried = [at for at, fact in self._facts.items() if fact.value is None]
        assert buried == list(self._buried_us)
        assert list(self._buried_us.values()) == sorted(self._buried_us.values())

    def _drop_value(self, kind: str, key: str) -> None:
        of_kind = self.values.get(kind)
        if of_kind is not None:
            of_kind.pop(key, None)
            if not of_kind:
                del self.values[kind]


def whole_replica(message: StateDelta, now_us: int) -> OriginReplica:
    """Replica from a snapshot, without tombstones: it serves no deltas from below its version.

    Tombstones in the message are skipped: all records that are not in it are deleted anyway.
    """
    stamp = message.incarnation, message.version
    replica = OriginReplica(message.origin, stamp, message.version, now_us)
    for fact in message.facts:
        if fact.value is not None:
            replica.set(fact, now_us)
    return replica


def cost_of(fact: StateRecord) -> int:
    """Approximate memory of a record."""
    return _FACT_BYTES + len(fact.kind) + len(fact.key) + len(fact.value or b"")


def told_bytes(message: StateDelta) -> int:
    """Approximate size of a delta on the wire."""
    size = _TOLD_BYTES + len(message.origin)
    for fact in message.facts:
        size += _TOLD_BYTES + len(fact.kind) + len(fact.key) + len(fact.value or b"")
    return size


def stamp_hash(origin: str, stamp: OriginVersion) -> int:
    """An origin's part of the digest: the same at all nodes, in all runs."""
    text = f"{stamp[0]} {stamp[1]} {origin}".encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())
