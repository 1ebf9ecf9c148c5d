"""Duplicate suppression for events of secondary nodes that two parents may have journalled.

A parent that fails may have journalled an event that no other node has received. Its child does not
know, and sends the event to its other parent, which journals it, too. Both copies have the child's
event ID, so IDs are remembered: per subscription while it replays history, and once per node for
all live subscriptions, as those get everything that arrives.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from accord.core.model.bounded import LruMap

MAX_ORIGINALS: Final = 20_000
_SPELLS: Final = 64

ChildEventId = tuple[str, int]  # secondary node, number there


class ChildEventLog:
    """Sequence of the child events that arrived live at a node."""

    def __init__(self, most: int = MAX_ORIGINALS) -> None:
        self.count = 0
        self._places: LruMap[ChildEventId, int] = LruMap(most)

    def came(self, original: ChildEventId) -> None:
        self.count += 1
        self._places.put(original, self.count)

    def place(self, original: ChildEventId) -> int:
        """Index of an event in the sequence; 0 if it did not arrive, or long ago."""
        return self._places.get(original) or 0


class ChildEventDedup:
    """The child events that one subscription has received."""

    def __init__(self, originals: ChildEventLog, most: int = MAX_ORIGINALS) -> None:
        self._originals = originals
        self._single: LruMap[ChildEventId, bool] = LruMap(most)
        self._spells: deque[tuple[int, int]] = deque(maxlen=_SPELLS)  # ended live periods
        self._since: int | None = None  # start of the current live period

    def add(self, original: ChildEventId | None) -> bool:
        """Add an event; False if it is a duplicate."""
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
        """Start a live period: the subscription gets everything that arrives."""
        if self._since is None:
            self._since = self._originals.count

    def end_spell(self) -> None:
        if self._since is not None:
            self._spells.append((self._since, self._originals.count))
            self._since = None
