"""Compacted change log: a key-value map whose changes are versioned, to replicate it by deltas.

Only the last change of each key is kept. A reader at some version lacks the changes after it; a new
reader gets a snapshot. Tombstones are kept until all readers have acknowledged them, or up to a
limit: `floor` is the version of the last discarded one. A reader that started before it and has not
reached it may hold a deleted key, cannot be notified of that, and has to be reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

_LAST: Final = 1 << 62

K = TypeVar("K")
V = TypeVar("V")


class DeltaLimits(NamedTuple):
    """Limits of one delta, `changes` and about how many `bytes`;

    And of tombstones, `max_tombstones`.
    """

    changes: int
    bytes: int
    max_tombstones: int


class ChangeLog(Generic[K, V]):
    """The log; `size_of` returns the bytes of a change in a delta (value None: a tombstone)."""

    def __init__(self, limits: DeltaLimits, size_of: Callable[[K, V | None], int]) -> None:
        self.version = 0
        self.floor = 0
        self._limits = limits
        self._size_of = size_of
        self._changes: dict[K, tuple[int, V | None]] = {}  # by version, lowest first
        self._tombstones: dict[K, int] = {}  # versions of the tombstones

    def __len__(self) -> int:
        """Number of values, without tombstones."""
        return len(self._changes) - len(self._tombstones)

    def get(self, key: K) -> V | None:
        found = self._changes.get(key)
        return None if found is None else found[1]

    def values(self) -> dict[K, V]:
        return {key: value for key, (_, value) in self._changes.items() if value is not None}

    def put(self, key: K, value: V | None) -> None:
        """Set a value; None deletes it."""
        self.version += 1
        self._changes.pop(key, None)  # moved to the end: the order is that of versions
        self._changes[key] = (self.version, value)
        self._tombstones.pop(key, None)
        if value is None:
            self._tombstones[key] = self.version
            if len(self._tombstones) > self._limits.max_tombstones:
                self._discard([next(iter(self._tombstones))])

    def acknowledge_through(self, version: int) -> None:
        """All readers have acknowledged `version`: discard tombstones up to it."""
        known: list[K] = []
        for key, at in self._tombstones.items():
            if at > version:
                break
            known.append(key)
        self._discard(known)

    def can_resume_from(self, version: int, floor: int) -> bool:
        """Whether a reader at `version` can continue by deltas.

        `floor` is the log's floor when the reader started: it never had the keys deleted by then.
        """
        return self.floor <= max(version, floor)

    def delta_after(
        self, base: int, up_to: int = _LAST
    ) -> tuple[int, list[tuple[int, K, V | None]]]:
        """The next delta for a reader at `base`: the version it leads to, and its changes.

        More may follow, up to `top`. From base 0 it is a snapshot.
        """
        changes: list[tuple[int, K, V | None]] = []
        for key, (at, value) in reversed(self._changes.items()):
            if at <= base:
                break
            if at <= up_to and (base or value is not None):
                changes.append((at, key, value))
        changes.reverse()
        size = 0
        for count, (_, key, value) in enumerate(changes):
            size += self._size_of(key, value)
            if count == self._limits.changes or (count and size > self._limits.bytes):
                return changes[count - 1][0], changes[:count]
        return min(up_to, self.version), changes

    def check_invariants(self, known: int = 0) -> None:
        """No tombstones are kept up to `known`, which all readers have acknowledged."""
        versions = [at for at, _ in self._changes.values()]
        assert versions == sorted(set(versions))
        assert not versions or 0 < versions[0] <= versions[-1] <= self.version
        gone = [(key, at) for key, (at, value) in self._changes.items() if value is None]
        assert gone == list(self._tombstones.items())
        assert len(gone) <= self._limits.max_tombstones
        assert all(at > known for _, at in gone)
        assert 0 <= self.floor <= self.version

    def _discard(self, gone: Iterable[K]) -> None:
        for key in gone:
            del self._changes[key]
            self.floor = self._tombstones.pop(key)
