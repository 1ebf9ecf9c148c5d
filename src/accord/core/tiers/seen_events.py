"""Which events have been handed over lately: what comes again, by another way, counts once.

Events are known by the node where they were published and their number there, which no other gets.
Two generations are kept: when the younger is full it becomes the older, and what was that before is
forgotten. So at least so many as one holds are known, whichever sources they are of.
"""

from __future__ import annotations

from typing import Final

from accord.core.tiers.messages import EventId

GENERATION: Final = 32_768


class SeenEvents:
    def __init__(self, generation: int = GENERATION) -> None:
        if generation < 1:
            raise ValueError(f"generation: expected at least 1, got {generation}")
        self._generation = generation
        self._younger: dict[EventId, bool] = {}
        self._older: dict[EventId, bool] = {}

    def is_new(self, key: EventId) -> bool:
        """Whether it is the first time; from now on it is not."""
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
