"""The needs of a child as a log of changes, of which each parent knows the first so many.

Each change has a version. A parent that has heard nothing yet is told what is needed now; one that
knows some version, only what has changed since. What was taken back is remembered until both
parents know it.
"""

from __future__ import annotations

from typing import Final

from accord.core.overlay.needs import Need, Needs
from accord.core.tiers.messages import MOST_CHANGES, MOST_CHANGES_TEXT, Wants

_CHANGES: Final = MOST_CHANGES
_GONE: Final = 4_096
BUDGET: Final = 16 << 20  # bytes of needs: no more of them than a parent accepts


class NeedsLog:
    """`floor`: changes up to this version can only be told to who knows none."""

    def __init__(self, incarnation: int) -> None:
        self.needs = Needs(BUDGET)
        self.version = 0
        self.floor = 0
        self._incarnation = incarnation
        self._log: dict[str, tuple[int, Need | None]] = {}  # by key; the latest change is last

    def update(self, now_us: int) -> bool:
        """Note what has changed; gives whether something has."""
        changes = self.needs.changes(now_us)
        for key, need in changes:
            self.version += 1
            self._log.pop(key, None)
            self._log[key] = (self.version, need)
        if changes and len(self._log) > _GONE:
            gone = [key for key, (_, need) in self._log.items() if need is None]
            for key in gone[: max(0, len(gone) - _GONE)]:
                self.floor = max(self.floor, self._log.pop(key)[0])
        return bool(changes)

    def forget(self, version: int) -> None:
        """All parents know everything up to there."""
        gone = [key for key, (at, need) in self._log.items() if need is None and at <= version]
        for key in gone:
            del self._log[key]
        if gone:
            self.floor = max(self.floor, version)

    def since(self, version: int, most: int) -> Wants | None:
        """The next changes for who knows those up to `version`, up to version `most`."""
        changes: list[tuple[str, Need | None]] = []
        last = latest = min(most, self.version)
        size = 0
        for key, (at, need) in self._log.items():
            if at > last:
                break
            if at <= version or (need is None and not version):
                continue
            size += 0 if need is None else len(need.filter) + len(need.where) + len(need.xpath)
            if changes and (len(changes) == _CHANGES or size > MOST_CHANGES_TEXT):
                last = latest
                break
            changes.append((key, need))
            latest = at
        if last <= version:
            return None
        return Wants(self._incarnation, version, last, tuple(changes))

    def check_invariants(self) -> None:
        self.needs.check_invariants()
        versions = [at for at, _ in self._log.values()]
        assert versions == sorted(versions)
        assert self.floor <= self.version
        assert all(at <= self.version for at in versions)
