"""Bounded map with least-recently-used eviction."""

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
