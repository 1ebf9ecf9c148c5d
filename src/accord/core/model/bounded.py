"""Bounded containers: a map with least-recently-used eviction, and a fair quota of a pool.

With a fair quota, no user may hold more of a shared pool than is left for all others. So a greedy
user gets at most half of the pool, the next one a quarter, and some is left for everyone. The
number of users need not be known, and nothing is revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruMap(Generic[K, V]):
    """Holds a limited number of values; evicts the one least recently read or written."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"most: expected at least 1, got {most}")
        self.most = most
        self._values: dict[K, V] = {}  # most recent last

    def get(self, key: K) -> V | None:
        if key not in self._values:
            return None
        value = self._values[key] = self._values.pop(key)
        return value

    def put(self, key: K, value: V) -> None:
        self._values.pop(key, None)
        self._values[key] = value
        if len(self._values) > self.most:
            del self._values[next(iter(self._values))]

    def __contains__(self, key: object) -> bool:
        """Does not count as a use."""
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        """Most recent last."""
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def find_evictable(values: dict[K, V], is_free: Callable[[V], bool], most: int) -> K | None:
    """The first evictable key among the first `most`; the others move to the end.

    So others are examined next time, and a few that are never evictable block nothing.
    """
    for key, value in list(islice(values.items(), most)):
        if is_free(value):
            return key
        values[key] = values.pop(key)
    return None


class FairQuota:
    """Pool of `most` items of `most_bytes` together, with usage by name."""

    def __init__(self, most: int, most_bytes: int = 1 << 62) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self.count = 0
        self.bytes = 0
        self._held: dict[str, tuple[int, int]] = {}

    def has_room(self, who: str, size: int = 0) -> bool:
        """Whether `who` may hold one more item, of that size."""
        count, size_held = self.held(who)
        is_countable = count < self.most - self.count
        return is_countable and size_held + size <= self.most_bytes - self.bytes

    def take(self, who: str, size: int = 0) -> None:
        self.change(who, 1, size)

    def release(self, who: str, size: int = 0) -> None:
        """Returns one item of `who` to the pool."""
        self.change(who, -1, -size)

    def held(self, who: str) -> tuple[int, int]:
        """Number of items that `who` holds, and their size."""
        return self._held.get(who, (0, 0))

    def change(self, who: str, count: int, size: int) -> None:
        """Adds to, or subtracts from, what `who` holds."""
        self.count += count
        self.bytes += size
        held, held_bytes = self._held.pop(who, (0, 0))
        if held + count:
            self._held[who] = (held + count, held_bytes + size)

    def check_invariants(self) -> None:
        assert 0 <= self.count <= self.most
        assert 0 <= self.bytes <= self.most_bytes
        assert all(count > 0 <= size for count, size in self._held.values())
        assert self.count == sum(count for count, _ in self._held.values())
        assert self.bytes == sum(size for _, size in self._held.values())
