"""Replicates a change log to the neighbours of the other tier.

Each neighbour is sent the changes after the version it has acknowledged, retransmitted until it
acknowledges more. Each link starts a session, which begins with a snapshot; so does a reset, when
tombstones that a neighbour needs have been discarded.
"""

from __future__ import annotations

from typing import Any, Final

from accord.core.overlay.change_log import ChangeLog
from accord.core.overlay.tier_links import TierLinks

_NEVER: Final = 2**62


class TierPeerCursor:
    """Progress of one neighbour, which has acknowledged all changes up to `version`."""

    def __init__(self, link: int) -> None:
        self.version = 0
        self.session = 0  # numbered over all neighbours
        self.link = link
        self.floor = 0  # of the log when the session started
        self.due_us = 0


class TierDeltaSender:
    """Cursors of all neighbours into the log; `again_us` is the retransmission timeout."""

    def __init__(self, log: ChangeLog[Any, Any], tiers: TierLinks, again_us: int) -> None:
        self._log = log
        self._tiers = tiers
        self._again_us = again_us
        self._readers: dict[str, TierPeerCursor] = {}
        self._sessions = 0
        self._seen = -1

    def get(self, neighbour: str) -> TierPeerCursor | None:
        return self._readers.get(neighbour)

    def heard(self, neighbour: str, version: int, now_us: int) -> None:
        """A neighbour acknowledged `version`; lower than before if it has restarted."""
        reader = self._readers.get(neighbour)
        if reader is not None and version != reader.version and 0 <= version <= self._log.version:
            reader.version = version
            reader.due_us = now_us
            self._forget_known()

    def due(self, now_us: int) -> list[tuple[str, TierPeerCursor]]:
        """Neighbours to send changes to now."""
        if self._tiers.version != self._seen:
            self._look_at_links()
        found = [each for each in self._behind() if each[1].due_us <= now_us]
        for _, reader in found:
            reader.due_us = now_us + self._again_us
            if not self._log.can_go_on(reader.version, reader.floor):
                self._begin(reader)
        return found

    def next_due_us(self) -> int:
        if self._tiers.version != self._seen:
            return 0
        return min((reader.due_us for _, reader in self._behind()), default=_NEVER)

    def check_invariants(self) -> None:
        self._log.check_invariants()
        assert all(0 <= each.version <= self._log.version for each in self._readers.values())

    def _behind(self) -> list[tuple[str, TierPeerCursor]]:
        top = self._log.version
        return [each for each in self._readers.items() if each[1].version < top]

    def _begin(self, reader: TierPeerCursor) -> None:
        self._sessions += 1
        reader.session, reader.version, reader.floor = self._sessions, 0, self._log.floor

    def _look_at_links(self) -> None:
        self._seen = self._tiers.version
        before, self._readers = self._readers, {}
        for neighbour, link in self._tiers.began.items():
            reader = before.get(neighbour)
            if reader is None or reader.link != link:
                reader = TierPeerCursor(link)
                self._begin(reader)
            self._readers[neighbour] = reader
        self._forget_known()

    def _forget_known(self) -> None:
        readers = self._readers.values()
        self._log.all_know(min((each.version for each in readers), default=self._log.version))
