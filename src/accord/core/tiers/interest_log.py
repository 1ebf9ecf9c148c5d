"""A child's interests as a versioned change log, acknowledged by each parent up to a version."""

from __future__ import annotations

from typing import Final

from accord.core.overlay.change_log import ChangeLog, DeltaLimits
from accord.core.overlay.interests import InterestTable, Need
from accord.core.tiers.messages import MAX_CHANGES, MAX_CHANGES_TEXT, InterestDelta, text_of

_LIMITS: Final = DeltaLimits(changes=MAX_CHANGES, bytes=MAX_CHANGES_TEXT, gone=4_096)
BUDGET: Final = 16 << 20  # bytes of interests, no more than a parent accepts


class InterestLog(ChangeLog[str, Need]):
    """Change log of the child's interest table."""

    def __init__(self, incarnation: int) -> None:
        super().__init__(_LIMITS, lambda _, need: text_of(need))
        self.needs = InterestTable(BUDGET)
        self._incarnation = incarnation

    def update(self, now_us: int) -> bool:
        """Log the changes of the table; return whether there are any."""
        changes = self.needs.changes(now_us)
        for key, need in changes:
            self.put(key, need)
        return bool(changes)

    def since(self, version: int, most: int) -> InterestDelta | None:
        """The next delta for a parent at `version`, up to version `most`."""
        last, changes = self.after(version, most)
        if last <= version:
            return None
        told = tuple((key, need) for _, key, need in changes)
        return InterestDelta(self._incarnation, version, last, told)

    def check_invariants(self, known: int = 0) -> None:
        super().check_invariants(known)
        self.needs.check_invariants()
