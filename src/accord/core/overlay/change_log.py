"""Values under keys as numbered changes, of which others know the first so many.

Of each key only the last change counts. Who knows all up to some version lacks those after it; who
knows nothing yet is told what there is. What was taken back is remembered until all know of it, or
until that is too much: `floor` is the last such change that is forgotten. Who knew something before
that, and did not come so far, may have what is gone, can't be told so, and has to begin anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

_LAST: Final = 1 << 62

K = TypeVar("K")
V = TypeVar("V")


class DeltaLimits(NamedTuple):
    """Of one message: `changes`, and about how many `bytes`; of all that was taken back: `gone`."""

    changes: int
    bytes: int
    gone: int


class ChangeLog(Generic[K, V]):
    """`size_of` says how many bytes a change takes in a message; None: it was taken back."""

    def __init__(self, limits: DeltaLimits, size_of: Callable[[K, V | None], int]) -> None:
        self.version = 0
        self.floor = 0
        self._limits = limits
        self._size_of = size_of
        self._changes: dict[K, tuple[int, V | None]] = {}  # by version, lowest first
        self._gone: dict[K, int] = {}  # the versions of those that are None

    def __len__(self) -> int:
        """How many values there are."""
        return len(self._changes) - len(self._gone)

    def get(self, key: K) -> V | None:
        found = self._changes.get(key)
        return None if found is None else found[1]

    def values(self) -> dict[K, V]:
        return {key: value for key, (_, value) in self._changes.items() if value is not None}

    def put(self, key: K, value: V | None) -> None:
        """None: it is taken back."""
        self.version += 1
        self._changes.pop(key, None)  # to the end: the order is that of versions
        self._changes[key] = (self.version, value)
        self._gone.pop(key, None)
        if value is None:
            self._gone[key] = self.version
            if len(self._gone) > self._limits.gone:
                self._forget([next(iter(self._gone))])

    def all_know(self, version: int) -> None:
        """All who are told know everything up to there."""
        known: list[K] = []
        for key, at in self._gone.items():
            if at > version:
                break
            known.append(key)
        self._forget(known)

    def can_go_on(self, version: int, floor: int) -> bool:
        """Whether who knows all up to `version` can be told the rest.

        `floor` is what it was when it knew nothing: of what was forgotten by then it has nothing.
        """
        return self.floor <= max(version, floor)

    def after(self, base: int, top: int = _LAST) -> tuple[int, list[tuple[int, K, V | None]]]:
        """The next changes for who knows those up to `base`, and up to which version it does then.

        There may be more, up to `top`. From 0 on: all there is.
        """
        changes: list[tuple[int, K, V | None]] = []
        for key, (at, value) in reversed(self._changes.items()):
            if at <= base:
                break
            if at <= top and (base or value is not None):
                changes.append((at, key, value))
        changes.reverse()
        size = 0
        for count, (_, key, value) in enumerate(changes):
            size += self._size_of(key, value)
            if count == self._limits.changes or (count and size > self._limits.bytes):
                return changes[count - 1][0], changes[:count]
        return min(top, self.version), changes

    def check_invariants(self, known: int = 0) -> None:
        """`known`: what all know is not remembered."""
        versions = [at for at, _ in self._changes.values()]
        assert versions == sorted(set(versions))
        assert not versions or 0 < versions[0] <= versions[-1] <= self.version
        gone = [(key, at) for key, (at, value) in self._changes.items() if value is None]
        assert gone == list(self._gone.items())
        assert len(gone) <= self._limits.gone
        assert all(at > known for _, at in gone)
        assert 0 <= self.floor <= self.version

    def _forget(self, gone: Iterable[K]) -> None:
        for key in gone:
            del self._changes[key]
            self.floor = self._gone.pop(key)
