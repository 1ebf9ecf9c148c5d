"""Counts of delivered and late events from other nodes.

Events are counted by source and channel for operators, which each node publishes to all others, and
by channel definition for metrics, whose counters never decrease. Both tables are bounded: the
excess is counted in one entry without a name.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_ENTRIES: Final = 200
MAX_DEFINITIONS: Final = 256
MAX_NAME_LENGTH: Final = 256  # characters of a channel's name
IDLE_US: Final = 600_000_000  # an entry without events for this long expires
_REST: Final = ("", "")


class ArrivalRecord(msgspec.Struct, frozen=True, array_like=True):
    """State record of the counts of one source and channel."""

    source: str
    channel: str
    delivered: int
    late: int


class KeyPool:
    """Pool of short record keys; freed keys are reused."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._made = 0
        self._free: list[str] = []

    @property
    def has_room(self) -> bool:
        return bool(self._free) or self._made < self.limit

    def take(self) -> str:
        if self._free:
            return self._free.pop()
        assert self._made < self.limit
        self._made += 1
        return str(self._made - 1)

    def free(self, key: str) -> None:
        self._free.append(key)

    def check_invariants(self, taken: list[str]) -> None:
        both = taken + self._free
        assert len(both) == len(set(both)) == self._made <= self.limit


class ArrivalCount:
    """Counts of one entry; `published` is `delivered` as last published."""

    __slots__ = ("delivered", "key", "last_us", "late", "published")

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.delivered = 0
        self.late = 0
        self.last_us = 0
        self.published = 0


class ArrivalCounts:
    """Arrival counts of one node, by (source, channel) and by name of the definition."""

    def __init__(self) -> None:
        self.by_channel: dict[tuple[str, str], ArrivalCount] = {}
        self.by_definition: dict[str, ArrivalCount] = {}
        self._keys = KeyPool(MAX_ENTRIES + 1)
        self.has_changes = False

    def count(
        self, source: str, channel: str, definition: str, *, is_late: bool, now_us: int
    ) -> None:
        self.has_changes = True
        tally = self.by_channel.get((source, channel))
        if tally is None:
            tally = self._entry_for(source, channel)
        total = self.by_definition.get(definition)
        if total is None:
            total = self._total_for(definition)
        tally.last_us = now_us
        tally.delivered += 1
        total.delivered += 1
        if is_late:
            tally.late += 1
            total.late += 1

    def changed_records(self, now_us: int) -> list[tuple[str, ArrivalRecord | None]]:
        """Records to publish since the last call, by key; None: to delete."""
        self.has_changes = False
        found: list[tuple[str, ArrivalRecord | None]] = []
        for (source, channel), tally in list(self.by_channel.items()):
            if tally.last_us + IDLE_US <= now_us:
                del self.by_channel[source, channel]
                self._keys.free(tally.key)
                found.append((tally.key, None))
            elif tally.published != tally.delivered:
                tally.published = tally.delivered
                value = ArrivalRecord(source, channel, tally.delivered, tally.late)
                found.append((tally.key, value))
        return found

    def check_invariants(self) -> None:
        self._keys.check_invariants([tally.key for tally in self.by_channel.values()])
        assert len(self.by_definition) <= MAX_DEFINITIONS + 1
        for tally in (*self.by_channel.values(), *self.by_definition.values()):
            assert 0 <= tally.late <= tally.delivered
            assert tally.published <= tally.delivered

    def _entry_for(self, source: str, channel: str) -> ArrivalCount:
        name = (source, channel)
        if len(channel) > MAX_NAME_LENGTH or len(self.by_channel) >= MAX_ENTRIES:
            name = _REST
        tally = self.by_channel.get(name)
        if tally is None:
            tally = self.by_channel[name] = ArrivalCount(self._keys.take())
        return tally

    def _total_for(self, definition: str) -> ArrivalCount:
        if len(self.by_definition) >= MAX_DEFINITIONS:
            definition = ""
        return self.by_definition.setdefault(definition, ArrivalCount())
