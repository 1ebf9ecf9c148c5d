"""Values by key, of which those that were used lately stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruMap(Generic[K, V]):
    """At most so many: which was not asked for or put in for the longest time gives way."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"most: expected at least 1, got {most}")
        self.most = most
        self._values: dict[K, V] = {}  # the latest is last

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
        """Which is no use of it."""
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        """The latest is last."""
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def find_evictable(values: dict[K, V], is_free: Callable[[V], bool], most: int) -> K | None:
    """The first that can give way, of so many; those that can't go to the end.

    So others are looked at next time, and a few that never can keep nobody out.
    """
    for key, value in list(islice(values.items(), most)):
        if is_free(value):
            return key
        values[key] = values.pop(key)
    return None
