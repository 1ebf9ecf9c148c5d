"""Events of secondary nodes, which may stand in the journals of two parents.

A parent that fails may have kept an event that nobody else has got. Its child does not know, and
gives the event to its other parent, which keeps it, too. What both have in common is the child, and
the number that it gave the event. So who gets something of such an event remembers these: a
subscription for itself while it has a past, and a node for all whose past is over, as those get
everything that comes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.core.model.lru import LruMap

MAX_ORIGINALS: Final = 20_000
_SPELLS: Final = 64

ChildEventId = tuple[str, int]  # the secondary node, and what an event is called there


class ChildEventLog:
    """What came live to a node, in which order."""

    def __init__(self, most: int = MAX_ORIGINALS) -> None:
        self.count = 0
        self._places: LruMap[ChildEventId, int] = LruMap(most)

    def came(self, original: ChildEventId) -> None:
        self.count += 1
        self._places.put(original, self.count)

    def place(self, original: ChildEventId) -> int:
        """0 for one that did not come, or long ago."""
        return self._places.get(original) or 0


class ChildEventDedup:
    """What one subscription got."""

    def __init__(self, originals: ChildEventLog, most: int = MAX_ORIGINALS) -> None:
        self._originals = originals
        self._single: LruMap[ChildEventId, bool] = LruMap(most)
        self._spells: deque[tuple[int, int]] = deque(maxlen=_SPELLS)  # in which it got everything
        self._since: int | None = None  # the one that is not over

    def add(self, original: ChildEventId | None) -> bool:
        """False where it got that before."""
        if original is None:
            return True
        if original in self:
            return False
        self._single.put(original, True)
        return True

    def __contains__(self, original: ChildEventId) -> bool:
        if self._single.get(original):
            return True
        place = self._originals.place(original)
        spells = [*self._spells, *([] if self._since is None else [(self._since, place)])]
        return any(first < place <= last for first, last in spells)

    def begin_spell(self) -> None:
        """From now on it gets everything that comes."""
        if self._since is None:
            self._since = self._originals.count

    def end_spell(self) -> None:
        if self._since is not None:
            self._spells.append((self._since, self._originals.count))
            self._since = None
