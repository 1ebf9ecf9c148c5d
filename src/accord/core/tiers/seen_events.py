"""Duplicate filter: remembers the IDs of recent events in two generations.

Event IDs are unique, so an event that arrives again by another path is recognised. When the younger
generation is full it becomes the older one, which is discarded. So at least one generation of IDs
is remembered, whatever their sources.
"""

from __future__ import annotations

from typing import Final

from accord.core.tiers.messages import EventId

GENERATION: Final = 32_768


class SeenEvents:
    """Set of recent event IDs of bounded size."""

    def __init__(self, generation: int = GENERATION) -> None:
        if generation < 1:
            raise ValueError(f"generation: expected at least 1, got {generation}")
        self._generation = generation
        self._younger: dict[EventId, bool] = {}
        self._older: dict[EventId, bool] = {}

    def is_new(self, key: EventId) -> bool:
        """Whether the ID was not seen before; it is added."""
        if key in self:
            return False
        self._younger[key] = True
        if len(self._younger) >= self._generation:
            self._older = self._younger
            self._younger = {}
        return True

    def __contains__(self, key: object) -> bool:
        return key in self._younger or key in self._older

    def __len__(self) -> int:
        return len(self._younger) + len(self._older)

    def check_invariants(self) -> None:
        assert len(self._younger) < self._generation
        assert len(self._older) in (0, self._generation)
