"""Counters by name with bounded size, because names are external input."""

from __future__ import annotations

from typing import Final

OTHER: Final = "other"


class BoundedCounts:
    """Counters by name; names beyond `limit` count as `other`."""

    def __init__(self, limit: int = 64) -> None:
        self.limit: int = limit
        self.counts: dict[str, int] = {}

    def add(self, name: str, count: int = 1) -> None:
        counts = self.counts
        if name not in counts and len(counts) >= self.limit:
            name = OTHER
        counts[name] = counts.get(name, 0) + count


class TopCounts:
    """Counters by client and cause, of which only the greatest are kept.

    Twice as many as wanted are held. When one more arrives, the smaller half is moved into `rest`:
    this takes constant time on average, and the total stays exact. An evicted counter that comes
    back starts from zero, so a count shown is never above the true one.
    """

    def __init__(self, wanted: int = 100) -> None:
        self.wanted: int = wanted
        self.counts: dict[tuple[str, str], int] = {}
        self.rest: BoundedCounts = BoundedCounts()

    def add(self, client: str, cause: str, count: int = 1) -> None:
        key = (client, cause)
        before = self.counts.get(key)
        if before is not None:
            self.counts[key] = before + count
            return
        if len(self.counts) >= 2 * self.wanted:
            for dropped in self._order()[self.wanted :]:
                self.rest.add(dropped[1], self.counts.pop(dropped))
        self.counts[key] = count

    def top(self) -> list[tuple[str, str, int]]:
        """Return client, cause and count, greatest first; then the rest as client `other`."""
        order = self._order()
        rest = BoundedCounts()
        for cause, count in self.rest.counts.items():
            rest.add(cause, count)
        for key in order[self.wanted :]:
            rest.add(key[1], self.counts[key])
        found = [(key[0], key[1], self.counts[key]) for key in order[: self.wanted]]
        found += [(OTHER, cause, count) for cause, count in rest.counts.items()]
        return found

    def _order(self) -> list[tuple[str, str]]:
        """Keys by descending count; ties by name, so that a run replays exactly."""
        return [key for _, key in sorted((-count, key) for key, count in self.counts.items())]
